#!/usr/bin/env bash
# net_nodes.sh BUILD [full]: the network on one machine, no root needed. Fake nodes told apart by NCCL_HOSTID, and ranks of one machine that
# may use neither each other's memory nor shared memory: every perf program, every value checked; then the settings of the network.
# shellcheck disable=SC2034 # variables of the sourced files
set -u
build=$(cd "${1:?usage: net_nodes.sh BUILD [full]}" && pwd)
level=${2:-quick}
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/job.sh"
. "$here/ranks.sh"

trap job_close EXIT
trap 'exit 130' INT TERM

programs="all_reduce reduce_scatter all_gather broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
slower=$(job_slower "$build")
passed=0 failed=0
size="-d all -b 4 -e 66564 -f 258 -n 1 -w 0 -c 1"
[ "$level" != full ] || size="-d all -o all -b 4 -e 266244 -f 258 -n 1 -w 0 -c 1"

# count STATUS TEXT
count() {
  if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2 ${ranks_env[*]}"; fi
}

# nodes NODES PROCESSES RANKS PROGRAM OPTION…: RANKS per process, as the options say.
nodes() {
  local places=$1 each=$2 program=$4
  ranks_threads=$3
  shift 4
  ranks_run $((120 * slower)) "$places" "$each" none "$build/bin/${program}_perf" "$@"
  count $? "${program}_perf $* on $places fake nodes with $each processes"
}

# alone RANKS PROGRAM OPTION…: started once; it makes its processes and threads itself.
alone() {
  local ranks=$1 program=$2
  shift 2
  job_open || return
  job_add process0 here_exec env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo "${ranks_env[@]}" "$build/bin/${program}_perf" "$@"
  job_wait $((120 * slower)) && ranks_judge "$ranks"
  local res=$?
  [ $res = 0 ] || job_tell
  job_close
  count $res "${program}_perf $* with the network alone"
}

# settings NAME=VALUE…: a few programs under them, on two fake nodes and with everything on the network.
settings() {
  ranks_env=("$@")
  local program
  for program in all_reduce alltoall broadcast; do
    nodes 2 2 1 "$program" -b 8 -e 2M -f 64 -n 2 -w 1 -c 1
  done
  alone 3 all_reduce -t 3 -b 8 -e 2M -f 64 -n 2 -w 1 -c 1
  alone 3 sendrecv -P 3 -b 8 -e 2M -f 64 -n 2 -w 1 -c 1
  ranks_env=()
}

[ "$slower" = 1 ] || [ "$level" = full ] || programs="all_reduce reduce_scatter broadcast alltoall sendrecv"
start=$SECONDS
# shellcheck disable=SC2086
for program in $programs; do
  nodes 2 2 1 "$program" $size
  nodes 4 1 1 "$program" $size
  nodes 2 1 2 "$program" -t 2 $size
  alone 4 "$program" -P 4 $size
  alone 4 "$program" -P 2 -t 2 $size
  alone 3 "$program" -t 3 $size
  [ "$level" = full ] || continue
  nodes 2 1 1 "$program" $size
  nodes 4 2 1 "$program" $size
  nodes 3 2 1 "$program" $size
  nodes 4 1 2 "$program" -g 2 $size
  nodes 2 2 2 "$program" -t 2 $size
  alone 2 "$program" -P 2 $size
  alone 4 "$program" -g 4 $size
  alone 7 "$program" -P 7 $size
done
echo "fake nodes and the network alone: $((SECONDS - start)) s"

settings NCCL_PROTO=LL
settings NCCL_BUFFSIZE=16384 NCCL_P2P_NET_CHUNKSIZE=4096
settings NCCL_SOCKET_NTHREADS=2 NCCL_NSOCKS_PERTHREAD=2 NCCL_SOCKET_INLINE=0 NCCL_SOCKET_MIN_TASKSIZE=1000
if [ "$level" = full ]; then
  for setting in NCCL_PROTO=Simple NCCL_ALGO=Ring NCCL_ALGO=Tree NCCL_RUNTIME_CONNECT=0 NCCL_NET_SHARED_BUFFERS=0 NCCL_NET_SHARED_BUFFERS=1 \
    NCCL_SOCKET_NTHREADS=1 NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=8 NCCL_BUFFSIZE=4194304 NCCL_PROGRESS_APPENDOP_FREQ=1 NCCL_NET=Socket \
    NCCL_P2P_LEVEL=LOC NCCL_SOCKET_FAMILY=AF_INET6 NCCL_HOST_SPIN_US=0 NCCL_CMA_ENABLE=0; do
    settings $setting
  done
fi
echo "net_nodes: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
