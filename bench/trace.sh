#!/usr/bin/env bash
# trace.sh [BUILD]: what the bundled profiler costs: an all-reduce of 64 KB between two processes with and without it, in turn; then how much memory the processes
# take as the run becomes ten times as long, and whether the time line opens. docs/plugins/trace.md has figures.
#   TRACE_ROUNDS=9    runs of each kind; their medians are printed
#   TRACE_ITERS=500   operations queued at once, in 20 batches a run
#   TRACE_EVENTS=1000000  of the longest run, both ranks together
set -u
build=$(cd "${1:-${BUILD:-build}}" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1
out=$build/bench
mkdir -p "$out" || exit 1
# shellcheck source=bench/build.sh
. bench/build.sh
perf=$build/bin/all_reduce_perf tool=$build/bin/tutti-trace
[ -x "$perf" ] && [ -f "$build/lib/libnccl-profiler-trace.so" ] || { echo "trace.sh: no perf programs or no plugin in $build" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset "${!NCCL_@}" "${!TUTTI_TRACE_@}"
rounds=${TRACE_ROUNDS:-9} iters=${TRACE_ITERS:-500} events=${TRACE_EVENTS:-1000000}

# run KIND BATCHES: its output in $tmp/log, its files in $tmp/KIND
run() {
  local kind=$1 variables=()
  rm -rf "${tmp:?}/$kind"
  mkdir "$tmp/$kind"
  case $kind in
    without) ;;
    traced) variables=(NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR="$tmp/$kind") ;;
    ring) variables=(NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR="$tmp/$kind" TUTTI_TRACE_RING=1) ;;
  esac
  env "${variables[@]}" "$perf" -P 2 -b 64K -e 64K -n "$iters" -N "$2" -w 100 -c 0 >"$tmp/log" 2>&1 || { tail -5 "$tmp/log" >&2; exit 1; }
}

median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# otherData KEY FOLDER: the sum of all ranks
other_data() { grep -ho "\"$1\": *[0-9]*" "$2"/*.json | awk -F: '{ n += $2 } END { print n + 0 }'; }

say_machine
echo "all-reduce of 64 KB, 2 processes, $iters operations at once, 20 batches a run; medians of $rounds runs of each kind, in turn"
for ((round = 0; round < rounds; round++)); do
  for kind in without traced ring; do
    run $kind 20
    # out of place and in place, a line of each batch: the run's median
    awk '$1 == 65536 { print $6; print $10 }' "$tmp/log" | median >>"$tmp/$kind.times"
  done
done
plain=$(median <"$tmp/without.times")
for kind in without traced ring; do
  printf '%-24s %10.2f us  %+6.1f %%\n' "$kind" "$(median <"$tmp/$kind.times")" \
    "$(awk -v a="$(median <"$tmp/$kind.times")" -v b="$plain" 'BEGIN { print (a / b - 1) * 100 }')"
done

# watch: the most memory that a rank has had, in KB, while the job runs
watch() {
  local most=0 kb pid
  while kill -0 "$1" 2>/dev/null; do
    for pid in $(sed -n 's/.*Rank .* Pid *\([0-9]*\) .*/\1/p' "$tmp/log" 2>/dev/null); do
      kb=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
      [ "${kb:-0}" -le "$most" ] || most=$kb
    done
    sleep 0.02
  done
  echo "$most"
}

# An operation makes 6 events and a half at each rank; each batch is measured twice, out of place and in place.
echo
printf '%-10s %12s %12s %12s %12s %12s\n' kind batches 'events' 'lost' 'file MB' 'VmHWM KB'
for batches in $((events / 10 / (iters * 24) + 1)) $((events / (iters * 24) + 1)); do
  for kind in without traced; do
    : >"$tmp/log"
    run $kind "$batches" &
    hwm=$(watch $!)
    wait $! || exit 1
    printf '%-10s %12d %12d %12d %12.1f %12d\n' $kind "$batches" "$(other_data written "$tmp/$kind" 2>/dev/null)" \
      "$(other_data lost_ring_full "$tmp/$kind" 2>/dev/null)" "$(du -sk "$tmp/$kind" | awk '{ print $1 / 1024 }')" "$hwm"
  done
done
if [ -x "$tool" ]; then
  start=$SECONDS
  "$tool" report "$tmp"/traced/*.json -o "$tmp/page.html" || exit 1
  echo "tutti-trace report: $((SECONDS - start)) s, a page of $(($(wc -c <"$tmp/page.html") / 1024)) KB"
fi
