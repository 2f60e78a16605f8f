# scenarios.sh: the scenarios of a script, functions that make hosts and jobs of their own: several at a time, a line for each. Sourced, after lib.sh
# and job.sh.
# shellcheck shell=bash
#
#   scenarios_asked "one two" "$@"            `list` prints their names; ends the script where a name is wrong or no hosts can be made
#   scenarios_run build 3 relay.c 25 "$@"     three at a time
#
# A scenario leaves what it found in $say, and ends with status 0, 77 (this kernel cannot do that), or another one: it failed. Its processes are a job's:
# Ctrl-C ends them all.

scenarios_title=$(basename "$0" .sh)
scenarios_dir="" # what each printed, and the member's program
say=""           # what a scenario found

# scenarios_asked SCENARIOS [NAME…]
scenarios_asked() {
  local all=$1 name
  shift
  for name; do
    case " list $all " in *[[:space:]]"$name"[[:space:]]*) ;; *) echo "$scenarios_title: no scenario $name (list prints them)"; exit 2 ;; esac
  done
  [ "${1:-}" != list ] || { echo "$all" | tr -s ' \n' '\n'; exit 0; }
  hosts_possible || exit 77
}

# scenario_one LINES NAME: in a shell of its own; its output is one line and, when it went wrong, the last lines of everybody.
scenario_one() {
  local res start=$SECONDS
  scenario=$2
  trap '' INT # Ctrl-C goes to all: the first shell hears it, and sends TERM
  trap 'exit 143' TERM
  trap 'trap "" TERM; job_close; hosts_remove; cat "$scenarios_dir/$scenario.out" >&3' EXIT
  exec 3>&1 >"$scenarios_dir/$scenario.out" 2>&1
  say="its hosts, processes or mischief could not be set up"
  "$2" 3>&-
  res=$?
  case $res in
    0) echo "ok: $2: $say ($((SECONDS - start)) s)" ;;
    77) echo "skipped: $2: $say" ;;
    *)
      echo "FAILED: $2: $say"
      [ -z "$job_dir" ] || job_tell "$1"
      ;;
  esac
}

# scenarios_stop: each one's shell ends its job and removes its hosts.
scenarios_stop() {
  local shells
  trap '' INT TERM
  shells=$(jobs -p)
  # shellcheck disable=SC2086
  [ -z "$shells" ] || kill -TERM $shells 2>/dev/null
  wait
  exit 130
}

# scenarios_run BUILD AT_A_TIME MEMBER LINES NAME…: $member is the program made of MEMBER, a file beside this one. Ends the script.
scenarios_run() {
  local build=$1 at_a_time=$2 source=$3 lines=$4 running=0 name passed failed
  shift 4
  scenarios_dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$scenarios_dir"' EXIT
  trap scenarios_stop INT TERM
  # shellcheck disable=SC2034 # for the scenarios
  member=$scenarios_dir/member
  job_build_member "$build" "$member" "$source" || { echo "$source does not compile"; exit 1; }
  for name; do
    if [ "$running" -ge "$at_a_time" ]; then
      wait -n
      running=$((running - 1))
    fi
    scenario_one "$lines" "$name" &
    running=$((running + 1))
  done
  wait
  passed=$(cat "$scenarios_dir"/*.out | grep -ac '^ok: ')
  failed=$(($# - passed - $(cat "$scenarios_dir"/*.out | grep -ac '^skipped: ')))
  echo "$scenarios_title: $passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}
