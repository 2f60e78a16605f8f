#!/usr/bin/env bash
# trace_clocks.sh BUILD: two processes whose clocks are a thousand seconds apart (a time namespace each), over the network: `tutti-trace merge` puts them on one
# clock. What the kernel tells of the namespaces is exact; without it the messages tell, and how far they may be wrong is said, and true.
# shellcheck disable=SC2154 # variables of the sourced files
set -u
. "$(dirname "$0")/trace/begin.sh" "$1"
. "$(dirname "$0")/netns/ranks.sh"
perf=$build/bin/all_reduce_perf tool=$build/bin/tutti-trace
[ -x "$perf" ] && [ -x "$tool" ] && [ -f "$build/lib/libnccl-profiler-trace.so" ] || { echo "skipped: the perf programs, the plugin or tutti-trace are not built"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3 to read the time lines"; exit 77; }
other_clock=(unshare -rT --monotonic 1000)
"${other_clock[@]}" true 2>/dev/null || { echo "skipped: no time namespaces here (util-linux 2.36, Linux 5.6 with CONFIG_TIME_NS, and the right to make one)"; exit 77; }

# job: both ranks
job() {
  local rank pids=()
  ranks_next_port
  rm -f "$tmp"/*.json
  for rank in 0 1; do
    local clock=()
    [ $rank = 0 ] || clock=("${other_clock[@]}")
    env RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$ranks_port NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR="$tmp" NCCL_DEBUG=WARN \
      NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 timeout 300 "${clock[@]}" "$perf" -b 8 -e 4K -f 8 -n 200 -w 5 -c 0 >"$tmp/log$rank" 2>&1 &
    pids+=($!)
  done
  wait "${pids[0]}" && wait "${pids[1]}"
}

for _ in 1 2 3; do # the port may have become somebody else's since it was looked at
  job && break
  grep -i 'address already in use' "$tmp"/log? >"$tmp/lines" || break
done
report "the job" "$([ "$(find "$tmp" -name '*.json' | wc -l)" = 2 ] || tail -5 "$tmp"/log?)"

cat >"$tmp/clocks.py" <<'END'
import glob, json, re, subprocess, sys
tool, folder = sys.argv[1:3]
APART = 1e9  # microseconds

def run(*args):
    return subprocess.run([tool, *args], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout

def operations(trace, pid):
    return {(e['ts'], e['dur'], e['args']['seq'], e['name']) for e in trace['traceEvents'] if e.get('cat') == 'op' and e['pid'] == pid}

def spans(merged):
    return [{seq: (ts, ts + dur) for ts, dur, seq, _ in operations(merged, pid)} for pid in (0, 1)]

def late(merged):
    # Nobody leaves an all-reduce before all have come: what one begins after another has ended the clocks are apart by.
    a, b = spans(merged)
    return max(max(a[seq][0], b[seq][0]) - min(a[seq][1], b[seq][1]) for seq in a.keys() & b.keys())

def shift(merged, files):
    # By how much rank 1's clock was shifted against rank 0's, from the first operation of each.
    first = [min(e['ts'] for e in json.load(open(f))['traceEvents'] if e.get('cat') == 'op') for f in files]
    put = [min(ts for ts, _, _, _ in operations(merged, pid)) for pid in (0, 1)]
    return (put[1] - first[1]) - (put[0] - first[0])

files = [glob.glob(f'{folder}/*-r{rank}.json')[0] for rank in (0, 1)]
ahead = [json.load(open(f))['otherData'].get('clock_ahead_ns') for f in files]
if None in ahead or ahead[1] - ahead[0] != APART * 1000:
    sys.exit(f'clock_ahead_ns: {ahead}')
merged = json.loads(run('merge', *files))
if abs(shift(merged, files) + APART) > 0.01:
    sys.exit(f'told by the kernel: shifted by {shift(merged, files)}')
if late(merged) > 20:
    sys.exit(f'told by the kernel: an operation begins {late(merged):.3f} us after its end elsewhere')
print(f'told by the kernel: shifted by {shift(merged, files):.3f} us, operations overlap by {-late(merged):.3f} us and more', file=sys.stderr)

# As from two machines.
for rank in 0, 1:
    trace = json.load(open(files[rank]))
    del trace['otherData']['clock_ahead_ns']
    files[rank] = f'{folder}/without{rank}.json'
    json.dump(trace, open(files[rank], 'w'))
merged = json.loads(run('merge', *files))
said = re.search(r'clock of .*: shifted by (\S+) us, .*measured with messages, within (\S+) us', run('summary', *files))
if said is None:
    sys.exit('not measured: ' + run('summary', *files))
within = float(said.group(2))
wrong = shift(merged, files) + APART
print(f'measured with messages: wrong by {wrong:.3f} us, within {within:.3f} us as is said', file=sys.stderr)
if abs(wrong) > within + 0.01:
    sys.exit(f'measured with messages: wrong by {wrong:.3f} us, not within {within:.3f} us')
END
report "one clock" "$(python3 "$tmp/clocks.py" "$tool" "$tmp" 2>"$tmp/figures" >"$tmp/out" || tail -1 "$tmp/figures")"
cat "$tmp/figures"
exit $failed
