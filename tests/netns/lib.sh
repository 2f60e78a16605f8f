# lib.sh: hosts for tests: network namespaces joined by bridges. Sourced by bash scripts; needs root.
# shellcheck shell=bash
#
#   hosts_make 4 2 46            4 hosts, 2 interfaces each (eth0, eth1: one bridge for each), IPv4 and IPv6
#   host_exec 0 hostname         a command on host 0; its name there is host0
#   hosts_remove
#
# One set per shell process at a time; subshells (BASHPID) may have sets of their own beside it. A guardian outside the process group
# removes the set when the shell ends without having done so, even by SIGKILL.
# Addresses: 10.77.PLANE.(HOST+1)/24 and fd77:PLANE::(HOST+1)/64. Everybody's first bridge is plane 0.

hosts_prefix= # name of the set; empty: there is none
hosts_count=0
hosts_guardian=
hosts_wire= # what the program that carries for hosts far apart says

# hosts_possible: true when this machine lets us make hosts; otherwise says why not.
hosts_possible() {
  local probe=tutti${BASHPID}p why=
  if [ "$(id -u)" != 0 ]; then
    why="not root"
  elif ! command -v ip >/dev/null || ! command -v unshare >/dev/null; then
    why="no ip or no unshare (Debian, Ubuntu: iproute2, util-linux)"
  elif ! ip netns add "$probe" 2>/dev/null; then
    why="network namespaces are refused"
  elif ! ip -n "$probe" link add br0 type bridge 2>/dev/null; then
    why="the kernel has no bridge"
  elif ! ip -n "$probe" link add veth0 type veth peer name veth1 2>/dev/null; then
    why="the kernel has no veth"
  elif ! ip netns exec "$probe" true 2>/dev/null; then
    why="namespaces cannot be entered"
  fi
  ip netns del "$probe" 2>/dev/null
  [ -z "$why" ] || { echo "no hosts can be made here: $why"; return 1; }
}

# hosts_set NAME VALUE: a kernel setting on the host that calls it (through host_exec).
hosts_set() {
  [ ! -e "/proc/sys/$1" ] || echo "$2" >"/proc/sys/$1"
}

# Removes the namespaces of a set and kills what still runs in them.
hosts_remove_set() {
  local name pids
  for name in $(ip netns list 2>/dev/null | sed -n "s/^\($1[sh][0-9]*\)\( .*\)\?$/\1/p"); do
    pids=$(ip netns pids "$name" 2>/dev/null | tr '\n' ' ')
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
    ip netns del "$name"
  done
}

hosts_remove() {
  [ -n "$hosts_prefix" ] || return 0
  hosts_remove_set "$hosts_prefix"
  kill "$hosts_guardian" 2>/dev/null
  [ -z "$hosts_wire" ] || exec {hosts_wire}<&-
  hosts_wire="" hosts_prefix="" hosts_count=0 hosts_guardian=""
}

# Runs in a session of its own, as a child of nobody here.
hosts_guard() {
  # shellcheck disable=SC2016
  hosts_guardian=$(
    setsid bash -c "$(declare -f hosts_remove_set)"'
      while kill -0 "$1" 2>/dev/null; do sleep 0.5; done
      hosts_remove_set "$2"' guardian "$1" "$2" </dev/null >/dev/null 2>&1 &
    echo $!
  )
}

# host_wire HOST PLANE FAMILY: an interface, its end in the switch, and its addresses.
host_wire() {
  local ns=${hosts_prefix}h$1 dev=eth$2 port=h$1e$2
  ip -n "$ns" link add "$dev" type veth peer name "$port" netns "${hosts_prefix}s" &&
    ip -n "${hosts_prefix}s" link set dev "$port" master "br$2" up || return 1
  case $3 in *6*) ip netns exec "$ns" bash -c "$(declare -f hosts_set)
    hosts_set net/ipv6/conf/$dev/accept_dad 0; hosts_set net/ipv6/conf/$dev/keep_addr_on_down 1; hosts_set net/ipv6/conf/$dev/accept_ra 0" ;; esac
  ip -n "$ns" link set dev "$dev" up || return 1
  case $3 in *4*) ip -n "$ns" addr add "10.77.$2.$(($1 + 1))/24" dev "$dev" || return 1 ;; esac
  case $3 in *6*) ip -n "$ns" addr add "fd77:$2::$(($1 + 1))/64" dev "$dev" nodad || return 1 ;; esac
}

# host_birth HOST FAMILY
host_birth() {
  local ns=${hosts_prefix}h$1
  ip netns add "$ns" || return 1
  case $2 in *6*) ;; *) ip netns exec "$ns" bash -c "$(declare -f hosts_set)
    hosts_set net/ipv6/conf/all/disable_ipv6 1; hosts_set net/ipv6/conf/default/disable_ipv6 1" ;; esac
  ip -n "$ns" link set dev lo up
}

# hosts_make COUNT [PLANES [FAMILY]]: FAMILY is 4, 6 or 46. What is there is removed first.
hosts_make() {
  local i k planes=${2:-1} family=${3:-4}
  hosts_remove
  hosts_prefix=tutti$BASHPID
  hosts_count=$1
  hosts_guard "$BASHPID" "$hosts_prefix"
  ip netns add "${hosts_prefix}s" || return 1
  for ((i = 0; i < hosts_count; i++)); do host_birth "$i" "$family" || return 1; done
  for ((k = 0; k < planes; k++)); do hosts_plane "$k" "$family" || return 1; done
}

# hosts_plane PLANE FAMILY: one more bridge, and an interface of each host at it.
hosts_plane() {
  local i
  ip -n "${hosts_prefix}s" link add "br$1" type bridge && ip -n "${hosts_prefix}s" link set dev "br$1" up || return 1
  for ((i = 0; i < hosts_count; i++)); do host_wire "$i" "$1" "$2" || return 1; done
  for ((i = 0; i < hosts_count; i++)); do host_running "$i" "$1" || return 1; done
}

# hosts_make_wired COUNT GBIT MS WIRE [CORE]: as hosts_make, with one interface each, of IPv4, but far apart: the program WIRE (wire.c) carries
# what they send, GBIT Gbit/s (0: any) each way of each host, and MS milliseconds later.
hosts_make_wired() {
  local i said
  hosts_remove
  hosts_prefix=tutti$BASHPID
  hosts_count=$1
  hosts_guard "$BASHPID" "$hosts_prefix"
  for ((i = 0; i < hosts_count; i++)); do host_birth "$i" 4 || return 1; done
  exec {hosts_wire}< <(exec "$4" "$hosts_prefix" "$hosts_count" "$2" "$3" ${5:+"$5"})
  read -r -t 20 said <&"$hosts_wire" && [ "$said" = ready ] || return 1
  for ((i = 0; i < hosts_count; i++)); do
    ip -n "${hosts_prefix}h$i" link set dev eth0 up txqueuelen 4000 && ip -n "${hosts_prefix}h$i" addr add "10.77.0.$((i + 1))/24" dev eth0 &&
      ip netns exec "${hosts_prefix}h$i" bash -c "$(declare -f hosts_set); hosts_set net/ipv4/tcp_congestion_control reno" || return 1
  done
}

# host_exec HOST COMMAND…: replaces itself by the command, so that the process id is the command's; in the background, for instance. The
# command dies with the shell that called. A UTS namespace gives it the host's name, which is how the library tells hosts apart.
host_exec() {
  local host=$1
  shift
  exec ip netns exec "${hosts_prefix}h$host" setpriv --pdeathsig KILL unshare --uts \
    bash -c 'echo "$0" >/proc/sys/kernel/hostname; exec "$@"' "host$host" "$@"
}

# host_run HOST COMMAND…: the same in the foreground.
host_run() { (host_exec "$@"); }

# host_addr HOST PLANE FAMILY: its address, as printed.
host_addr() {
  if [ "$3" = 6 ]; then echo "fd77:$2::$(($1 + 1))"; else echo "10.77.$2.$(($1 + 1))"; fi
}

# host_down HOST PLANE: the interface is switched off on the host, as by its administrator. host_up undoes it.
host_down() { ip -n "${hosts_prefix}h$1" link set dev "eth$2" down; }
host_up() { ip -n "${hosts_prefix}h$1" link set dev "eth$2" up && host_running "$1" "$2"; }

# host_running HOST PLANE: waits until the interface is running. The kernel says so up to a second after it is up, and ranks take no other.
host_running() {
  local try
  for ((try = 0; try < 500; try++)); do
    case $(ip -n "${hosts_prefix}h$1" -o link show dev "eth$2") in *' state UP '*) return 0 ;; esac
    sleep 0.02
  done
  echo "host $1: eth$2 does not come up" >&2
  return 1
}

# host_unplug HOST PLANE: the cable is out: no carrier on either end. host_plug undoes it.
host_unplug() { ip -n "${hosts_prefix}s" link set dev "h$1e$2" down; }
host_plug() { ip -n "${hosts_prefix}s" link set dev "h$1e$2" up && host_running "$1" "$2"; }

# host_mute HOST PLANE: the switch forwards nothing of or to this port any more: silent loss, the interface looks well. host_unmute undoes
# it.
host_mute() { ip -n "${hosts_prefix}s" link set dev "h$1e$2" nomaster; }
host_unmute() { ip -n "${hosts_prefix}s" link set dev "h$1e$2" master "br$2"; }

# host_rate HOST PLANE RATE: what leaves the host is slowed down to RATE ("100mbit"). False, and a line, where the kernel cannot.
host_rate() {
  tc -n "${hosts_prefix}h$1" qdisc replace dev "eth$2" root tbf rate "$3" burst 256kb latency 200ms 2>/dev/null ||
    { echo "no traffic shaping (sch_tbf) here"; return 1; }
}

# host_netem HOST PLANE OPTION…: delay, loss and the like, as tc's netem has them ("delay 2ms loss 1%").
host_netem() {
  local host=$1 plane=$2
  shift 2
  tc -n "${hosts_prefix}h$host" qdisc replace dev "eth$plane" root netem "$@" 2>/dev/null || { echo "no netem (sch_netem) here"; return 1; }
}

# host_dead_end HOST NAME KIND: an interface NAME with address 10.78.0.(HOST+1)/24 on which nobody can be reached, though all hosts have one
# in the same network. KIND refused: the kernel says so after some seconds (nobody answers ARP). KIND silent: packets vanish without a word.
host_dead_end() {
  local ns=${hosts_prefix}h$1 k
  ip -n "$ns" link add "$2" type veth peer name "x$1$2" netns "${hosts_prefix}s" &&
    ip -n "${hosts_prefix}s" link set dev "x$1$2" up && ip -n "$ns" link set dev "$2" up &&
    ip -n "$ns" addr add "10.78.0.$(($1 + 1))/24" dev "$2" || return 1
  [ "$3" = silent ] || return 0
  for ((k = 0; k < hosts_count; k++)); do
    [ "$k" = "$1" ] || ip -n "$ns" neigh replace "10.78.0.$((k + 1))" lladdr 02:00:00:00:00:01 dev "$2" nud permanent || return 1
  done
}

# host_reset HOST: every TCP connection of the host ends at once, with a reset to the other side. False where the kernel cannot.
host_reset() {
  local before after
  before=$(host_run "$1" ss -tnH state established | grep -c .)
  host_run "$1" ss -K -tnH state established >/dev/null 2>&1
  after=$(host_run "$1" ss -tnH state established | grep -c .)
  [ "$before" -gt 0 ] && [ "$after" -lt "$before" ]
}

# host_sent HOST PLANE: bytes that left through this interface so far.
host_sent() { ip netns exec "${hosts_prefix}h$1" cat "/sys/class/net/eth$2/statistics/tx_bytes"; }
