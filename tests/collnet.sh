#!/usr/bin/env bash
# collnet.sh BUILD: networks that reduce (tests/plugins/collnet*.c), on fake nodes of one machine: every type and operation, 2 to 4 nodes, with every value
# checked; plugins of every version; what falls back, and errors, which are named and leave nobody waiting.
# shellcheck disable=SC2034,SC2154 # variables of the sourced files
set -u
build=$(cd "${1:?usage: collnet.sh BUILD}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/job.sh"
. "$here/ranks.sh"

programs=$(mktemp -d)
trap 'job_close; rm -rf "$programs"' EXIT
trap 'exit 130' INT TERM
job_build_member "$build" "$programs/member" || { echo "member.c does not compile"; exit 1; }

slower=$(job_slower "$build")
passed=0 failed=0

# count STATUS TEXT
count() {
  if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2 ${ranks_env[*]}"; fi
}

# with VERSION NAME=VALUE…: the plugin of this version, and other variables, for what follows.
with() {
  ranks_env=("NCCL_NET_PLUGIN=$build/tests/plugins/libcollnet_$1.so" NCCL_COLLNET_ENABLE=1 NCCL_DEBUG=INFO
    "NCCL_DEBUG_SUBSYS=INIT,NET,COLL" NCCL_NET_TIMEOUT=$((20 * slower)) "${@:2}")
}

# says TEXT…: each is in some process's output, and no plugin found a fault with how it was used.
says() {
  local text
  for text in "$@"; do
    grep -qF -- "$text" "$job_dir"/process*.out || { echo "  the output lacks: $text"; return 1; }
  done
  ! grep -E 'LEAK|the caller is wrong|AddressSanitizer|runtime error|ThreadSanitizer' "$job_dir"/process*.out
}

# reductions: how many the plugin has made; 0 where it does not say so.
reductions() {
  sed -n 's/.*collective test plugin: \([0-9]*\) reductions.*/\1/p' "$job_dir"/process*.out | sort -n | tail -1
}

# nodes NODES PROCESSES RANKS TEXT USED PROGRAM OPTION…: RANKS per process; the output says TEXT; USED: does the network reduce (yes, no, any)?
nodes() {
  local places=$1 each=$2 text=$4 used=$5 program=$6 res=0 made
  ranks_threads=$3
  shift 6
  job_open || return
  ranks_start "$places" "$each" none "$build/bin/${program}_perf" "$@"
  job_wait $((120 * slower)) 15 && ranks_judge $((places * each * ranks_threads)) && says "$text" || res=1
  made=$(reductions)
  case $used in
  yes) [ "${made:-0}" -gt 0 ] || { echo "  the network has reduced nothing"; res=1; } ;;
  no) [ "${made:-0}" = 0 ] || { echo "  the network has reduced $made times"; res=1; } ;;
  esac
  [ $res = 0 ] || job_tell
  job_close
  count $res "$program on $places nodes of $each processes: $*"
}

# refused TEXT… -- NODES PROCESSES PROGRAM OPTION…: ends by itself, with an error, and says all texts.
refused() {
  local texts=() res=0 places each program
  while [ "$1" != -- ]; do
    texts+=("$1")
    shift
  done
  places=$2 each=$3 program=$4
  shift 4
  job_open || return
  ranks_start "$places" "$each" none "$build/bin/${program}_perf" "$@"
  if job_wait $((60 * slower)) $((30 * slower)); then
    echo "  it ended well"
    res=1
  fi
  case " ${job_status[*]} " in *hung*) echo "  it hung"; res=1 ;; esac
  says "${texts[@]}" || res=1
  [ $res = 0 ] || job_tell
  job_close
  count $res "'${texts[0]}' for $program $*"
}

# ends SIGNAL RANK KIND TEXT: in the middle of all-reduces on 3 nodes of 2 processes the rank gets the signal. All others end by themselves, with an error of
# the library's; one of them says the text.
ends() {
  local signal=$1 victim=$2 res=0 rank
  job_open || return
  for rank in 0 1 2 3 4 5; do
    job_add "process$rank" here_exec env "NCCL_HOSTID=node$((rank / 2))" NCCL_SOCKET_IFNAME=lo "${ranks_env[@]}" "RANK=$rank" WORLD_SIZE=6 \
      "MEMBER_DIR=$job_dir" "$programs/member" -k "$3" -t $((60 * slower)) -s 1000 -p 10 -c 65536
  done
  if job_await $((60 * slower)) running.0 running.1 running.2 running.3 running.4 running.5; then
    kill -"$signal" "$(job_pid "process$victim")"
    [ "$signal" != STOP ] || job_last "process$victim" KILL $((90 * slower)) # when the others have ended: it would not
    job_wait $((90 * slower)) $((30 * slower))
    for rank in 0 1 2 3 4 5; do
      [ "$rank" = "$victim" ] || [ "${job_status[rank]}" = 3 ] || { echo "  rank $rank: status ${job_status[rank]}, not 3"; res=1; }
    done
    grep -qE "$4" "$job_dir"/process*.out || { echo "  nobody says $4"; res=1; }
  else
    echo "  they did not get going"
    res=1
  fi
  [ $res = 0 ] || job_tell
  job_close
  count $res "SIG$signal for rank $victim"
}

uses="COLLNET: network TestColl reduces between"
all="-d all -o all -b 4 -e 2052 -f 512 -n 1 -w 0 -c 1"
sizes="-b 0 -e 4M -f 512 -n 2 -w 1 -c 1"               # 0, 16, 8192, 4 MiB
odd="-b 7919 -e 1005713 -f 127 -d int8 -n 1 -w 0 -c 1" # elements: two numbers without small factors

# Every type and operation over both algorithms; then sizes: none, one element, a prime, 4 MiB.
# shellcheck disable=SC2086
for algo in CollNetChain CollNetDirect; do
  with v12 "NCCL_ALGO=allreduce:$algo"
  nodes 2 1 1 "$uses 2 nodes, 1 heads" yes all_reduce $all
  nodes 2 2 1 "$uses 2 nodes, 2 heads" yes all_reduce $all
  nodes 3 1 2 "$uses 3 nodes, 2 heads" yes all_reduce -t 2 $sizes
  nodes 4 1 3 "$uses 4 nodes, 2 heads" yes all_reduce -t 3 $odd
  nodes 2 3 1 "$uses 2 nodes, 2 heads" yes all_reduce $sizes
  with v6 "NCCL_ALGO=allreduce:$algo"
  nodes 4 1 1 "$uses 4 nodes, 1 heads" any all_reduce $sizes
  nodes 3 3 1 "$uses 3 nodes, 2 heads" any all_reduce $odd
done
for version in v7 v8 v9 v10 v11; do
  with $version NCCL_ALGO=allreduce:CollNetChain
  nodes 2 2 1 "$uses 2 nodes, 2 heads" any all_reduce -b 8 -e 1M -f 64 -n 2 -w 1 -c 1
done
# The model's own choice, whatever it is; other collectives beside it.
with v12
nodes 2 2 1 "$uses 2 nodes, 2 heads" any all_reduce -b 8 -e 4M -f 32 -n 2 -w 1 -c 1
nodes 2 2 1 "$uses 2 nodes, 2 heads" no all_gather -b 64 -e 1M -f 64 -n 2 -w 1 -c 1

# The example for authors, built as they build it: three members, 4 ranks each in two processes.
mkdir "$programs/installed"
cp -r "$here/../../include" "$programs/installed"
if env -u MAKEFLAGS make -s -C "$here/../../examples/plugins" NCCL_HOME="$programs/installed" OUT="$programs" CC="$(command -v "${CC:-cc}" || echo gcc)" CFLAGS="-O2 -Wall -Wextra -Werror"; then
  with v12 "NCCL_NET_PLUGIN=$programs/libnccl-collnet-example.so" NCCL_NET=Example NCCL_ALGO=allreduce:CollNetChain
  nodes 3 2 2 "COLLNET: network Example reduces between 3 nodes, 1 heads" any all_reduce -t 2 $sizes
  with v12 "NCCL_NET_PLUGIN=$programs/libnccl-collnet-example.so" NCCL_NET=Example NCCL_ALGO=allreduce:CollNetChain,Ring
  nodes 2 1 1 "does not reduce type ncclFloat32 by product: other algorithms do" any all_reduce -o prod -b 8 -e 64K -f 64 -n 1
else
  count 1 "examples/plugins cannot be built"
fi

# A network that is unwilling, and one that wants flushes.
with v12 NCCL_ALGO=allreduce:CollNetChain TEST_COLL_REFUSE=3 TEST_NET_FLUSH=1
nodes 3 2 1 "$uses 3 nodes" yes all_reduce -b 8 -e 1M -f 64 -n 3 -w 1 -c 1

# What falls back: nobody asks for it, one node, too few nodes, no such table, a combination that is not supported, a device that fails, a group that does not come up.
with v12 NCCL_COLLNET_ENABLE=0
nodes 2 1 1 "Using network TestTcp" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12
nodes 1 2 1 "COLLNET: not used: 1 nodes, of which NCCL_COLLNET_NODE_THRESHOLD wants 2" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 NCCL_COLLNET_NODE_THRESHOLD=3
nodes 2 1 1 "COLLNET: not used: 2 nodes, of which NCCL_COLLNET_NODE_THRESHOLD wants 3" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 "NCCL_NET_PLUGIN=$build/tests/plugins/libnet_v12.so"
nodes 2 1 1 "has no collective network (ncclCollNetPlugin_v6 to _v12)" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 NCCL_NET_PLUGIN=none
nodes 2 1 1 "COLLNET: network Socket cannot reduce" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 NCCL_ALGO=allreduce:CollNetChain,Ring TEST_COLL_ONLY=7:0
nodes 2 2 1 "does not reduce type ncclFloat32 by product: other algorithms do" no all_reduce -o prod -b 8 -e 64K -f 64 -n 1
nodes 2 2 1 "1 of 48 combinations" yes all_reduce -o avg -b 8 -e 64K -f 64 -n 1
with v12 TEST_COLL_FAIL=init:1:2
nodes 2 1 1 "COLLNET: not used, other algorithms are: it is out of the question on rank 0" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 TEST_COLL_FAIL=listen:1:2
nodes 2 1 1 "COLLNET: not used, other algorithms are: it cannot listen on rank 0" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 TEST_COLL_FAIL=regMr:2:3:1
nodes 3 1 1 "COLLNET: not used, other algorithms are: it cannot connect on rank 1" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 TEST_COLL_FAIL=connect:1:2:1 NCCL_NET_TIMEOUT=2
nodes 2 2 1 "COLLNET: not used, other algorithms are: it cannot connect on rank" no all_reduce -b 8 -e 64K -f 64 -n 1
with v12 TEST_COLL_STALL=1 NCCL_NET_TIMEOUT=2
nodes 2 1 1 "has not connected 2 ranks in 2.0 s" no all_reduce -b 8 -e 64K -f 64 -n 1

# Errors: named on the rank that has them, and nobody waits for ever.
for function in iallreduce test; do
  with v12 NCCL_ALGO=allreduce:CollNetChain "TEST_COLL_FAIL=$function:20:2:1"
  refused "collective network plugin TestColl (" "version 12): $function failed with code 2" -- 3 2 all_reduce -b 8 -e 1M -f 8 -n 5 -w 1 -c 1
done
# A head that dies, one that is no head, and one that is stopped: what the others learn from the plugin or from each other.
with v12 NCCL_ALGO=allreduce:CollNetChain
ends KILL 2 small 'FAILED at .*(rank [0-9] waits for rank 2|collective network plugin TestColl .* failed with code 6)'
ends KILL 3 large 'FAILED at .*rank 2(:| waits for) rank 3 \(pid [0-9]+, host [^ ]+\)(, which)? was killed'
with v12 NCCL_ALGO=allreduce:CollNetDirect NCCL_NET_TIMEOUT=$((2 + 2 * slower)) # a limit of time that decides, and that nobody else may reach
ends STOP 4 large 'FAILED at .*rank [0-9] waits for rank 4 .*whose process has not answered for'
with v12 NCCL_ALGO=allreduce:CollNetChain NCCL_COLLNET_ENABLE=0
refused "and the network does not reduce this" -- 2 1 all_reduce -b 8 -e 8

echo "collnet: $passed passed, $failed failed"
[ "$failed" = 0 ]
