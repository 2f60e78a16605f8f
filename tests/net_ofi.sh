#!/usr/bin/env bash
# net_ofi.sh BUILD: the network OFI (libfabric) over its tcp provider: every perf program with everything on the network, then over two and three hosts
# (network namespaces; left out without the right to make them), IPv4 and IPv6; a host whose process dies; providers and devices that are not there.
# shellcheck disable=SC2034,SC2154 # variables of the sourced files
set -u
build=$(cd "${1:?usage: net_ofi.sh BUILD}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/lib.sh"
. "$here/job.sh"
. "$here/ranks.sh"

grep -qa 'NCCL_OFI_PROVIDER=' "$build/lib/libnccl.so.2" || { echo "this build has no network OFI (libfabric's headers are missing)"; exit 77; }
[ "$(job_slower "$build")" = 1 ] || { echo "libfabric is not instrumented: nothing can be said of its threads and memory"; exit 77; }
trap 'job_close; hosts_remove' EXIT
trap 'exit 130' INT TERM

programs="all_reduce reduce_scatter all_gather broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
passed=0 failed=0

# count STATUS TEXT
count() {
  if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi
}

# The log must say that the network OFI carries it: else everything here would be worthless.
ranks_env=(NCCL_NET=OFI NCCL_OFI_PROVIDER=tcp NCCL_DEBUG=INFO "NCCL_DEBUG_SUBSYS=INIT,NET")

# alone RANKS PROGRAM OPTION…: started once; it makes its processes and threads itself.
alone() {
  local ranks=$1 program=$2 res
  shift 2
  job_open || return
  job_add process0 here_exec env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo "${ranks_env[@]}" "$build/bin/${program}_perf" "$@"
  job_wait 120 && ranks_judge "$ranks" && grep -q 'via NET/OFI' "$job_dir/process0.out"
  res=$?
  [ $res = 0 ] || job_tell
  job_close
  count $res "${program}_perf $* with everything on OFI"
}

# hosts HOSTS FAMILY PROGRAM OPTION…: two processes on each.
hosts() {
  local n=$1 family=$2 program=$3
  shift 3
  ranks_run 120 "$n" 2 "$family" "$build/bin/${program}_perf" "$@"
  count $? "${program}_perf $* on $n hosts, family $family"
}

# refused TEXT NAME=VALUE…: the run ends with an error that has the text.
refused() {
  local text=$1 res=1
  shift
  job_open || return
  job_add process0 here_exec env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 "${ranks_env[@]}" "$@" "$build/bin/all_reduce_perf" -P 2 -b 8 -e 8
  job_wait 60 10 || ! grep -q "$text" "$job_dir/process0.out" || res=0
  [ $res = 0 ] || job_tell
  job_close
  count $res "$* is refused with '$text'"
}

# dies: the last of three hosts' processes is killed in the middle; the others must end with an error that names it, in time.
dies() {
  local pid res=1 i
  job_open || return
  ranks_start 3 1 4 "$build/bin/all_reduce_perf" -b 64K -e 64K -n 1000000 -w 1 -c 0
  for i in {1..600}; do
    ! grep -q 'via NET/OFI' "$job_dir/process2.out" || break
    job_nap 0.1
  done
  pid=$(job_pid process2)
  job_nap 0.5
  kill -KILL "$pid"
  job_wait 90 90
  # Rank 1 may hear first that rank 0 has ended, which ended because of rank 2.
  if grep -q 'WARN.* rank 2' "$job_dir"/process[01].out && grep -q 'WARN rank 0.* rank [12]' "$job_dir/process0.out" &&
    grep -q 'WARN rank 1.* rank [02]' "$job_dir/process1.out" && [[ "${job_status[*]}" != *hung* ]]; then res=0; fi
  [ $res = 0 ] || job_tell
  job_close
  count $res "a process that dies is named by the others"
}

start=$SECONDS
size="-d all -b 4 -e 66564 -f 258 -n 1 -w 0 -c 1"
# shellcheck disable=SC2086
for program in $programs; do
  [ "$program" = hypercube ] && ranks=4 || ranks=3 # it wants a power of two
  alone "$ranks" "$program" -P "$ranks" $size
done
alone 4 all_reduce -P 2 -t 2 -b 8 -e 8M -f 32 -n 2 -w 1 -c 1
alone 7 alltoall -P 7 -b 8 -e 2M -f 64 -n 1 -c 1
echo "everything on OFI: $((SECONDS - start)) s"

refused "libfabric has no device for NCCL_OFI_PROVIDER=nobody" NCCL_OFI_PROVIDER=nobody NCCL_SOCKET_IFNAME=lo
refused "no network is called ofy" NCCL_NET=ofy

if hosts_possible; then
  start=$SECONDS
  hosts_make 2 1 46 || { count 1 "no hosts"; exit 1; }
  for program in all_reduce alltoall broadcast sendrecv; do hosts 2 4 "$program" -b 8 -e 2M -f 64 -n 2 -w 1 -c 1; done
  hosts_make 2 2 6 || { count 1 "no hosts"; exit 1; }
  for program in all_reduce all_gather; do hosts 2 6 "$program" -b 8 -e 2M -f 64 -n 2 -w 1 -c 1; done
  hosts_make 3 1 4 || { count 1 "no hosts"; exit 1; }
  hosts 3 4 reduce_scatter -b 8 -e 2M -f 64 -n 2 -w 1 -c 1
  dies
  echo "hosts: $((SECONDS - start)) s"
else
  echo "no hosts can be made here (network namespaces)"
fi
echo "net_ofi: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
