#!/usr/bin/env bash
# perf_cuda.sh BUILD: the perf programs with ranks on GPUs, on the driver for tests: every program, several ranks on one GPU, threads, processes, options.
# A library that spoils an element is found out.
set -u
build=$(cd "${1:?usage: perf_cuda.sh BUILD}" && pwd) || exit 1
export TUTTI_CUDA_DRIVER=$build/lib/cudasim/libcuda.so.1
[ -x "$build/bin/all_reduce_perf" ] || { echo "skipped: all_reduce_perf is not built"; exit 77; }
[ -e "$build/cuda/step.ptx" ] || { echo "skipped: this build has no CUDA device"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT "${!SLURM_@}" "${!PMI_@}" "${!PMIX_@}" "${!OMPI_@}" "${!TUTTI_PERF_@}" "${!NCCL_@}"
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
passed=0 failed=0
small=(-b 8 -e 4K -f 8 -n 2 -w 1)
one=(-b 1K -e 1K -n 2 -w 0)

# gpus N: the driver for tests has so many from now on, the same for all processes of a test.
gpus() { export CUDASIM=devices=$1,deadlock=60000,box=perf-cuda-$$; }

# Sanitizers make all of this up to twenty times slower: there one case of five is run.
every=1 cases=0 limit=120
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || every=8 limit=900
chosen() { [ $((cases++ % every)) = 0 ]; }

report() { # report NAME PROBLEM: an empty problem is a success
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    tail -n 30 "$tmp"/out*
  fi
  rm -f "$tmp"/out*
}

# good NAME PATTERN COMMAND...: ends well, with one table without a wrong value, in which PATTERN occurs.
good() {
  local name=$1 pattern=$2 problem=""
  shift 2
  chosen || return 0
  timeout -k 5 "$limit" "$@" >"$tmp/out" 2>&1 || problem="status $?"
  [ "$(grep -c 'Out of bounds values : 0 OK' "$tmp/out")" = 1 ] || problem="$problem, no table or too many"
  tr '\n' ' ' <"$tmp/out" | grep -Eqe "$pattern" || problem="$problem, no '$pattern'"
  report "$name" "$problem"
}

# bad NAME STATUS PATTERN COMMAND...: ends with STATUS (a pattern of the shell), and says PATTERN.
bad() {
  local name=$1 status=$2 pattern=$3 problem="" got=0
  shift 3
  chosen || return 0
  timeout -k 5 "$limit" "$@" >"$tmp/out" 2>&1 || got=$?
  # shellcheck disable=SC2053 # a pattern
  [[ "$got" == $status ]] || problem="status $got"
  tr '\n' ' ' <"$tmp/out" | grep -Eqe "$pattern" || problem="$problem, no '$pattern'"
  report "$name" "$problem"
}

perf=$build/bin/all_reduce_perf
first='device  0 \[0000:01:00\] Simulated GPU'
second='Rank  1 .*device  1 \[0000:02:00\] Simulated GPU'

gpus 2
good "one rank" "Using devices +#  Rank  0 [^#]*$first" "$perf" "${small[@]}"
good "two GPUs" "$first.*$second" "$perf" -g 2 "${small[@]}"
good "three ranks on two GPUs" "$second.*Rank  2 [^#]*$first" "$perf" -g 3 "${small[@]}"
good "threads" "$second" "$perf" -t 2 "${small[@]}"
good "threads with two ranks each, set up by themselves" "Rank  3 .*device  1" "$perf" -t 2 -g 2 -p 1 "${one[@]}"
good "processes" "$second" "$perf" -P 2 "${small[@]}"
NCCL_TESTS_DEVICE=1 good "a device by name" "Rank  0 [^#]*device  1 .*Rank  1 [^#]*device  0" "$perf" -g 2 "${one[@]}"
NCCL_TESTS_DEVICE=2 bad "a device that is not there" 5 "3 requested but only 2" "$perf" "${one[@]}"
NCCL_HOST_DEVICES=4 good "host memory by NCCL_HOST_DEVICES" "host memory" "$perf" -g 2 "${one[@]}"

gpus 1
good "three ranks in one group on one GPU" "Rank  2 [^#]*$first" "$perf" -g 3 "${one[@]}"
good "threads on one GPU" "Rank  3 [^#]*$first" "$perf" -t 4 "${one[@]}"
good "processes with two ranks each on one GPU" "Rank  3 [^#]*$first" "$perf" -P 2 -g 2 "${one[@]}"
good "graphs of processes on one GPU" "Rank  2 [^#]*$first" "$perf" -P 3 -G 2 "${one[@]}"
good "the NULL stream, in a group" "Rank  1 [^#]*$first" "$perf" -g 2 -y 1 "${one[@]}"
bad "the NULL stream of several threads" 5 "ranks 0 and 1 would wait for each other" "$perf" -t 2 -y 1 "${one[@]}"

gpus 2
for program in all_reduce reduce_scatter all_gather broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube \
  all_gather_v reduce_scatter_v gather_v scatter_v alltoall_v; do
  good "$program" "$second" "$build/bin/${program}_perf" -g 4 -b 64 -e 4K -f 64 -n 2 -w 1
done
good "all types and operations" "$second" "$perf" -g 2 -d all -o all -b 256 -e 256 -n 1 -w 0
good "operations of this library" "$second" "$perf" -g 2 -d int32 -o bitxor "${one[@]}"
good "every root" "$second" "$build/bin/reduce_perf" -g 3 -r all "${one[@]}"
for options in "-N 2" "-z 1" "-z 2" "-z 3 -I 1" "-I 1" "-m 3" "-u 1" "-x 1" "-V 8" "-R 1" "-R 2" "-a 3 -C 1 -S 1" "-U 1" "-c 3" "-c 0" "-T 60"; do
  # shellcheck disable=SC2086 # several words
  good "$options" "$second" "$perf" -g 2 "${one[@]}" $options
done
bytes=3M used='6\.[01][0-9] MB' # both buffers, and their guards
[ $every = 1 ] || bytes=256K used='(51[2-9]|5[2-9][0-9]|6[0-9][0-9]) KB'
good "memory of the fullest GPU" "Initialization [^|]*\\| User-Allocated $used" "$perf" -g 2 -b $bytes -e $bytes -n 1 -w 0 -c 0 -M 1
good "windows of processes" "$second" "$perf" -P 2 -R 2 "${one[@]}"
good "graphs" "$second" "$perf" -g 2 -G 2 "${one[@]}"
good "graphs of processes" "$second" "$perf" -P 2 -G 3 "${small[@]}"
good "graphs of processes with two ranks each" "Rank  3 .*device  1" "$perf" -P 2 -g 2 -G 2 "${one[@]}"
CUDASIM=memory=64,$CUDASIM good "memory of the GPU is the limit" "Reducing maxBytes to [12][0-9]{7} due" "$perf" -g 2 -b 1K -e 1G -i 1G -n 1 -w 0 -c 0
CUDASIM=devices=0 good "a driver without a GPU" "host memory" "$perf" -g 2 "${one[@]}"
# Of some calls the library needs no success. Nobody waits for ever, and nothing is wrong.
for call in 50 150 200 300 400; do
  CUDASIM=fail=$call:999,$CUDASIM bad "a driver whose call $call fails" "[023]" 'Test (CUDA|NCCL) failure| 0 OK' "$perf" -g 2 "${one[@]}"
done

good "one process by variables" "$first" env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555 "$perf" "${one[@]}"
# Sanitizers would complain of MPI itself.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0:ignore_noninstrumented_modules=1
for kind in openmpi mpich; do
  if [ ! -e "$build/lib/perf_mpi_$kind.so" ] || ! command -v mpirun.$kind >/dev/null; then continue; fi
  more=()
  [ $kind = mpich ] || more=(--oversubscribe)
  good "mpirun of $kind" "$second" mpirun.$kind "${more[@]}" -np 2 "$perf" "${one[@]}"
  good "graphs, mpirun of $kind" "$second" mpirun.$kind "${more[@]}" -np 2 "$build/bin/sendrecv_perf" -G 2 "${one[@]}"
done

if grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt"; then # else the sanitizer's library must come first
  "${CC:-cc}" -shared -fPIC -Iinclude -o "$tmp/spoil.so" tests/nccl_tests/spoil.c || failed=$((failed + 1))
  bad "a library that spoils an element" 7 "want.*Out of bounds values : [1-9][0-9]* FAILED" env LD_PRELOAD="$tmp/spoil.so" "$perf" -g 2 "${small[@]}"
  # Of every type, and it is the same that is found in memory of the host.
  spoiled() { LD_PRELOAD="$tmp/spoil.so" timeout -k 5 120 "$@" -b 264 -e 264 -n 1 -w 0 2>&1 | grep '^# rank' | sort; }
  for type in int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2; do
    spoiled "$perf" -g 3 -d $type >"$tmp/out"
    NCCL_HOST_DEVICES=3 spoiled "$perf" -g 3 -d $type >"$tmp/out-host"
    problem=""
    [ "$(grep -c " 1 wrong ($type sum" "$tmp/out")" = 6 ] || problem="not found on all ranks, in place and not"
    diff "$tmp/out" "$tmp/out-host" >"$tmp/out-diff" || problem="$problem, other elements than on the host"
    report "a spoiled element of $type" "$problem"
  done
fi
echo "perf_cuda: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
