#!/usr/bin/env bash
# netns_pxn.sh BUILD [SCENARIO…]: ranks that send through a neighbour's proxy (NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL): hosts with two interfaces, of which
# neighbours use different ones. What travels which way, all programs, and what happens when one of those on the way leaves or dies. Needs root.
# Several scenarios at a time (NETNS_JOBS: 3); `list` prints their names.
# shellcheck disable=SC2154,SC2034 # variables of the sourced files, and for them
set -u
build=$(cd "${1:?usage: netns_pxn.sh BUILD [SCENARIO…]}" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/lib.sh"
. "$here/job.sh"
. "$here/ranks.sh"
. "$here/scenarios.sh"

slower=$(job_slower "$build")
closed=$((5 * slower))

# --- Which way messages go.

# through [NAME=VALUE…]: sendrecv_perf sends round the ring of four ranks on two hosts: between hosts 1 -> 2 and 3 -> 0, both to ranks that use eth0.
# Leaves what each interface of host 0 has carried since in eth0 and eth1, in KiB.
through() {
  local before0 before1
  ranks_env=("$@")
  before0=$(host_sent 0 0) before1=$(host_sent 0 1)
  ranks_run $((60 * slower)) 2 2 4 "$build/bin/sendrecv_perf" -b 4M -e 4M -n 4 -w 0 -c 1 || { say="sendrecv_perf failed with $*"; return 1; }
  eth0=$((($(host_sent 0 0) - before0) >> 10)) eth1=$((($(host_sent 0 1) - before1) >> 10))
}

# mostly BUSY IDLE: did the data go over the first one? Both are names of variables.
mostly() { [ "${!1}" -gt $((16 << 10)) ] && [ "${!2}" -lt 2048 ]; }

# expect BUSY IDLE NAME=VALUE: a rank that sends by itself takes the address of the peer that answers first, which need not be that of its own
# device's network: hence many tries.
expect() {
  local try
  for ((try = 0; try < 25; try++)); do
    through "$3" || return 1
    ! mostly "$1" "$2" || return 0
  done
  say="$3: eth0 $eth0 KiB, eth1 $eth1 KiB"
  return 1
}

rails() {
  hosts_make 2 2 4 || return 1
  expect eth0 eth1 NCCL_P2P_PXN_LEVEL=1 || return 1
  local with="eth0 $eth0 KiB and eth1 $eth1 KiB with it"
  expect eth1 eth0 NCCL_PXN_DISABLE=1 && expect eth1 eth0 NCCL_P2P_PXN_LEVEL=0 && expect eth1 eth0 NCCL_P2P_PXN_LEVEL=-1 || return 1
  say="$with, $eth0 and $eth1 KiB without"
}

# lines LABEL PATTERN: how many lines of what it printed.
lines() { grep -c "$2" "$job_dir/$1.out"; }

# What the log says; and that ranks with one device never do it.
log_lines() {
  hosts_make 2 2 4 && job_open || return 1
  ranks_env=(NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET NCCL_P2P_PXN_LEVEL=1)
  ranks_start 2 2 4 "$build/bin/alltoall_perf" -b 4K -e 4K -n 1 -w 0 -c 1
  job_wait $((60 * slower)) 15 || { say="alltoall_perf failed"; return 1; }
  [ "$(lines process0 '0\[[0-9]*\] -> 3\[[0-9]*\] \[send\] via NET/Socket/1(1)')" = 1 ] && [ "$(lines process0 '0\[[0-9]*\] -> 2\[[0-9]*\] \[send\] via NET/Socket/0$')" = 1 ] ||
    { say="rank 0 does not say how it sends"; return 1; }
  [ "$(lines process1 'rank 1 sends for rank 0 to rank 3')" = 1 ] || { say="rank 1 does not say that it sends for rank 0"; return 1; }
  hosts_make 2 1 4 && job_open || return 1
  ranks_start 2 2 4 "$build/bin/alltoall_perf" -b 4K -e 4K -n 1 -w 0 -c 1
  job_wait $((60 * slower)) 15 || { say="alltoall_perf failed over one interface"; return 1; }
  [ "$(lines process0 'sends for')" = 0 ] && [ "$(lines process0 'NET/Socket/.*(')" = 0 ] || { say="it is done over one interface, too"; return 1; }
  say="as expected"
}

# --- All programs.

names="all_reduce reduce_scatter all_gather broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
some="all_reduce reduce_scatter broadcast alltoall sendrecv" # where there are many processes
most=$names
[ "$slower" = 1 ] || most=$some # instrumented: the ways through the code, once with every program

# programs HOSTS PROCESSES OPTION…: the options say how many threads (-t).
programs() {
  local hosts=$1 processes=$2 program roots
  shift 2
  hosts_make "$hosts" 2 46 || return 1
  for program in $names; do
    case $program in broadcast | reduce | gather | scatter) roots="-r all" ;; *) roots="" ;; esac
    # shellcheck disable=SC2086
    ranks_run $((100 * slower)) "$hosts" "$processes" 4 "$build/bin/${program}_perf" -b 4 -e 266244 -f 258 -n 2 -w 0 -c 1 $roots "$@" ||
      { say="${program}_perf $* failed"; return 1; }
  done
  say="$names"
}
processes() { ranks_env=(NCCL_P2P_PXN_LEVEL=1) && programs 2 2; }
gathered() { ranks_env=(NCCL_P2P_PXN_LEVEL=2) names=$some && programs 2 4; }
shared_out() { ranks_env=(NCCL_P2P_PXN_LEVEL=1) names=$some && programs 2 3; }
at_once() { ranks_env=(NCCL_P2P_PXN_LEVEL=2 NCCL_RUNTIME_CONNECT=0) names=$some && programs 3 2; }
threads() { ranks_env=(NCCL_P2P_PXN_LEVEL=1) names=$most ranks_threads=2 && programs 2 1 -t 2; }
mixed() { ranks_env=(NCCL_P2P_PXN_LEVEL=2) names=$most ranks_threads=2 && programs 2 2 -t 2; }
sockets() { ranks_env=(NCCL_P2P_PXN_LEVEL=1 NCCL_SOCKET_NTHREADS=2 NCCL_NSOCKS_PERTHREAD=2) names=$most && programs 2 2; }
ring_order() { ranks_env=(NCCL_P2P_PXN_LEVEL=2 NCCL_ALGO=Ring NCCL_BUFFSIZE=65536) names=$most && programs 2 2; }

# --- Rank 0 sends to rank 3 through rank 1, and something happens.

relay_env=() # NAME=VALUE, for every rank

# relay OPTION…: starts the ranks.
relay() {
  local rank
  hosts_make 2 2 4 && job_open || return 1
  for ((rank = 0; rank < 4; rank++)); do
    job_add "rank$rank" host_exec $((rank / 2)) env NCCL_P2P_PXN_LEVEL=1 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET "${relay_env[@]}" RANK="$rank" WORLD_SIZE=4 \
      MEMBER_DIR="$job_dir" "$member" "$@"
  done
}

# all_well: everybody ends by itself, without an error.
all_well() {
  job_wait $((60 * slower)) "" || { say="not everybody got through"; return 1; }
  say="$(sed -n 's/^rank 3: done: //p' "$job_dir/rank3.out")"
}

# through_neighbour: it did go that way.
through_neighbour() { grep -q '0\[[0-9]*\] -> 3\[[0-9]*\] \[send\] via NET/Socket/1(1)' "$job_dir/rank0.out" || { say="not through rank 1"; return 1; }; }

undisturbed() { relay 1 200000 && all_well && through_neighbour; }
# Without doorbells every message would take a second, or the millisecond after which a thread looks by itself.
small_messages() {
  relay 1 2 && all_well && through_neighbour || return 1
  [ "${say%% *}" -gt $((50 / slower)) ] || { say="$say only"; return 1; }
}

# The neighbour destroys its communicator and its program ends, while others send through it.
host_leaves() { relay 2 20000 1 leave && all_well && through_neighbour; }
host_leaves_small() { relay 2 2 1 leave && all_well && through_neighbour; }
# It has gone before.
host_left() { relay 1 20000 1 leave early && all_well; }
bystander_leaves() { relay 1 20000 2 leave && all_well && through_neighbour; }

# errors WHO…: these ranks get an error in time, and it names somebody; the others end somehow, by themselves.
errors() {
  local rank began=${EPOCHREALTIME/[.,]/} at
  job_wait $((60 * slower)) ""
  for rank in "${!job_status[@]}"; do
    case ${job_status[rank]} in hung | 7) say="rank $rank hangs"; return 1 ;; esac
  done
  for rank; do
    [ "${job_status[rank]}" = 3 ] || { say="rank $rank: status ${job_status[rank]} instead of an error"; return 1; }
    at=$(sed -n 's/.*FAILED at \([0-9]*\)\.\([0-9]*\): .*/\1\2/p' "$job_dir/rank$rank.out")
    [ $((at - began)) -le $((closed * 1000000)) ] || { say="rank $rank knew it after $(((at - began) / 1000)) ms only"; return 1; }
    sed -n 's/.*FAILED at [^:]*: //p' "$job_dir/rank$rank.out" | sed -E "s/\brank $rank\b//g" | grep -qE 'ranks? [0-9]' ||
      { say="rank $rank names nobody"; return 1; }
  done
  say=$(sed -n 's/.*FAILED at [^:]*: //p' "$job_dir/rank$1.out" | head -n 1)
}

# killed RANK SURVIVOR…
killed() {
  local victim=$1
  shift
  relay 60 "$count" && job_await $((60 * slower)) running || { say="it did not get going"; return 1; }
  kill -KILL "$(job_pid "rank$victim")"
  errors "$@"
}
host_killed() { count=20000 killed 1 0 3; }
host_killed_small() { count=2 killed 1 0 3; }
sender_killed() { count=20000 killed 0 3; }
receiver_killed() { count=20000 killed 3 0; }
receiver_killed_small() { count=2 killed 3 0; }
host_aborts() { relay 60 20000 1 abort && job_await $((60 * slower)) left && errors 0 3; }

# The neighbour's process is stopped: sender and receiver both answer each other, so both have to ask the neighbour.
host_stopped() {
  relay_env=(NCCL_NET_TIMEOUT=10)
  closed=25 # the limit of time decides, however slow the build
  relay 60 "${count:-20000}" && job_await $((60 * slower)) running || { say="it did not get going"; return 1; }
  kill -STOP "$(job_pid rank1)"
  job_last rank1 KILL $((closed + 5))
  errors 0 3
}
host_stopped_small() { count=2 host_stopped; }

# ---

# Long ones first.
scenarios="rails processes mixed host_stopped host_stopped_small sockets ring_order threads gathered shared_out at_once log_lines undisturbed
  small_messages host_leaves host_leaves_small host_left bystander_leaves host_killed host_killed_small sender_killed receiver_killed
  receiver_killed_small host_aborts"

scenarios_asked "$scenarios" "$@"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $scenarios
scenarios_run "$build" "${NETNS_JOBS:-3}" relay.c 25 "$@"
