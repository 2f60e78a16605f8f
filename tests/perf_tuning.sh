#!/bin/sh
# perf_tuning.sh BUILD: the perf programs' -U: what the library tells of each size, in the table and in JSON, alone and beside another profiler.
set -u
build=$(cd "${1:?usage: perf_tuning.sh BUILD}" && pwd) || exit 1
[ -x "$build/bin/all_reduce_perf" ] || { echo "skipped: all_reduce_perf is not built"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset NCCL_PROFILER_PLUGIN NCCL_HOST_PROXY_EVENTS NCCL_ALGO NCCL_PROTO
failed=0

# row NAME PATTERN PROGRAM OPTION…: the only row of the table ends with what the pattern says.
row() {
  name=$1 pattern=$2 program=$3
  shift 3
  if timeout 300 "$build/bin/${program}_perf" -n 2 -U 1 "$@" >"$tmp/out" 2>"$tmp/err" && grep -v '^#' "$tmp/out" | grep -Eq " $pattern *\$"; then
    echo "ok: $name"
  else
    failed=$((failed + 1))
    echo "FAILED: $name: no line ends with '$pattern'"
    cat "$tmp/out" "$tmp/err"
  fi
}

small="-b 8K -e 8K"
export NCCL_ALGO=Ring NCCL_PROTO=Simple
# shellcheck disable=SC2086
{
  row "processes" 'collective +RING +SIMPLE +RING_SIMPLE +1 +1 +[0-9]+' all_reduce -P 2 $small
  row "threads, ranks per thread" 'collective +RING +SIMPLE +RING_SIMPLE +1 +1 +[0-9]+' all_reduce -t 2 -g 2 $small
  row "a graph" 'collective +RING +SIMPLE +RING_SIMPLE +1 +1 +[0-9]+' all_reduce -P 2 -G 2 $small
  row "sends and receives" 'p2p +N/A +N/A +N/A +1 +N/A +[0-9]+' sendrecv -P 2 $small
  row "a stamp comes last" 'RING_SIMPLE +1 +1 +[0-9]+ +[0-9]{4}-[0-9-]+ [0-9:]+' all_reduce -P 2 -S 1 $small
  row "nothing to do" 'N/A +N/A +N/A +N/A +N/A +N/A +N/A' all_gather -t 2 -b 4 -e 4
  NCCL_PROTO=LL row "another protocol" 'collective +RING +LL +RING_LL +1 +1 +[0-9]+' all_reduce -P 2 $small
  NCCL_PROFILER_PLUGIN=none row "profilers forbidden, -U asked for" 'RING_SIMPLE +1 +1 +[0-9]+' all_reduce -P 2 $small
  # The other profiler is told of no message in common memory, because it has not asked: no chunk.
  NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR=$tmp row "beside another profiler" 'RING_SIMPLE +1 +1 +N/A' all_reduce -P 2 $small
  [ "$(find "$tmp" -name 'tutti-trace-*.json' | wc -l)" -eq 2 ] || { failed=$((failed + 1)); echo "FAILED: the other profiler wrote nothing"; }
  NCCL_PROFILER_PLUGIN=a,b,c,d row "no room for it" 'N/A +N/A +N/A +N/A +N/A +N/A +N/A' all_reduce -P 2 $small
  [ "$(grep -c -- '-U: the library does not tell this program' "$tmp/err")" -eq 1 ] || { failed=$((failed + 1)); echo "FAILED: not said once"; }
  row "JSON" 'RING_SIMPLE +1 +1 +[0-9]+' all_reduce -P 2 -J "$tmp/t.json" $small
}
if command -v python3 >/dev/null; then
  python3 - "$tmp/t.json" <<'END' || { failed=$((failed + 1)); echo "FAILED: the JSON file"; }
import json, sys
x = json.load(open(sys.argv[1]))
t = x["results"][0]["tuning"]
chunk = t.pop("chunk")
assert x["version"] == 4 and 0 < chunk <= 8192, x
assert t == {"implementation": "collective", "algo": "RING", "proto": "SIMPLE", "variant": "RING_SIMPLE", "#channels": 1, "#warps": 1}, t
END
fi
if timeout 300 "$build/bin/all_reduce_perf" -U 2 >"$tmp/out" 2>&1 || ! grep -q -- "-U,--report_tuning '2': must be 0 to 1" "$tmp/out"; then
  failed=$((failed + 1))
  echo "FAILED: -U 2"
fi
[ "$failed" -eq 0 ]
