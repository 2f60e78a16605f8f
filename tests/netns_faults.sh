#!/usr/bin/env bash
# netns_faults.sh BUILD [SCENARIO…]: what happens to a network happens to a job of four ranks on two hosts. Each rank has to end by itself,
# with right results or with an error that says who or where, within a stated time. Never a hang, a crash, or a wrong value. Needs root.
#
# Without names all scenarios run, several at a time; `list` prints their names. Variables:
#   NETNS_CLOSED_S (9)    seconds until every rank knows that a connection was closed or reset: less than NCCL_NET_TIMEOUT of NETNS_SHORTEN
#   NETNS_SILENT_S (100)  seconds until every rank knows that nothing comes through any more
#   NETNS_SHORTEN (NCCL_NET_TIMEOUT=10)  NAME=VALUE words for all ranks: settings that make the network notice silence sooner;
#                         empty: as users have it
#   NETNS_STOPPED_S (25)  seconds until every rank knows that a process is stopped: NCCL_NET_TIMEOUT of NETNS_SHORTEN and some more
#   NETNS_JOBS (6)        scenarios at a time
#
# shellcheck disable=SC2154,SC2034 # variables of the sourced files, and for them
set -u
build=$(cd "${1:?usage: netns_faults.sh BUILD [SCENARIO…]}" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)/netns
. "$here/lib.sh"
. "$here/job.sh"
. "$here/ranks.sh"
. "$here/scenarios.sh"

slower=$(job_slower "$build")
closed=$((${NETNS_CLOSED_S:-9} * slower))
silent=$((${NETNS_SILENT_S:-100} * slower))
stopped=$((${NETNS_STOPPED_S:-25} + 2 * slower)) # however slow the build, it is a limit of time that decides
start_s=$((60 * slower))
read -ra words <<<"${NETNS_SHORTEN-NCCL_NET_TIMEOUT=10}"
hosts=2 each=2 # of the scenario that runs
struck=0       # microseconds: when it happened

# now: microseconds of the real-time clock.
now() { echo "${EPOCHREALTIME/[.,]/}"; }

# members SECONDS OPTION…: starts a member per rank; SECONDS is when its own watch calls it a hang.
members() {
  local rank limit=$1
  shift
  for ((rank = 0; rank < hosts * each; rank++)); do
    job_add "rank$rank" host_exec $((rank / each)) env "${words[@]}" "${ranks_env[@]}" RANK="$rank" WORLD_SIZE=$((hosts * each)) \
      MEMBER_DIR="$job_dir" "$member" -t "$limit" -s 1000 -p 10 -c 65536 "$@"
  done
}

# files NAME: NAME.0 NAME.1 …, one for each rank.
files() {
  local rank
  for ((rank = 0; rank < hosts * each; rank++)); do echo "$1.$rank"; done
}

# begin FAMILY INTERFACES SECONDS OPTION…: hosts, and members that are in the middle of it.
begin() {
  local family=$1 interfaces=$2
  shift 2
  hosts_make "$hosts" "$interfaces" "$family" && job_open || return 1
  members "$@"
  # shellcheck disable=SC2046
  job_await "$start_s" $(files running) || { say="the members did not get going"; return 1; }
  strike
}

strike() { struck=$(now); }

# stop_after SECONDS: who still can, is to leave then. When nobody is left, nobody has to wait.
stop_after() {
  local end=$(($(now) + $1 * 1000000))
  while job_look && [ "$(now)" -lt "$end" ]; do job_nap 0.1; done
  : >"$job_dir/stop"
}

# names_somebody RANK FILE: the error is about more than the rank itself.
names_somebody() {
  sed -n 's/.*FAILED at [^:]*: //p' "$2" | sed -E "s/\brank $1\b//g" |
    grep -qE 'ranks? [0-9]|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+|[0-9a-f]+:[0-9a-f]*:[0-9a-f]'
}

# verdict_of RANK SECONDS: "success", "error", or what is wrong. An error has to come within SECONDS and to say who or where.
verdict_of() {
  local out=$job_dir/rank$1.out at
  case ${job_status[$1]} in
    0) echo success; return ;;
    3) ;;
    hung) echo "rank $1 had to be killed"; return ;;
    7) echo "rank $1: $(tail -n 1 "$out")"; return ;;
    *) echo "rank $1 ended with status ${job_status[$1]}: $(grep -m1 -E "WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error" "$out")"; return ;;
  esac
  at=$(sed -n 's/.*FAILED at \([0-9]*\)\.\([0-9]*\): .*/\1\2000/p' "$out")
  if [ -z "$at" ]; then
    echo "rank $1 gave no error"
  elif [ $((at - struck)) -gt $(($2 * 1000000)) ]; then
    echo "rank $1 knew it after $(((at - struck) / 1000)) ms only (limit $2 s)"
  elif ! names_somebody "$1" "$out"; then
    echo "rank $1: the error names neither another rank nor an address"
  else
    echo error
    [ $((at - struck)) -le "$slowest" ] || slowest=$((at - struck))
  fi
}

# judge WHAT SECONDS [VICTIM…]: WHAT is error, success or either, the same for all ranks but the victims. Sets say.
judge() {
  local what=$1 seconds=$2 rank all="" verdict
  shift 2
  slowest=0
  for ((rank = 0; rank < hosts * each; rank++)); do
    case " $* " in *" $rank "*) continue ;; esac
    verdict_of "$rank" "$seconds" >"$job_dir/verdict" # not in a subshell: it notes the slowest
    verdict=$(cat "$job_dir/verdict")
    case $verdict in success | error) ;; *) say=$verdict; return 1 ;; esac
    [ "${all:-$verdict}" = "$verdict" ] || { say="some ranks succeed, others report an error"; return 1; }
    all=$verdict
  done
  if [ "$what" != either ] && [ "$all" != "$what" ]; then
    say="$all instead of $what"
    return 1
  fi
  if [ "$all" = error ]; then say="errors after at most $((slowest / 1000)) ms"; else say="success"; fi
}

# finish WHAT SECONDS [VICTIM…]: waits for the members and judges. Their own watches come first, so that they can say where they hang.
finish() {
  job_wait $(($2 + 60 * slower)) ""
  judge "$@"
}

# named RANK: some rank's error names this one.
named() {
  grep -hE 'FAILED at' "$job_dir"/rank*.out | grep -qE "rank $1\b" || { say="nobody names rank $1"; return 1; }
}

# all_remote VICTIM…: the survivors' errors are ncclRemoteError (6).
all_remote() {
  local rank
  for ((rank = 0; rank < hosts * each; rank++)); do
    case " $* " in *" $rank "*) continue ;; esac
    grep -q 'FAILED at [0-9.]*: 6 ' "$job_dir/rank$rank.out" || { say="rank $rank: not ncclRemoteError"; return 1; }
  done
}

# --- A rank dies: the kernel closes its connections.

# dies FAMILY OPTION…
dies() {
  local family=$1
  shift
  begin "$family" 1 $((closed + 60 * slower)) "$@" || return 1
  kill -KILL "$(job_pid rank3)"
  finish error "$closed" 3 && all_remote 3 && named 3
}
kill_mixed() { dies 4; }
kill_small() { dies 4 -k small -p 0; }
kill_large() { dies 4 -k large -c 1000000; }
kill_ring_v6() { dies 6 -k ring; }
kill_nonblocking() { dies 4 -N; }

# Rank 2 of four hosts is nobody's neighbour on rank 0.
kill_four_hosts() {
  hosts=4 each=1
  begin 46 2 $((closed + 60 * slower)) || return 1
  kill -KILL "$(job_pid rank2)"
  finish error "$closed" 2 && all_remote 2 && named 2
}

kill_host() {
  begin 4 1 $((closed + 60 * slower)) || return 1
  kill -KILL "$(job_pid rank2)" "$(job_pid rank3)"
  finish error "$closed" 2 3 && all_remote 2 3
}

# In the middle of a message: 4 MB take a third of a second on this wire.
kill_slow_wire() {
  hosts_make 2 1 4 && job_open || return 1
  host_rate 0 0 100mbit && host_rate 1 0 100mbit || { say="no traffic shaping"; return 77; }
  members $((closed + 60 * slower)) -k large -c 1000000
  # shellcheck disable=SC2046
  job_await "$start_s" $(files running) || { say="the members did not get going"; return 1; }
  strike
  kill -KILL "$(job_pid rank3)"
  finish error "$closed" 3 && all_remote 3 && named 3
}

# While communicators are being made. A rank that has not come to the meeting is missed after NCCL_BOOTSTRAP_TIMEOUT: however slow the build, it is
# a limit of time that decides. It also has to suffice for meeting.
kill_inits() {
  local patience=$((8 + 2 * slower))
  ranks_env=("NCCL_BOOTSTRAP_TIMEOUT=$patience")
  begin 4 1 $((60 * slower)) -k inits || return 1
  kill -KILL "$(job_pid rank3)"
  finish error $((patience + 5 * slower)) 3
}

# --- A rank pauses: nobody may take that for death, unless it does so for longer than NCCL_NET_TIMEOUT.

stops() {
  begin "$1" 1 $((60 * slower)) || return 1
  kill -STOP "$(job_pid rank3)"
  job_nap 4
  kill -CONT "$(job_pid rank3)"
  stop_after 1
  finish success $((30 * slower))
}
stop_and_go() { stops 4; }
stop_and_go_v6() { stops 6; }

# A whole job that is stopped, and its machine suspended, goes on later: hosts one after the other.
# One that does not come back within the limit is rightly taken for dead: so a failure says how long it was.
stop_all() {
  local since apart
  begin 4 1 $((90 * slower)) || return 1
  # shellcheck disable=SC2046
  kill -STOP $(pids 0 1 2 3) && job_nap 14 && kill -CONT $(pids 2 3) || return 1
  since=$SECONDS
  job_nap 3
  # shellcheck disable=SC2046
  kill -CONT $(pids 0 1) || return 1
  apart=$((SECONDS - since))
  stop_after 1
  finish success $((60 * slower)) || { say="$say ($apart s between the hosts, 3 were asked for)"; return 1; }
}

# pids RANK…
pids() {
  local rank
  for rank; do job_pid "rank$rank"; done
}

# stop_rank3 SIGNAL SECONDS: rank 3 stops, and gets SIGNAL when the others have ended, or so much later.
stop_rank3() {
  begin 4 1 $((silent + 60 * slower)) || return 1
  kill -STOP "$(job_pid rank3)"
  job_last rank3 "$1" "$2"
}

# Its kernel takes what is sent. The others hear nothing of its end until long after they have to know.
stop_for_ever() {
  stop_rank3 KILL $((stopped + 20)) && finish error "$stopped" 3 && all_remote 3 && named 3
}

# It goes on when the others have given up: then it has to end, too.
stop_too_long() { stop_rank3 CONT "$stopped" && finish error $((stopped + 20)) && all_remote && named 3; }

# late OPTION…: rank 3 is late for its first operation: the others wait for connections that it has not asked for yet.
late() {
  hosts_make 2 1 4 && job_open || return 1
  members $((silent + 60 * slower)) "$@"
  # shellcheck disable=SC2046
  job_await "$start_s" $(files joined) || { say="the members did not join"; return 1; }
  job_nap 3
  strike
}

# Three times as long as a question may stay unanswered: its service answers for it.
late_first() { late -l 3:30 -s 5 && finish success $((60 * slower)); }

# Meanwhile nothing comes through any more.
late_mute() { late -l 3:20 && host_mute 1 0 && finish error "$silent"; }

# --- A connection ends, both ranks live.

resets() {
  begin "$1" 1 $((closed + 60 * slower)) || return 1
  host_reset 1 || { say="the kernel cannot reset connections"; return 77; }
  stop_after "$closed"
  finish either "$closed"
}
reset_connections() { resets 4; }
reset_connections_v6() { resets 6; }

# cuts HOW: as above, without the kernel's help.
cuts() {
  begin 4 1 $((closed + 60 * slower)) || return 1
  printf %s "$1" >"$job_dir/draft" && mv "$job_dir/draft" "$job_dir/cut.2"
  stop_after "$closed"
  finish either "$closed"
}
cut_shutdown() { cuts shutdown; }
cut_reset() { cuts reset; }

# --- The wire: nothing comes through, nobody says so.

# one_wire HOW FAMILY: the only interface of a host.
one_wire() {
  begin "$2" 1 $((silent + 30 * slower)) || return 1
  "$1" 1 0 || return 1
  finish error "$silent"
}
down_only() { one_wire host_down 4; }
down_only_v6() { one_wire host_down 6; }
unplug_only() { one_wire host_unplug 4; }
mute_only() { one_wire host_mute 4; }

# two_wires HOW INTERFACE: one of two. Success by the other one, or an error: both will do.
two_wires() {
  begin 4 2 $((silent + 30 * slower)) || return 1
  "$1" 1 "$2" || return 1
  stop_after 8
  finish either "$silent"
}
down_first() { two_wires host_down 0; }
down_second() { two_wires host_down 1; }
mute_first() { two_wires host_mute 0; }

# A host that is switched off: its ranks die, and nobody hears of it.
power_off() {
  begin 4 1 $((silent + 30 * slower)) || return 1
  host_mute 1 0 || return 1
  kill -KILL "$(job_pid rank2)" "$(job_pid rank3)"
  finish error "$silent" 2 3
}

# Three seconds are no reason to give up; as users have it, because the kernel lets who takes a wire back wait while other scenarios' hosts come and go.
flap() {
  ranks_env=(NCCL_NET_TIMEOUT=60)
  begin 4 1 $((90 * slower)) || return 1
  host_mute 1 0 && job_nap 3 && host_unmute 1 0 || return 1
  stop_after 1
  finish success $((60 * slower))
}

# --- One-sided operations, two ranks on two hosts: who fails is named, though no collective ever runs.

# puts OPTION…: begins.
puts() {
  each=1
  begin 4 1 $((silent + 60 * slower)) -k puts "$@"
}

# all_named: each of the two names the other one.
all_named() {
  local rank
  for rank in 0 1; do
    sed -n "s/.*FAILED at [^:]*: //p" "$job_dir/rank$rank.out" | grep -qE "rank $((1 - rank))\b" || { say="rank $rank does not name rank $((1 - rank))"; return 1; }
  done
}

puts_cut() { puts && host_unplug 1 0 && finish error "$silent" && all_remote && all_named; }
puts_cut_large() { puts -c 4000000 -p 0 && host_mute 1 0 && finish error "$silent" && all_remote && all_named; }
puts_killed() {
  puts -p 0 || return 1
  kill -KILL "$(job_pid rank1)"
  finish error "$closed" 1 && all_remote 1 && named 1
}

# What a put brings is right on a wire that carries 100 Mbit/s, and on one with delays.
puts_slow() {
  puts -c 100000 && { host_rate 0 0 100mbit && host_rate 1 0 100mbit || host_netem 1 0 delay 20ms; } || { say="no slow wire"; return 77; }
  stop_after 3
  finish success $((60 * slower))
}

# Three seconds without a wire.
puts_flap() {
  ranks_env=(NCCL_NET_TIMEOUT=60)
  puts && host_mute 1 0 && job_nap 3 && host_unmute 1 0 || return 1
  stop_after 1
  finish success $((60 * slower))
}

# --- Ports run out on host 1.

# narrow FIRST LAST: the ports that the kernel gives out there.
narrow() { host_run 1 bash -c "echo '$1 $2' >/proc/sys/net/ipv4/ip_local_port_range"; }

# hog FIRST LAST: takes them all.
hog() {
  host_exec 1 "$member" hog "$1" "$2" </dev/null >"$job_dir/hog.out" 2>&1 &
  disown $!
  job_await_text "$job_dir/hog.out" 'hog: [1-9]' 10 || { say="the ports could not be taken"; return 1; }
}

# job_await_text FILE PATTERN SECONDS
job_await_text() {
  local end=$(($(now) + $3 * 1000000))
  until grep -qs "$2" "$1"; do
    [ "$(now)" -lt "$end" ] || return 1
    job_nap 0.02
  done
}

# ports WHAT FIRST LAST [hog]: before anybody starts. Where all are to fail they need no more patience for being slow.
ports() {
  local patience=10
  [ "$1" = error ] || patience=$((10 * slower))
  ranks_env=("NCCL_BOOTSTRAP_TIMEOUT=$patience")
  hosts_make 2 1 4 && job_open && narrow "$2" "$3" || return 1
  [ "${4:-}" = "" ] || hog "$2" "$3" || return 1
  strike
  members $((60 * slower))
  stop_after 5
  finish "$1" $((30 * slower))
}
ports_none() { ports error 40000 40010 hog; }
ports_few() { ports either 40000 40005; }

# When the communicator stands and the connections for data are still to be made.
ports_later() {
  hosts_make 2 1 4 && job_open || return 1
  members $((silent + 30 * slower)) -w
  # shellcheck disable=SC2046
  job_await "$start_s" $(files joined) || { say="the members did not join"; return 1; }
  narrow 40000 40010 && hog 40000 40010 || return 1
  strike
  : >"$job_dir/go"
  stop_after 5
  finish either "$silent"
}

# --- Addresses that lead nowhere, in front of one that does.

# dead_ends KIND WHAT SETTING…
dead_ends() {
  local kind=$1 what=$2 host patience=20
  shift 2
  [ "$what" = error ] || patience=$((20 * slower))
  ranks_env=("NCCL_BOOTSTRAP_TIMEOUT=$patience" "$@")
  hosts_make 2 0 4 && job_open || return 1
  for host in 0 1; do host_dead_end "$host" dead0 "$kind" || return 1; done # first, so that they come first in the system's order, too
  hosts_plane 0 4 || return 1
  strike
  members $((90 * slower))
  stop_after 5
  finish "$what" $((60 * slower))
}
dead_first_refused() { dead_ends refused success NCCL_SOCKET_IFNAME==dead0,eth0; }
dead_first_silent() { dead_ends silent success NCCL_SOCKET_IFNAME==dead0,eth0; }
dead_first_unasked() { dead_ends silent success; }
dead_only() { dead_ends silent error NCCL_SOCKET_IFNAME==dead0; }

# ---

# Long ones first.
scenarios="puts_cut puts_cut_large down_only down_only_v6 unplug_only mute_only power_off down_first down_second mute_first ports_later stop_for_ever stop_too_long
  stop_all late_first late_mute dead_only
  kill_mixed kill_small kill_large kill_ring_v6 kill_nonblocking kill_four_hosts kill_host kill_slow_wire kill_inits stop_and_go stop_and_go_v6
  reset_connections reset_connections_v6 cut_shutdown cut_reset flap ports_none ports_few dead_first_refused dead_first_silent
  dead_first_unasked puts_killed puts_slow puts_flap"

scenarios_asked "$scenarios" "$@"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $scenarios
scenarios_run "$build" "${NETNS_JOBS:-6}" member.c 60 "$@"
