#!/usr/bin/env bash
# netns_late.sh BUILD [SCENARIO…]: interfaces that come up, or get another address, after a process has made its first id and communicators. What
# ranks of later communicators are told must lead there: sums are right, and the report of each host has all processes. Needs root.
# `list` prints the scenarios' names.
# shellcheck disable=SC2154,SC2034 # variables of the sourced files, and for them
set -u
build=$(cd "${1:?usage: netns_late.sh BUILD [SCENARIO…]}" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/lib.sh"
. "$here/job.sh"
. "$here/scenarios.sh"

slower=$(job_slower "$build")
words=() options=() # NAME=VALUE, and arguments, for both processes

# begin ROUNDS HOST…: two processes, on a host each, which have communicators of their own; the interfaces of these hosts are down until then.
begin() {
  local rank rounds=$1 host
  shift
  hosts_make 2 1 4 && job_open || return 1
  for host; do host_down "$host" 0 || return 1; done
  for rank in 0 1; do
    job_add "rank$rank" host_exec "$rank" env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,NET,RAS "${words[@]}" RANK="$rank" MEMBER_DIR="$job_dir" \
      "$member" $((100 * slower)) "$rounds" "${options[@]}"
  done
  job_await $((40 * slower)) alone.0 alone.1 || { say="the first communicators were not made"; return 1; }
}

# reported HOST: the report that the process there gives has two nodes with a process each, and says of no error.
reported() {
  local report try
  for ((try = 0; try < 5 * slower; try++)); do # a process that has just joined may not be known yet
    report=$(host_run "$1" "$build/bin/ncclras" -t $((10 * slower)) 2>&1)
    if [ "$(awk '/^\(total\)/ { getline; print $1, $4 }' <<<"$report")" = "2 2" ] &&
      ! sed -n '/^Errors$/,$p' <<<"$report" | grep -qv '^Errors$\|^Warnings$\|^=*$'; then
      return 0
    fi
    sleep 1
  done
  echo "$report"
  say="the report on host $1 is not complete"
  return 1
}

# round NUMBER: the processes make a communicator, and each host's report is complete.
round() {
  : >"$job_dir/up.$1"
  job_await $((40 * slower)) "running.0.$1" "running.1.$1" || { say="round $1: no communicator"; return 1; }
  reported 0 && reported 1 || return 1
  : >"$job_dir/checked.$1"
  job_await $((40 * slower)) "ended.0.$1" "ended.1.$1" || { say="round $1: the communicator did not end"; return 1; }
}

finish() {
  job_wait $((40 * slower)) 5 || { say="not everybody got through"; return 1; }
  say="as expected"
}

comes_up_on_one() { begin 1 0 && host_up 0 0 && round 0 && finish; }
comes_up_on_other() { begin 1 1 && host_up 1 0 && round 0 && finish; }
comes_up_on_both() { begin 2 0 1 && host_up 0 0 && host_up 1 0 && round 0 && round 1 && finish; }

# With an id that names the place where rank 0 will listen.
known_place() {
  words=(NCCL_COMM_ID=10.77.0.1:7000) options=(early)
  comes_up_on_both
}

# Another address from round to round; more of them than a list has room for.
changes() {
  local i
  begin 12 || return 1
  for ((i = 0; i < 12; i++)); do
    ip -n "${hosts_prefix}h0" addr flush dev eth0 && ip -n "${hosts_prefix}h0" addr add "10.77.0.$((40 + i % 10))/24" dev eth0 || return 1
    round "$i" || return 1
  done
  finish
}

# Down again between two communicators, and up.
goes_and_comes() { begin 2 && round 0 && host_down 0 0 && sleep 1 && host_up 0 0 && round 1 && finish; }

scenarios="comes_up_on_one comes_up_on_other comes_up_on_both known_place changes goes_and_comes"
scenarios_asked "$scenarios" "$@"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $scenarios
scenarios_run "$build" "${NETNS_JOBS:-3}" late.c 25 "$@"
