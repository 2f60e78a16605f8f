#!/usr/bin/env bash
# net_plugins.sh BUILD: network plugins (tests/plugins/). Every perf program, every value checked, over one of version 6 and one of version 12, with
# everything on the network; over a faulty one; errors, wrong names and plugins that cannot be used: named, and nobody waits for ever.
# shellcheck disable=SC2034,SC2154 # variables of the sourced files
set -u
build=$(cd "${1:?usage: net_plugins.sh BUILD}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/job.sh"
. "$here/ranks.sh"

plugins_dir=$(mktemp -u "${TMPDIR:-/tmp}/tutti_net_plugins.XXXXXX")
finish() {
  job_close
  rm -rf "$plugins_dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

slower=$(job_slower "$build")
passed=0 failed=0
variables=()

# count STATUS TEXT
count() {
  if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2 ${variables[*]}"; fi
}

plugin() { echo "$build/tests/plugins/libnet_$1.so"; }

# start PROGRAM OPTION…: a job of its own processes, with everything on the network.
start() {
  local program=$1
  shift
  job_add process0 here_exec env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET \
    "${variables[@]}" "$build/bin/${program}_perf" "$@"
}

# says TEXT…: all of them are in the output, what $unsaid has is not, and no plugin found a fault with how it was used.
unsaid=
says() {
  local text
  for text in "$@"; do
    grep -qF -- "$text" "$job_dir/process0.out" || { echo "  the output lacks: $text"; return 1; }
  done
  if [ -n "$unsaid" ] && grep -F -- "$unsaid" "$job_dir/process0.out"; then
    return 1
  fi
  ! grep -E 'LEAK|the caller is wrong|AddressSanitizer|runtime error|ThreadSanitizer' "$job_dir/process0.out"
}

# works RANKS TEXT PROGRAM OPTION…: all values are right, and the output says TEXT.
works() {
  local ranks=$1 text=$2 res=0
  shift 2
  job_open || return
  start "$@"
  { job_wait $((120 * slower)) && ranks_judge "$ranks" && says "$text"; } || res=1
  [ $res = 0 ] || job_tell
  job_close
  count $res "$*"
}

# refused TEXT… -- PROGRAM OPTION…: ends by itself, with an error, and says all texts.
refused() {
  local texts=() res=0
  while [ "$1" != -- ]; do
    texts+=("$1")
    shift
  done
  shift
  job_open || return
  start "$@"
  if job_wait $((60 * slower)) 15; then
    echo "  it ended well"
    res=1
  fi
  case " ${job_status[*]} " in *hung*) echo "  it hung"; res=1 ;; esac
  says "${texts[@]}" || res=1
  [ $res = 0 ] || job_tell
  job_close
  count $res "'${texts[0]}' for $*"
}

size="-d all -b 4 -e 66564 -f 258 -n 1 -w 0 -c 1"
programs="all_reduce reduce_scatter all_gather broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
[ "$slower" = 1 ] || programs="all_reduce broadcast alltoall sendrecv"

# Every collective; hypercube wants a power of two.
for version in v6 v12; do
  variables=("NCCL_NET_PLUGIN=$(plugin $version)" NCCL_NET_MERGE_LEVEL=LOC)
  for program in $programs; do
    ranks=3
    [ "$program" != hypercube ] || ranks=4
    # shellcheck disable=SC2086
    works $ranks "Using network TestTcp" "$program" -P $ranks $size
  done
  works 4 "via NET/TestTcp" all_reduce -P 2 -t 2 -b 8 -e 2M -f 64 -n 2 -w 1 -c 1
done

# Large messages: header and payload are one receive where the plugin takes several buffers, but not an operation's first.
for version in v6 v10 v12; do
  variables=("NCCL_NET_PLUGIN=$(plugin $version)")
  for program in all_reduce alltoall sendrecv; do
    works 3 "tcp test plugin: a receive of 2 buffers" "$program" -P 3 -b 1M -e 4M -f 4 -n 2 -w 1 -c 1
  done
  variables+=(TEST_NET_SINGLE=1)
  unsaid="tcp test plugin: a receive of"
  works 3 "Using network TestTcp" all_reduce -P 3 -b 1M -e 4M -f 4 -n 2 -w 1 -c 1
  unsaid=
done

# Devices that become one: traffic flows over what is made, and a dumped topology has it.
dump=$(mktemp)
for version in v9 v11 v12; do
  variables=("NCCL_NET_PLUGIN=$(plugin $version)" "NCCL_TOPO_DUMP_FILE=$dump")
  works 3 "tcp0 tcp1 count as one device, tcp0+tcp1 (50000 Mbit/s)" all_reduce -P 3 -b 8 -e 1M -f 32 -n 1 -w 1 -c 1
  works 4 "tcp test plugin: listens on tcp0+tcp1" alltoall -P 2 -t 2 -b 8 -e 1M -f 32 -n 1 -w 1 -c 1
  grep -q 'name="tcp0+tcp1".*speed="50000".*parts="tcp0,tcp1"' "$dump" && ! grep -q 'name="tcp0"' "$dump"
  count $? "the dumped topology of $version"
  "$build/bin/tutti-topo" show "$dump" >"$dump.text" && grep -q "tcp0+tcp1  50 Gbit/s  made of tcp0,tcp1" "$dump.text"
  count $? "the explorer's view of it"
done
variables+=("NCCL_NET_FORCE_MERGE=tcp0,eth9")
refused "NCCL_NET_FORCE_MERGE: tcp0,eth9 names 2 devices, of which network plugin TestTcp has 1" -- all_reduce -P 2 -b 8 -e 8
rm -f "$dump" "$dump.text"

# What a slow or clumsy plugin does changes no value.
for fault in TEST_NET_SLOW=1 TEST_NET_PIECE=1000 TEST_NET_REFUSE=20 TEST_NET_FLUSH=1 TEST_NET_MUM=1; do
  variables=("NCCL_NET_PLUGIN=$(plugin faulty)" "$fault")
  works 3 "Using network TestFaulty" all_reduce -P 3 -b 8 -e 256K -f 32 -n 1 -w 1 -c 1
  works 3 "Using network TestFaulty" alltoall -P 3 -b 8 -e 256K -f 32 -n 1 -w 1 -c 1
  works 2 "tcp test plugin: a receive of 2 buffers" all_reduce -P 2 -b 2M -e 2M -n 1 -w 1 -c 1
done

# An accept that waits for the peer: no two ranks wait there for each other.
variables=("NCCL_NET_PLUGIN=$(plugin faulty)" TEST_NET_BLOCK=1)
works 4 "Using network TestFaulty" alltoall -P 4 -b 8 -e 1K -f 16 -n 1 -w 1 -c 1

# Errors: named on the rank that has them, and no rank waits for ever.
for fault in isend irecv test; do
  variables=("NCCL_NET_PLUGIN=$(plugin faulty)" "TEST_NET_FAIL=$fault:30:2")
  refused "network plugin TestFaulty (" "version 12): $fault failed with code 2" -- all_reduce -P 3 -b 8 -e 64K -f 8 -n 5 -w 1 -c 1
done
for fault in listen connect accept regMr; do
  variables=("NCCL_NET_PLUGIN=$(plugin faulty)" "TEST_NET_FAIL=$fault:1:3")
  refused "version 12): $fault failed with code 3" -- all_reduce -P 2 -b 8 -e 64K -f 8 -n 2 -w 1 -c 1
done
variables=("NCCL_NET_PLUGIN=$(plugin faulty)" TEST_NET_LIE=1)
refused "test reports" -- all_reduce -P 2 -b 8 -e 64K -f 8 -n 2 -w 1 -c 1

# The first of a list that works; the name it must have; none.
text=$(mktemp)
echo "a letter, not a library" >"$text"
variables=("NCCL_NET_PLUGIN=$text, $(plugin hollow), nobody,$(plugin bad),$(plugin v7)" TEST_NET_BAD=none)
works 2 "Using network TestTcp" all_reduce -P 2 -b 8 -e 8
variables+=(NCCL_NET=socket)
works 2 "Using network Socket" all_reduce -P 2 -b 8 -e 8
variables=("NCCL_NET_PLUGIN=$(plugin bad)" TEST_NET_BAD=init)
works 2 "TestBad ($(plugin bad)) is not used: init fails with code 2" all_reduce -P 2 -b 8 -e 8
variables=(NCCL_NET_PLUGIN=none)
works 2 "NET/Plugin: none, as NCCL_NET_PLUGIN says" all_reduce -P 2 -b 8 -e 8
variables=("NCCL_NET_PLUGIN=$(plugin v11)" NCCL_NET=TESTtcp)
works 2 "Using network TestTcp" all_reduce -P 2 -b 8 -e 8
variables=("NCCL_NET_PLUGIN=$(plugin v11)" NCCL_NET=Other)
refused "no network is called Other" "there are: TestTcp, Socket" -- all_reduce -P 2 -b 8 -e 8
rm -f "$text"

# An empty text is no plugin, too; without the variable it would have been installed.
mkdir "$plugins_dir"
cp "$(plugin v12)" "$plugins_dir/libnccl-net.so"
variables=("LD_LIBRARY_PATH=$plugins_dir")
works 2 "Using network TestTcp" all_reduce -P 2 -b 8 -e 8
variables+=(NCCL_NET_PLUGIN=)
unsaid=NET/Plugin
works 2 "Using network Socket" all_reduce -P 2 -b 8 -e 8
unsaid=

# Tuners and profilers in network plugins' libraries are found whether or not anybody needs the network; then it is not initialised.
mixed=$build/tests/plugins/libmixed.so
subsystems=NCCL_DEBUG_SUBSYS=INIT,NET,TUNING,PROFILE
cp "$mixed" "$plugins_dir/libnccl-net.so"
# finds NAME=VALUE…: both kinds, among ranks on one machine, and among others.
finds() {
  variables=("$subsystems" NCCL_P2P_DISABLE=0 NCCL_SHM_DISABLE=0 "$@")
  unsaid="tcp test plugin: init"
  works 2 "TUNER/Plugin: loaded from the network plugin" all_reduce -P 2 -b 8 -e 1K -f 8
  works 2 "PROFILER/Plugin: loaded from the network plugin" all_reduce -P 1 -t 2 -b 8 -e 8
  works 2 "mixed test plugin: its tuner begins" all_reduce -P 2 -b 8 -e 8
  works 2 "mixed test plugin: its profiler begins" all_reduce -P 2 -b 8 -e 8
  unsaid=
  variables=("$subsystems" "$@")
  works 2 "PROFILER/Plugin: loaded from the network plugin" all_reduce -P 2 -b 8 -e 8
  works 2 "mixed test plugin: its tuner begins" all_reduce -P 2 -b 8 -e 8
}
finds "NCCL_NET_PLUGIN=nobody,$(plugin hollow),$mixed"
finds "LD_LIBRARY_PATH=$plugins_dir"

# Ranks that chose differently.
# differs LABEL RANK NAME=VALUE…
differs() {
  local rank=$1
  shift
  job_add "process$rank" here_exec env "RANK=$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 "MASTER_PORT=$ranks_port" \
    "NCCL_HOSTID=node$rank" NCCL_SOCKET_IFNAME=lo "$@" "$build/bin/all_reduce_perf" -b 8 -e 8
}
variables=()
ranks_next_port
job_open || exit 1
differs 0 "NCCL_NET_PLUGIN=$(plugin v12)"
differs 1 NCCL_NET_PLUGIN=none
res=0
if job_wait $((60 * slower)) $((15 * slower)); then res=1; fi
case " ${job_status[*]} " in *hung*) res=1 ;; esac
cat "$job_dir"/process?.out >"$job_dir/both"
grep -qF "rank 0 uses network TestTcp, rank 1 uses Socket: all ranks must use the same" "$job_dir/both" || res=1
[ $res = 0 ] || job_tell
job_close
count $res "two networks in one job"

echo "net_plugins: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
