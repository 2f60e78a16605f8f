# job.sh: a job: several processes that belong together, usually one per rank. Sourced by bash scripts, beside lib.sh.
# shellcheck shell=bash
#
#   job_open                             a folder for their outputs
#   job_add rank0 host_exec 0 prog …     starts one in the background; its output goes to $job_dir/rank0.out
#   job_last rank3 KILL 40               in the background: rank3 is killed when the others have ended, after 40 s at the latest
#   job_wait 60 10 || job_tell           waits; at most 60 s, and 10 s more once one has failed; then kills
#   job_close
#
# Every process dies with the shell that started it, and by job_close at the latest.

job_dir="" # folder with what they print, and what they share
job_napping="" # the process id of the sleep in progress
job_labels=() job_pids=() job_status=() # status: empty while running, a number, or "hung" when it had to be killed

# job_nap SECONDS: not with read -t, whose alarm ends bash 5.2 once in many thousand naps ("longjmp causes uninitialized stack frame").
# In the background, so that a signal is heard at once.
job_nap() {
  sleep "$1" &
  job_napping=$!
  wait "$job_napping"
  job_napping=""
}

# job_slower BUILD: how much longer things take with this build: 1, or more when it is instrumented.
job_slower() {
  case $(sed -n 's/^TUTTI_SANITIZE:STRING=//p' "$1/CMakeCache.txt") in
    '') echo 1 ;;
    *thread*) echo 10 ;;
    *) echo 5 ;;
  esac
}

job_open() {
  job_close
  job_dir=$(mktemp -d) || return 1
  job_labels=() job_pids=() job_status=()
}

job_close() {
  [ -z "$job_napping" ] || kill "$job_napping" 2>/dev/null
  [ -n "$job_dir" ] || return 0
  job_kill KILL
  wait "${job_pids[@]}" 2>/dev/null
  rm -rf "$job_dir"
  job_dir="" job_labels=() job_pids=() job_status=()
}

# here_exec COMMAND…: as host_exec, on this machine.
here_exec() { exec setpriv --pdeathsig KILL "$@"; }

# job_add LABEL COMMAND…: the command is a program, or a function that ends in exec.
job_add() {
  local label=$1
  shift
  "$@" </dev/null >"$job_dir/$label.out" 2>&1 &
  job_labels+=("$label") job_pids+=($!) job_status+=("")
}

# job_pid LABEL
job_pid() {
  local i
  for i in "${!job_labels[@]}"; do [ "${job_labels[i]}" != "$1" ] || echo "${job_pids[i]}"; done
}

# job_kill SIGNAL: all that still run.
job_kill() {
  local i
  for i in "${!job_pids[@]}"; do [ -n "${job_status[i]}" ] || kill -"$1" "${job_pids[i]}" 2>/dev/null; done
}

# job_last LABEL SIGNAL SECONDS: in the background: this one gets SIGNAL when all others have ended, but after SECONDS at the latest.
job_last() {
  local i pid="" others=() end=$((${EPOCHREALTIME/[.,]/} + $3 * 1000000))
  for i in "${!job_labels[@]}"; do
    if [ "${job_labels[i]}" = "$1" ]; then pid=${job_pids[i]}; else others+=("${job_pids[i]}"); fi
  done
  {
    while kill -0 "${others[@]}" 2>/dev/null && [ "${EPOCHREALTIME/[.,]/}" -lt "$end" ]; do job_nap 0.1; done
    kill -"$2" "$pid"
  } &
}

# Notes who has ended. True while somebody runs; job_bad counts those that ended badly.
job_look() {
  local i running=1
  job_bad=0
  for i in "${!job_pids[@]}"; do
    if [ -z "${job_status[i]}" ] && ! kill -0 "${job_pids[i]}" 2>/dev/null; then
      wait "${job_pids[i]}" 2>/dev/null
      job_status[i]=$?
    fi
    if [ -z "${job_status[i]}" ]; then running=0; elif [ "${job_status[i]}" != 0 ]; then job_bad=$((job_bad + 1)); fi
  done
  return $running
}

# job_wait SECONDS GRACE: until all have ended; true when all did so with status 0. GRACE empty: failures do not shorten the time.
job_wait() {
  local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000)) early now i
  while job_look; do
    now=${EPOCHREALTIME/[.,]/}
    if [ "$job_bad" -gt 0 ] && [ -n "${2:-}" ]; then
      early=$((now + $2 * 1000000))
      [ "$end" -le "$early" ] || end=$early
      set -- "$1"
    fi
    if [ "$now" -ge "$end" ]; then
      for i in "${!job_pids[@]}"; do
        [ -z "${job_status[i]}" ] || continue
        kill -KILL "${job_pids[i]}" 2>/dev/null
        wait "${job_pids[i]}" 2>/dev/null
        job_status[i]=hung
      done
    fi
    job_nap 0.05
  done
  for i in "${job_status[@]}"; do [ "$i" = 0 ] || return 1; done
}

# job_await SECONDS FILE…: until the files are there (in job_dir). False when time is up, when all have ended, and when one has ended badly. A process
# that has ended well says nothing about the others: theirs may still come.
job_await() {
  local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000)) file
  shift
  for file; do
    while [ ! -e "$job_dir/$file" ]; do
      [ "${EPOCHREALTIME/[.,]/}" -lt "$end" ] || return 1
      if ! job_look || [ "$job_bad" -gt 0 ]; then
        [ -e "$job_dir/$file" ] || return 1
      fi
      job_nap 0.02
    done
  done
}

# job_tell [LINES]: who ended how, and the last lines that each printed; a sanitizer's report from its beginning.
job_tell() {
  local i how out
  for i in "${!job_pids[@]}"; do
    how=${job_status[i]}
    case $how in
      '') how="still runs" ;;
      hung) how="did not end and was killed" ;;
      *) if [ "$how" -gt 128 ]; then how="died by signal $((how - 128))"; else how="exit status $how"; fi ;;
    esac
    echo "  --- ${job_labels[i]}: $how"
    out=$job_dir/${job_labels[i]}.out
    if grep -q '^WARNING: ThreadSanitizer\|^==[0-9]*==ERROR: \|: runtime error: ' "$out"; then
      sed -n '/^WARNING: ThreadSanitizer\|^==[0-9]*==ERROR: \|: runtime error: /,$p' "$out" | head -n 120 | sed 's/^/      /'
      echo "      and at last:"
    fi
    tail -n "${1:-12}" "$out" | sed 's/^/      /'
  done
}

# job_build_member BUILD PROGRAM [SOURCE]: compiles member.c, or another one beside it, with the compiler and the sanitizers of the build.
job_build_member() {
  local compiler sanitize
  compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$1/CMakeCache.txt")
  sanitize=$(sed -n 's/^TUTTI_SANITIZE:STRING=//p' "$1/CMakeCache.txt")
  "${compiler:-cc}" -std=gnu11 -O1 -g -Wall -Wextra ${sanitize:+-fsanitize="$sanitize"} -I"$1/include" "$(dirname "${BASH_SOURCE[0]}")/${3:-member.c}" \
    -L"$1/lib" -Wl,-rpath,"$1/lib" -lnccl -pthread -o "$2"
}
