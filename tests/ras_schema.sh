#!/usr/bin/env bash
# ras_schema.sh BUILD: ncclras beside a running job: its JSON is as docs/ras.schema.json has it, and
# tutti-trace takes the flight recorders that it prints.
# shellcheck disable=SC2154 # variables of the sourced file
set -u
build=$(cd "$1" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd)
perf=$build/bin/all_reduce_perf
[ -x "$perf" ] && [ -x "$build/bin/ncclras" ] || { echo "skipped: the perf programs or ncclras are not built"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
tmp=$(mktemp -d)
job=
trap '[ -z "$job" ] || { kill "$job"; wait "$job"; } 2>/dev/null; rm -rf "$tmp"' EXIT
unset "${!NCCL_@}"
. "$here/netns/ranks.sh"
ranks_next_port
port=$ranks_port
NCCL_RAS_ADDR=localhost:$port timeout 120 "$perf" -P 3 -b 1024 -e 1024 -n 100000000 >"$tmp/log" 2>&1 &
job=$!

for ((i = 0; i < 300; i++)); do # until the job stands
  "$build/bin/ncclras" -p "$port" -f json >"$tmp/report" 2>"$tmp/errors" && grep -q '"ranks_count": 3' "$tmp/report" && break
  kill -0 "$job" 2>/dev/null || break
  sleep 0.1
done
python3 "$here/ras_schema.py" "$tmp/report" || { echo "FAILED: the report"; cat "$tmp/errors" "$tmp/report"; tail -5 "$tmp/log"; exit 1; }
echo "ok: the report"
"$build/bin/ncclras" -p "$port" RECORDER 20 >"$tmp/recorder.json" || { echo "FAILED: RECORDER"; cat "$tmp/log"; exit 1; }
if [ -x "$build/bin/tutti-trace" ]; then
  "$build/bin/tutti-trace" summary "$tmp/recorder.json" >"$tmp/summary" || { echo "FAILED: tutti-trace"; exit 1; }
  grep -q "AllReduce" "$tmp/summary" || { echo "FAILED: no operations"; cat "$tmp/summary"; exit 1; }
  echo "ok: the recorders"
fi
