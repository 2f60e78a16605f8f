#!/usr/bin/env bash
# netns_matrix.sh BUILD [full]: every perf program over two and four hosts with two ranks each, IPv4 and IPv6, one and two interfaces; every
# value is checked. Hosts are network namespaces (netns/lib.sh): needs root. Without `full`: half of the combinations, fewer sizes.
# shellcheck disable=SC2034,SC2154 # variables of the sourced files
set -u
build=$(cd "${1:?usage: netns_matrix.sh BUILD [full]}" && pwd)
level=${2:-quick}
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/lib.sh"
. "$here/job.sh"
. "$here/ranks.sh"

hosts_possible || exit 77
wire="" # the program that carries for hosts far apart
trap 'job_close; hosts_remove; rm -f "$wire"' EXIT
trap 'exit 130' INT TERM

programs="all_reduce reduce_scatter all_gather broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
once="-n 1 -w 0 -c 1"
slower=$(job_slower "$build")
limit=$((120 * slower)) # seconds for one run
[ "$level" != full ] || limit=900 # every operation and root; on a busy machine
passed=0 failed=0

# run FAMILY PROGRAM OPTION…: on the hosts that there are, two processes each.
run() {
  local family=$1 program=$2
  shift 2
  if ranks_run "$limit" "$hosts_count" 2 "$family" "$build/bin/${program}_perf" "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: ${program}_perf $* on $where"
  fi
}

# roots PROGRAM: the option that goes through all roots, where there are some.
roots() {
  case $1 in broadcast | reduce | gather | scatter) echo "-r all" ;; esac
}

# sweep FAMILY: all programs with all types. The sizes are one element, a size that no chunk fits, and several chunks.
# shellcheck disable=SC2046,SC2086
sweep() {
  local program
  for program in $programs; do
    if [ "$level" = full ]; then
      run "$1" "$program" -d all -o all $(roots "$program") -b 4 -e 66052 -f 257 $once
      run "$1" "$program" -d all -b 64K -e 16M -f 16 $once
    else
      run "$1" "$program" -d all -b 4 -e 266244 -f 258 $once
    fi
  done
  [ "$level" != full ] || return 0
  run "$1" all_reduce -d half -o all -b 1028 -e 1028 $once
  run "$1" reduce_scatter -d int32 -o all -b 1028 -e 1028 $once
  run "$1" reduce -d double -o all -r all -b 1028 -e 1028 $once
  run "$1" all_reduce -b 16M -e 16M -n 2 -w 0 -c 1
}

# traffic: what the interfaces carried. Data that took another way than the network would make everything here worthless.
traffic() {
  local i k all=0 line="" bytes
  for ((k = 0; k < $1; k++)); do
    for ((i = 0; i < hosts_count; i++)); do
      bytes=$(host_sent "$i" "$k")
      all=$((all + bytes))
      line="$line host$i/eth$k $((bytes >> 20)) MiB"
    done
  done
  echo "  sent:$line"
  [ "$all" -gt $((4 << 20)) ] || { failed=$((failed + 1)); echo "FAILED: the network carried $all bytes only on $where"; }
}

# combination HOSTS INTERFACES FAMILY: FAMILY 46 has both, and meets over IPv4.
combination() {
  where="$1 hosts, $2 interfaces, family $3"
  local start=$SECONDS
  hosts_make "$1" "$2" "$3" || { failed=$((failed + 1)); echo "FAILED: no $where"; return; }
  sweep "${3:0:1}"
  echo "$where: $((SECONDS - start)) s"
  traffic "$2"
}

# rough HOSTS FAMILY WHAT…: a few programs over wires that delay and lose, or are slow. Left out where the kernel cannot do that.
rough() {
  local host what=$3 start=$SECONDS
  where="$1 hosts, family $2, $3 $4"
  hosts_make "$1" 1 "$2" || { failed=$((failed + 1)); echo "FAILED: no $where"; return; }
  shift 3
  for ((host = 0; host < hosts_count; host++)); do "$what" "$host" 0 "$@" || { echo "  left out: $where"; return; }; done
  for program in all_reduce alltoall; do run 4 "$program" -b 8 -e 2M -f 64 -n 2 -w 0 -c 1; done
  echo "$where: $((SECONDS - start)) s"
}

# far HOSTS GBIT MS: a few programs over wires that are slow and long. Left out where interfaces cannot be made of a program.
far() {
  local start=$SECONDS said least found
  where="$1 hosts, $2 Gbit/s, $3 ms"
  (exec 3<>/dev/net/tun) 2>/dev/null || { echo "  left out: $where"; return; }
  wire=$(mktemp)
  if "${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$wire" "$here/wire.c" && hosts_make_wired "$1" "$2" "$3" "$wire"; then
    said=$(mktemp)
    local ranks_env=(NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO "NCCL_DEBUG_FILE=$said")
    for program in all_reduce alltoall broadcast; do run 4 "$program" -b 8 -e 2M -f 64 -n 2 -w 0 -c 1; done
    # The power of two below it; on a busy machine a message takes longer.
    least=$(awk -v ms="$3" 'BEGIN { for (us = 1; us * 2 <= ms * 1000;) us *= 2; print us }')
    found=$(grep -oE 'between machines take [0-9]+ us' "$said" | awk 'NR == 1 { print $4 }')
    [ "${found:-0}" -ge "$least" ] || { failed=$((failed + 1)); echo "FAILED: messages take ${found:-?} us, not $least or more, on $where"; }
    rm -f "$said"
  else
    failed=$((failed + 1))
    echo "FAILED: no $where"
  fi
  rm -f "$wire"
  wire=""
  echo "$where: $((SECONDS - start)) s"
}

if [ "$slower" != 1 ] && [ "$level" != full ]; then # instrumented: the ways through the code, not every program
  programs="all_reduce reduce_scatter broadcast alltoall sendrecv"
fi
if [ "$level" = full ]; then
  for hosts in 2 4; do
    for interfaces in 1 2; do
      for family in 4 6 46; do combination $hosts $interfaces $family; done
    done
  done
else
  combination 2 1 4
  combination 2 2 6
  combination 4 1 6
  combination 4 2 46
fi
rough 2 4 host_netem delay 1ms loss 1%
rough 2 4 host_rate 200mbit
far 3 1 2
echo "netns_matrix: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
