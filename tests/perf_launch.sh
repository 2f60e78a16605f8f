#!/usr/bin/env bash
# perf_launch.sh BUILD: the perf programs under every launcher: mpirun of Open MPI and of MPICH where the build found them, and the
# variables of torchrun, Slurm and PMIx, made up. Groups, devices, wrong variables, processes that die. Leaves no process behind.
set -u
build=$(cd "$1" && pwd) || exit 1
program=all_reduce_perf
[ -x "$build/bin/$program" ] || { echo "skipped: $program is not built"; exit 77; }

tmp=$(mktemp -d)
passed=0 failed=0
small=(-b 8 -e 32K -f 16 -n 2 -w 1)
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT "${!SLURM_@}" "${!PMI_@}" "${!PMIX_@}" "${!OMPI_@}" "${!TUTTI_PERF_@}" "${!NCCL_@}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# The same program twice: one that finds MPI's shared objects beside its library, and one that does not.
mkdir -p "$tmp/with" "$tmp/without/bin" "$tmp/without/lib"
for name in $program broadcast_perf; do ln -s "$build/bin/$name" "$tmp/with/$name"; done
cp "$build/bin/$program" "$tmp/without/bin/$program"
cp -P "$build"/lib/libnccl.so* "$tmp/without/lib/"
perf=$tmp/with/$program

# Numbers of the processes that have to do with them.
ours() { grep -lzs "^$tmp/" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; }

clean_up() {
  local left
  left=$(ours)
  # shellcheck disable=SC2086
  [ -z "$left" ] || kill -9 $left 2>/dev/null
  rm -rf "$tmp"
}
trap clean_up EXIT

report() { # report NAME PROBLEM: an empty problem is a success
  local left i
  [ -z "${VERBOSE:-}" ] || echo "$SECONDS s: $1"
  for ((i = 0; i < 300; i++)); do # what an mpirun killed may take a moment to go
    left=$(ours)
    [ -n "$left" ] || break
    sleep 0.2
  done
  # shellcheck disable=SC2086
  [ -z "$left" ] || kill -9 $left 2>/dev/null
  if [ -z "$2" ] && [ -z "$left" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $1: $2${left:+ (left behind: $left)}"
    tail -n 40 "$tmp"/out*
  fi
  rm -f "$tmp"/out*
}

# good NAME PATTERN COMMAND...: ends well, with one table, in which PATTERN occurs.
good() {
  local name=$1 pattern=$2 problem=""
  shift 2
  timeout -k 5 300 "$@" >"$tmp/out" 2>&1 || problem="status $?"
  [ "$(grep -c 'Out of bounds values : 0 OK' "$tmp/out")" = 1 ] || problem="$problem, no table or too many"
  tr '\n' ' ' <"$tmp/out" | grep -Eqe "$pattern" || problem="$problem, no '$pattern'"
  report "$name" "$problem"
}

# bad NAME STATUS PATTERN COMMAND...: ends badly, with STATUS if that is a number, and says PATTERN.
bad() {
  local name=$1 status=$2 pattern=$3 problem="" got=0
  shift 3
  timeout -k 5 300 "$@" >"$tmp/out" 2>&1 || got=$?
  if [ $got = 0 ] || [ $got -ge 124 ] || { [ "$status" != any ] && [ $got != "$status" ]; }; then problem="status $got"; fi
  tr '\n' ' ' <"$tmp/out" | grep -Eqe "$pattern" || problem="$problem, no '$pattern'"
  report "$name" "$problem"
}

# gang N VARIABLES OPTION...: N processes as a launcher without MPI starts them, in the background; VARIABLES I prints those of process I.
# Their output is in out.I, their process numbers in pids.
gang() {
  local n=$1 variables=$2 i
  shift 2
  pids=()
  for ((i = 0; i < n; i++)); do
    # shellcheck disable=SC2046
    timeout -k 5 300 env $($variables "$i" "$n") "$perf" "$@" >"$tmp/out.$i" 2>&1 &
    pids+=($!)
  done
}

# The statuses of the gang.
ends() {
  local pid
  statuses=()
  for pid in "${pids[@]}"; do
    wait "$pid"
    statuses+=($?)
  done
}

# gang_good NAME PATTERN N VARIABLES OPTION...
gang_good() {
  local name=$1 pattern=$2 problem=""
  shift 2
  gang "$@"
  ends
  [[ "${statuses[*]}" =~ ^[0\ ]*$ ]] || problem="statuses ${statuses[*]}"
  [ "$(cat "$tmp"/out.* | grep -c 'Out of bounds values : 0 OK')" = 1 ] || problem="$problem, no table or too many"
  [ ! -e "$tmp/out.1" ] || [ ! -s "$tmp/out.1" ] || problem="$problem, process 1 says something"
  tr '\n' ' ' <"$tmp/out.0" | grep -Eqe "$pattern" || problem="$problem, no '$pattern'"
  report "$name" "$problem"
}

# gang_bad NAME PATTERN N VARIABLES OPTION...: all end badly, and one says PATTERN.
gang_bad() {
  local name=$1 pattern=$2 problem="" status
  shift 2
  gang "$@"
  ends
  for status in "${statuses[@]}"; do
    if [ "$status" = 0 ] || [ "$status" -ge 124 ]; then problem="statuses ${statuses[*]}"; fi
  done
  cat "$tmp"/out.* | grep -Eqe "$pattern" || problem="$problem, no '$pattern'"
  report "$name" "$problem"
}

# A port of this machine that nobody listens at.
new_port() {
  while
    port=$((20000 + (RANDOM * 7 + $$) % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
  do :; done
}

torchrun() { echo "RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"; }
agent() { echo "$(torchrun "$@") TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=run$port"; }
by_name() { echo "RANK=$1 WORLD_SIZE=$2 MASTER_ADDR=localhost MASTER_PORT=$port"; }
slurm() { echo "SLURM_PROCID=$1 SLURM_NTASKS=$2 SLURM_LOCALID=$1 SLURM_STEP_NODELIST=127.0.0.[1-3,7] SLURM_JOB_ID=$port SLURM_STEP_ID=0"; }
pmix() { echo "PMIX_RANK=$1 WORLD_SIZE=$2 PMIX_NAMESPACE=prterun-here-$port@1 PRTE_LAUNCHED=1"; }
two_nodes() { echo "$(torchrun "$@") NCCL_HOSTID=node$(($1 / 2))"; }
same_rank() { echo "RANK=$(($1 > 0)) WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"; }
two_sizes() { echo "RANK=$1 WORLD_SIZE=$((2 + $1)) MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TUTTI_PERF_TIMEOUT=15"; }
two_secrets() { echo "$(torchrun "$@") TUTTI_PERF_SECRET=s$1 TUTTI_PERF_TIMEOUT=15"; }
one_secret() { echo "$(torchrun "$@") TUTTI_PERF_SECRET=s"; }
two_splits() { echo "$(torchrun "$@") NCCL_TESTS_SPLIT=MOD$((2 + 2 * ($1 / 2)))"; } # colours 0 1 2 3
one_wrong_split() { echo "$(torchrun "$@") NCCL_TESTS_SPLIT=MOD$((2 - $1))"; }

devices() { # devices "GROUP DEVICE"...: the device lines in order of rank, as a pattern
  local pattern="" rank=0 pair
  for pair; do
    pattern="$pattern.*Rank +$rank Group +${pair% *} .* device +${pair#* } "
    rank=$((rank + 1))
  done
  echo "$pattern"
}

signal_one() { # signal_one SIGNAL: to rank 1 of the job that is running, by the number in its table
  local victim i
  for ((i = 0; i < 900; i++)); do
    victim=$(sed -n 's/.*Rank  1 .* Pid *\([0-9]*\) on.*/\1/p' "$tmp"/out* 2>/dev/null | head -n 1)
    if [ -n "$victim" ] && grep -qs ' float ' "$tmp"/out*; then break; fi
    sleep 0.1
  done
  [ -z "$victim" ] || kill "-$1" "$victim"
}

without_launcher() {
  good "alone" "$(devices "0 0")" "$perf" "${small[@]}"
  good "alone, WORLD_SIZE=1" "$(devices "0 0")" env RANK=0 WORLD_SIZE=1 "$perf" "${small[@]}"
  good "-P within a job of one" "$(devices "0 0" "0 1")" env RANK=0 WORLD_SIZE=1 "$perf" -P 2 "${small[@]}"
  good "batch script of Slurm" "SLURM_NTASKS=8, but this is no step" env SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=1 "$perf" "${small[@]}"
  good "split in threads" "$(devices "0 0" "1 1" "0 2" "1 3")" env NCCL_TESTS_SPLIT=%2 "$perf" -t 4 "${small[@]}"
  bad "RANK alone" 1 "RANK is set, but WORLD_SIZE is not" env RANK=1 "$perf" "${small[@]}"
  bad "RANK too great" 1 "RANK=4 and WORLD_SIZE=4 contradict" env RANK=4 WORLD_SIZE=4 "$perf" "${small[@]}"
  bad "no address" 1 "process 1 .rank 1.: RANK=1 of WORLD_SIZE=4: set MASTER_ADDR and MASTER_PORT" env RANK=1 WORLD_SIZE=4 "$perf"
  bad "port out of range" 1 "MASTER_PORT='70000': must be" env RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=70000 "$perf"
  bad "nobody comes" 1 "process 0 was not found at port $port of 127.0.0.1 within 1 s .TUTTI_PERF_TIMEOUT." \
    env RANK=1 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" TUTTI_PERF_TIMEOUT=1 "$perf"
  bad "nobody else comes" 1 "1 of 4 processes are at port $port of 127.0.0.1; missing: 1, 2, 3" \
    env RANK=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" TUTTI_PERF_TIMEOUT=1 "$perf"
  bad "wrong time limit" 1 "TUTTI_PERF_TIMEOUT='soon'" \
    env RANK=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" TUTTI_PERF_TIMEOUT=soon "$perf"
  bad "device without a number" 1 "NCCL_TESTS_DEVICE='abc': want the number" env NCCL_TESTS_DEVICE=abc "$perf" "${small[@]}"
  bad "device too great" 1 "NCCL_TESTS_DEVICE='2147483647': want" env NCCL_TESTS_DEVICE=2147483647 "$perf" "${small[@]}"
  bad "Slurm without hosts" 1 "SLURM_STEP_NODELIST: set MASTER_ADDR" env SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 "$perf"
  bad "no such launcher" 1 "there are fork, mpi, env and single" env TUTTI_PERF_LAUNCHER=ssh "$perf"
  bad "-P with a launcher" 1 "-P,--procs 2 cannot be combined with torchrun, which started 4 processes" env RANK=1 WORLD_SIZE=4 "$perf" -P 2
}

by_variables() {
  new_port
  gang_good "torchrun" "$(devices "0 0" "0 1" "0 2" "0 3")" 4 torchrun "${small[@]}"
  new_port
  gang_good "torchrun, 2 threads" "$(devices "0 0" "0 1" "0 2" "0 3" "0 4" "0 5")" 3 torchrun -t 2 "${small[@]}"
  new_port
  gang_good "torchrun, its agent at the port" "$(devices "0 0" "0 1")" 2 agent "${small[@]}"
  new_port
  gang_good "by name" "$(devices "0 0" "0 1")" 2 by_name "${small[@]}"
  new_port
  gang_good "Slurm" "$(devices "0 0" "0 1" "0 2")" 3 slurm "${small[@]}"
  new_port
  gang_good "PMIx" "$(devices "0 0" "0 1" "0 2")" 3 pmix "${small[@]}"
  new_port
  gang_good "with a secret" "$(devices "0 0" "0 1")" 2 one_secret "${small[@]}"
  new_port
  NCCL_TESTS_SPLIT="DIV 2" gang_good "groups within two nodes" "$(devices "0 0" "0 1" "1 0" "1 1")" 4 two_nodes "${small[@]}"
  new_port
  gang_good "groups that each process says" "$(devices "0 0" "1 1" "2 2" "3 3")" 4 two_splits "${small[@]}"
  new_port
  NCCL_TESTS_DEVICE=5 gang_good "devices" "$(devices "0 5" "0 5")" 2 torchrun "${small[@]}"
  new_port
  gang_bad "two with one rank" "two processes have number 1: process 1 .pid .* and pid" 3 same_rank "${small[@]}"
  new_port
  gang_bad "two sizes" "process 1 of 3 .pid .* does not belong to the job of 2 processes" 2 two_sizes "${small[@]}"
  new_port
  gang_bad "two secrets" "it is not process 0 of this job .or has another secret." 2 two_secrets "${small[@]}"
  new_port
  gang_bad "a group that makes no sense" "process 2: NCCL_TESTS_SPLIT='MOD0'" 3 one_wrong_split "${small[@]}"
  new_port
  gang_bad "wrong option" "process 1 .rank 1.: .*--root '-7'" 2 torchrun -r -7
  new_port
  perf=$tmp/with/broadcast_perf gang_bad "root that is not there" "^broadcast_perf: -r,--root 4: there are 2 ranks" 2 torchrun -r 4
}

a_death() {
  local problem=""
  new_port
  gang 3 torchrun -b 8 -e 32K -f 16 -N 0
  signal_one KILL
  ends
  [[ " ${statuses[*]} " =~ \ 0\ |\ 12[4-9] ]] && problem="statuses ${statuses[*]}"
  cat "$tmp"/out.0 "$tmp"/out.2 | grep -Eq "rank 1[ ,].*was killed|process 1 .*is gone" || problem="$problem, rank 1 is not named"
  report "torchrun, a death" "$problem"
}

# mpi KIND COMMAND...: under the mpirun of one MPI.
mpi() {
  local kind=$1 problem pid
  shift
  # Sanitizers would complain of MPI itself.
  local -x ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
  local -x TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0:ignore_noninstrumented_modules=1
  good "$kind: -np 4" "$(devices "0 0" "0 1" "0 2" "0 3")" "$@" -np 4 "$perf" "${small[@]}"
  good "$kind: -np 3 -t 2" "$(devices "0 0" "0 1" "0 2" "0 3" "0 4" "0 5")" "$@" -np 3 "$perf" -t 2 "${small[@]}"
  good "$kind: -np 2 -g 2" "$(devices "0 0" "0 1" "0 2" "0 3")" "$@" -np 2 "$perf" -g 2 -I 1 -J "$tmp/json" "${small[@]}"
  good "$kind: -np 1" "$(devices "0 0")" "$@" -np 1 "$perf" "${small[@]}"
  NCCL_TESTS_SPLIT_MASK=0xffffffff0001 good "$kind: mask" "$(devices "0 0" "1 1" "0 2" "1 3")" "$@" -np 4 "$perf" "${small[@]}"
  NCCL_TESTS_SPLIT="OR 0b1" good "$kind: OR" "$(devices "1 0" "1 1" "3 2" "3 3")" "$@" -np 4 "$perf" "${small[@]}"
  NCCL_TESTS_DEVICE=7 good "$kind: device" "$(devices "0 7" "0 8" "0 7" "0 8")" "$@" -np 2 "$perf" -t 2 "${small[@]}"
  good "$kind: variables alone" "$(devices "0 0" "0 1" "0 2")" env TUTTI_PERF_LAUNCHER=env "$@" -np 3 "$perf" "${small[@]}"
  local two said="no .* support " # on the error output, which launchers forward by itself: before or after the lines of the other one
  two=$(devices "0 0" "0 1")
  good "$kind: its shared object is missing" "$said.*$two|$two.*$said" "$@" -np 2 "$tmp/without/bin/$program" "${small[@]}"
  bad "$kind: -P" any "-P,--procs 2 cannot be combined with" "$@" -np 2 "$perf" -P 2 "${small[@]}"
  bad "$kind: wrong option" any "process 1 .rank 1.: .*--root '-7'" "$@" -np 2 "$perf" -r -7
  bad "$kind: not possible here" 5 "device implementations are not supported" "$@" -np 2 "$perf" -D 1 -R 2
  timeout -k 5 300 "$@" -np 2 "$perf" -T 1 -N 0 "${small[@]}" >"$tmp/out" 2>&1 &
  pid=$!
  signal_one STOP
  wait $pid
  problem="status $?"
  problem=${problem#status 4}
  grep -q "Test timeout (1s)" "$tmp/out" || problem="$problem, no time limit"
  report "$kind: time limit" "$problem"
  for row in mpi env; do
    TUTTI_PERF_LAUNCHER=$row timeout -k 5 300 "$@" -np 3 "$perf" -b 8 -e 32K -f 16 -N 0 >"$tmp/out" 2>&1 &
    pid=$!
    signal_one KILL
    wait $pid && problem="status 0" || problem=
    grep -Eiq "rank 1[ ,].*was killed|process 1 .*is gone|signal 9|killed" "$tmp/out" || problem="$problem, rank 1 is not named"
    report "$kind: a death ($row)" "$problem"
  done
}

new_port
without_launcher
by_variables
a_death
if [ -e "$build/lib/perf_mpi_openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then mpi openmpi mpirun.openmpi --oversubscribe; fi
if [ -e "$build/lib/perf_mpi_mpich.so" ] && command -v mpirun.mpich >/dev/null; then mpi mpich mpirun.mpich; fi
echo "perf_launch: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
