#!/usr/bin/env bash
# netns_gpus.sh BUILD: ranks on GPUs of two hosts, several ranks for each host and GPU, over sockets: every value is checked. Hosts are network
# namespaces (netns/lib.sh): needs root. GPUs are those of the driver for tests (cudasim/), each host's its own.
# shellcheck disable=SC2034,SC2154 # variables of the sourced files
set -u
build=$(cd "${1:?usage: netns_gpus.sh BUILD}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/lib.sh"
. "$here/job.sh"
. "$here/ranks.sh"

[ -e "$build/cuda/step.ptx" ] && [ -x "$build/bin/all_reduce_perf" ] || { echo "this build has no ranks on GPUs, or no perf programs"; exit 77; }
hosts_possible || exit 77
trap 'job_close; hosts_remove' EXIT
trap 'exit 130' INT TERM

# All ranks took part, on GPUs, and nothing was wrong.
ranks_judge() {
  local listed
  listed=$(grep -c '^# *Rank .* Simulated GPU' "$job_dir/process0.out")
  [ "$listed" = "$1" ] || { echo "  $listed ranks took part on GPUs, not $1"; return 1; }
  grep -q 'Out of bounds values : 0 OK' "$job_dir/process0.out" || { echo "  no word that all values are right"; return 1; }
}

slower=$(job_slower "$build")
once="-n 1 -w 0 -c 1"
failed=0 runs=0
ranks_env=("TUTTI_CUDA_DRIVER=$build/lib/cudasim/libcuda.so.1")

# on_gpus MODES PROCESSES THREADS RANKS PROGRAM OPTION…: so many processes on each host, with so many threads of so many ranks.
# shellcheck disable=SC2086
on_gpus() {
  local modes=$1 processes=$2 program=$5 before
  ranks_threads=$(($3 * $4)) runs=$((runs + 1))
  set -- -t "$3" -g "$4" "${@:6}" $once
  before=$(host_sent 0 0)
  # shellcheck disable=SC2016
  if ! ranks_run $((300 * slower)) "$hosts_count" "$processes" 4 \
    bash -c 'export CUDASIM="$0,deadlock=60000,box=netns-$HOSTNAME-'$$'"; exec "$@"' "$modes" "$build/bin/${program}_perf" "$@"; then
    failed=1
    echo "FAILED: ${program}_perf $* in $processes processes a host, mode $modes"
  fi
  [ "$(($(host_sent 0 0) - before))" -gt 20000 ] || { failed=1; echo "FAILED: ${program}_perf $*: the network carried nothing"; }
}

hosts_make 2 1 4 || exit 1
sizes="-b 4 -e 17000 -f 65"
if [ "$slower" = 1 ]; then
  # shellcheck disable=SC2086
  {
    on_gpus devices=2,order=random,seed=1 2 1 2 all_reduce -d all $sizes
    on_gpus devices=2,slices,seed=2 2 1 2 all_gather -d int32 $sizes
    on_gpus devices=1,queues=1,seed=3 2 1 2 sendrecv $sizes
    on_gpus devices=2,stores,stale,seed=4 3 1 1 broadcast -r all $sizes
    on_gpus devices=2,queues=32,seed=5 1 2 2 all_reduce -d half -o all -b 1028 -e 1028
    on_gpus devices=3,peers=none,seed=6 1 1 3 reduce_scatter -d float $sizes
    on_gpus devices=1,queues=1,blocking,seed=7 2 1 1 alltoall $sizes
    on_gpus devices=2,seed=8 1 1 2 all_reduce -b 4M -e 4M
  }
else
  on_gpus devices=2,order=random,seed=1 1 1 2 all_reduce -b 4 -e 1028 -f 257
  on_gpus devices=1,queues=1,seed=3 2 1 1 sendrecv -b 4 -e 1028 -f 257
fi
echo "netns_gpus: $runs runs"
exit $failed
