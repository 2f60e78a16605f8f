#!/usr/bin/env bash
# namespaces.sh BUILD: two ranks of one machine in different namespaces, or of different users. A rank that dies is noticed in another PID namespace; two network
# namespaces use the network; users who cannot share memory are told so at once, and use the network where they say so. A rank alone needs no network. Of several
# addresses the one that leads to the other rank is found. Needs root.
# shellcheck disable=SC2154 # variables of the sourced file
set -u
build=$(cd "${1:?usage: namespaces.sh BUILD}" && pwd)
. "$(dirname "$0")/netns/ranks.sh"
dir=$(mktemp -d) && chmod 755 "$dir" || exit 1
net=ttns$$ failed=0
ended() { ip netns del "${net}a"; ip netns del "${net}b"; rm -rf "$dir"; } 2>/dev/null
trap ended EXIT
unshare -p -f --mount-proc --kill-child true 2>/dev/null && ip netns add "${net}a" && ip netns add "${net}b" && command -v setpriv >/dev/null ||
  { echo "skipped: no right to make namespaces"; exit 77; }

# rank NUMBER COMMAND…: starts a rank; its process id in `pid`.
rank() {
  local number=$1
  shift
  RANK=$number WORLD_SIZE=2 MASTER_ADDR=$address MASTER_PORT=$port NCCL_DEBUG=WARN timeout 100 "$@" >"$dir/$number" 2>&1 &
  pid=$!
}
perf="$build/bin/all_reduce_perf"
user="setpriv --reuid 65534 --regid 65534 --clear-groups"

# expect NAME WANTED TEXT [RANK]: did both ranks end with a status that is 0 (or not: WANTED 1), and does RANK's output (0's) have TEXT?
expect() {
  local status=0
  wait "$first" || status=1
  wait "$pid" || status=1
  if [ "$status" = "$2" ] && grep -q "$3" "$dir/${4:-0}"; then
    echo "ok $1"
  else
    echo "FAILED $1: status $status"
    cat "$dir/0" "$dir/1"
    failed=1
  fi
}

# alone NAME WANTED TEXT RANKS: so many ranks of one process where no interface is up, not even lo; status and TEXT as above.
alone() {
  local status=0
  unshare -n timeout 100 "$perf" -b 8 -e 8 -g "$4" >"$dir/0" 2>&1 || status=1
  if [ "$status" = "$2" ] && grep -Eq "$3" "$dir/0"; then
    echo "ok $1"
  else
    echo "FAILED $1: status $status"
    cat "$dir/0"
    failed=1
  fi
}
alone "one rank without a network" 0 '^ +8 ' 1
alone "two ranks without a network" 1 'no network interface was up where it was made: it is for one rank, and there are 2' 2

# The first line of results shows that both run; then rank 1 is killed.
address=127.0.0.1
next_port() { ranks_next_port && port=$ranks_port; }
next_port
space="unshare -p -f --mount-proc --kill-child"
# shellcheck disable=SC2086 # several words
rank 0 $space "$perf" -b 8 -e 8M -n 2000 && first=$pid
# shellcheck disable=SC2086
RANK=1 WORLD_SIZE=2 MASTER_ADDR=$address MASTER_PORT=$port $space "$perf" -b 8 -e 8M -n 2000 >"$dir/1" 2>&1 &
pid=$!
for ((i = 0; i < 600; i++)); do
  grep -qE '^ +8 ' "$dir/0" && break
  sleep 0.1
done
kill -KILL "$pid"
expect "death in another PID namespace" 1 "waits for rank 1 .*, which was killed"

next_port
# shellcheck disable=SC2086 # several words
{ rank 0 $user "$perf" -b 8 -e 8 && first=$pid; rank 1 "$perf" -b 8 -e 8; }
expect "two users" 1 "only processes of one user share memory"

next_port
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
# shellcheck disable=SC2086
{ rank 0 $user "$perf" -b 8 -e 8 && first=$pid; rank 1 "$perf" -b 8 -e 8; }
expect "two users over the network" 0 "Out of bounds values : 0 OK"
unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE

ip link add v0 netns "${net}a" type veth peer name v0 netns "${net}b"
for side in a b; do ip -n "$net$side" link set lo up && ip -n "$net$side" link set v0 up; done
ip -n "${net}a" addr add 10.78.0.1/24 dev v0 && ip -n "${net}b" addr add 10.78.0.2/24 dev v0
address=10.78.0.1
rank 0 ip netns exec "${net}a" "$perf" -b 8 -e 8 && first=$pid
rank 1 ip netns exec "${net}b" "$perf" -b 8 -e 8
expect "two network namespaces" 0 "Out of bounds values : 0 OK"

export NCCL_HOSTID=same
next_port
rank 0 ip netns exec "${net}a" "$perf" -b 8 -e 8 && first=$pid
rank 1 ip netns exec "${net}b" "$perf" -b 8 -e 8
expect "two network namespaces, one NCCL_HOSTID" 1 "in different network namespaces"
unset NCCL_HOSTID

# both NAME WANTED TEXT RANK: a rank in each network namespace, as expect.
both() {
  next_port
  rank 0 ip netns exec "${net}a" "$perf" -b 8 -e 8 && first=$pid
  rank 1 ip netns exec "${net}b" "$perf" -b 8 -e 8
  expect "$@"
}

# at SIDE ARGUMENT…: ip in a network namespace.
at() {
  local side=$1
  shift
  ip -n "$net$side" "$@"
}
fits="Out of bounds values : 0 OK"

# The network that both are in is that of a second address.
at a addr flush dev v0 && at a addr add 172.31.1.1/24 dev v0 && at a addr add 10.78.0.1/24 dev v0
at b addr flush dev v0 && at b addr add 172.31.2.1/24 dev v0 && at b addr add 10.78.0.2/24 dev v0
NCCL_SOCKET_FAMILY=AF_INET both "second address" 0 "$fits"

# The address that others reach is on lo, behind 127.0.0.1, and routed over v0.
at a addr add 10.88.0.1/32 dev lo && at b addr add 10.88.0.2/32 dev lo
at a route add 10.88.0.2/32 via 10.78.0.2 src 10.88.0.1 && at b route add 10.88.0.1/32 via 10.78.0.1 src 10.88.0.2
NCCL_SOCKET_IFNAME=lo NCCL_SOCKET_FAMILY=AF_INET both "routed address on lo" 0 "$fits"

# More addresses than fit a list, before the useful one: said where it is cut; the default route's is in it.
at a addr flush dev v0 && at b addr flush dev v0
for i in 1 2 3 4 5 6 7 8 9; do
  at a addr add "172.30.$i.1/24" dev v0 && at b addr add "172.31.$i.1/24" dev v0
done
at a addr add 10.78.0.1/24 dev v0 && at b addr add 10.78.0.2/24 dev v0
export NCCL_SOCKET_FAMILY=AF_INET
NCCL_BOOTSTRAP_TIMEOUT=1 both "addresses without room" 1 "2 more addresses were left out" 1
at a route add default via 10.78.0.9 && at b route add default via 10.78.0.9 # nobody: what is not of this network is not reached
NCCL_BOOTSTRAP_TIMEOUT=10 both "address of the default route" 0 "$fits"
exit $failed
