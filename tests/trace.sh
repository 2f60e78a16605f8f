#!/usr/bin/env bash
# trace.sh BUILD: the bundled profiler under real jobs: its time lines are JSON with as many events as the job had operations, the clocks of two processes
# agree, and a folder that cannot be written and a full disk cost events, not the job. (Programs that fork or abort, a disk that hangs: trace_faults_test.c.)
# shellcheck disable=SC2154 # variables of the sourced file
set -u
. "$(dirname "$0")/trace/begin.sh" "$1"
perf=$build/bin/all_reduce_perf
[ -x "$perf" ] && [ -f "$build/lib/libnccl-profiler-trace.so" ] || { echo "skipped: the perf programs or the plugin are not built"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3 to read the time lines"; exit 77; }

# job NAME VARIABLE=VALUE… -- ARGUMENT…: all_reduce_perf with the plugin; its output in $tmp/NAME.log.
job() {
  local name=$1
  shift
  local variables=()
  while [ "$1" != -- ]; do
    variables+=("$1")
    shift
  done
  shift
  env NCCL_PROFILER_PLUGIN=trace NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=PROFILE "${variables[@]}" timeout 300 "$perf" "$@" >"$tmp/$name.log" 2>&1
}

cat >"$tmp/check.py" <<'END'
import glob, json, sys
folder, ranks, ops = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
files = sorted(glob.glob(folder + '/*.json'))
if len(files) != ranks:
    sys.exit(f'{len(files)} files of {ranks}')
spans, clocks = [], set()
for name in files:
    trace = json.load(open(name))
    other, events = trace['otherData'], trace['traceEvents']
    if other['lost_ring_full'] or other['lost_disk'] or not other['finished']:
        sys.exit(f'{name}: not complete: {other}')
    done = [e for e in events if e.get('cat') == 'op']
    if len(done) != ops:
        sys.exit(f'{name}: {len(done)} operations of {ops}')
    if [e['args']['seq'] for e in sorted(done, key=lambda e: e['args']['seq'])] != list(range(ops)):
        sys.exit(f'{name}: numbers of operations are not 0 to {ops - 1}')
    for cat in 'queue', 'call':
        calls = [e for e in events if e.get('cat') == cat and 'AllReduce' in e['name']]
        if len(calls) != ops:
            sys.exit(f'{name}: {len(calls)} of {ops} {cat}')
    if len([e for e in events if e.get('cat') == 'channel']) != sum(e['args']['channels'] for e in done):
        sys.exit(f'{name}: channels are missing')
    ids = {e['args']['id'] for e in events if 'id' in e.get('args', {})}
    if any(e['args']['parent'] not in ids for e in events if e.get('cat') == 'channel'):
        sys.exit(f'{name}: a channel has no parent')
    if sum(e['ph'] == 'X' for e in events) != other['written']:
        sys.exit(f'{name}: {other["written"]} events are said to be written')
    spans.append({e['args']['seq']: (e['ts'], e['ts'] + e['dur']) for e in done})
    clocks.add(other['clock'])
if len(clocks) != 1:
    sys.exit(f'clocks: {clocks}')
# Nobody leaves an all-reduce before all have come: every two spans overlap. 20 microseconds are what clocks may differ by.
for seq in range(ops):
    begin, end = max(s[seq][0] for s in spans), min(s[seq][1] for s in spans)
    if begin > end + 20:
        sys.exit(f'operation {seq}: one rank begins {begin - end:.1f} us after another has ended')
END

mkdir "$tmp/two"
job two TUTTI_TRACE_DIR="$tmp/two" -- -P 2 -b 64 -e 64K -f 32 -n 10 -w 2 -c 0
report "two processes: the job" "$([ $? = 0 ] || tail -5 "$tmp/two.log")"
ops=$(python3 -c 'import json,sys,glob; print(sum(e.get("cat") == "op" for e in json.load(open(glob.glob(sys.argv[1] + "/*r0.json")[0]))["traceEvents"]))' "$tmp/two")
report "two processes: operations" "$([ "${ops:-0}" -ge 60 ] || echo "only ${ops:-0}")"
report "two processes: time lines" "$(python3 "$tmp/check.py" "$tmp/two" 2 "$ops" 2>&1)"
counted=$(awk '$1 == "AllReduce" { n += $3 } END { print n + 0 }' "$tmp"/two/*r0.txt)
report "two processes: the summary counts them all" "$([ "$counted" = "$ops" ] || echo "$counted of $ops")"

tool=$build/bin/tutti-trace
if [ -x "$tool" ]; then
  "$tool" summary "$tmp"/two/*.json >"$tmp/summary" 2>&1
  report "tutti-trace summary" "$([ $? = 0 ] && awk -v n=$((2 * ops)) '$1 == "AllReduce" { c += $3 } END { exit c != n }' "$tmp/summary" || cat "$tmp/summary")"
  "$tool" workload "$tmp"/two/*.json -o "$tmp/job.csv" 2>"$tmp/errors"
  report "tutti-trace workload" "$([ $? = 0 ] && awk -F, -v n="$ops" '$1 == "allreduce" && $3 == 2 && $5 > 0 { c += $4 } END { exit c != n }' "$tmp/job.csv" || cat "$tmp/errors" "$tmp/job.csv")"
  if [ -x "$build/bin/tutti-topo" ]; then
    "$build/bin/tutti-topo" simulate --measured -N 2 --workload "$tmp/job.csv" >"$tmp/predicted" 2>&1
    report "the job predicted on two machines" "$([ $? = 0 ] && grep -q "2 ranks on 2 machines" "$tmp/predicted" && grep -q "^# all: $ops collectives took .*%)" "$tmp/predicted" || cat "$tmp/predicted")"
    "$build/bin/tutti-topo" simulate --workload "$tmp/job.csv" tests/topologies/known/hgx_h100_8gpu_nvswitch_8nic/input.xml >"$tmp/predicted" 2>&1
    report "the job predicted on GPUs" "$([ $? = 0 ] && grep -q "^# all: $ops collectives took " "$tmp/predicted" || cat "$tmp/predicted")"
  fi
  "$tool" merge "$tmp"/two/*.json -o "$tmp/job.json" 2>"$tmp/errors"
  report "tutti-trace merge" "$([ $? = 0 ] && python3 -c '
import glob, json, sys
count = lambda name: len(json.load(open(name))["traceEvents"])
if count(sys.argv[1]) != sum(count(name) for name in glob.glob(sys.argv[2] + "/*.json")):
    sys.exit("events are missing")
' "$tmp/job.json" "$tmp/two" 2>&1 || cat "$tmp/errors")"
  ln -s two "$tmp/link"
  first=$(ls "$tmp"/two/*r0.json)
  said=$("$tool" merge "$first" -o "$tmp/link/${first##*/}" 2>&1)
  report "tutti-trace: an input by another name" "$([ $? = 2 ] && [[ $said == *"is one of the inputs"* ]] && [ -s "$first" ] || echo "$said")"
  head -c 20000 "$(ls "$tmp"/two/*r0.json)" >"$tmp/cut.json"
  for file in "$tmp/cut.json" "$tmp/job.json" "$tmp/two" "$tmp/nothing.json" "$perf"; do
    said=$("$tool" summary "$file" 2>&1)
    report "tutti-trace refuses ${file##*/}" "$([ $? = 2 ] && [[ $said == "tutti-trace: $file"* ]] || echo "$said")"
  done
  said=$("$tool" merge "$tmp"/two/*.json 2>&1 >/dev/full)
  report "tutti-trace: a full disk" "$([ $? = 1 ] && [[ $said == *"cannot be written"* ]] || echo "$said")"
fi

mkdir "$tmp/net"
job net TUTTI_TRACE_DIR="$tmp/net" NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 -- -P 2 -b 1M -e 1M -n 5 -w 1 -c 0
report "over the network: the job" "$([ $? = 0 ] || tail -5 "$tmp/net.log")"
report "over the network: arrows meet" "$(python3 - "$tmp/net" <<'END' 2>&1
import glob, json, sys
begins, ends = set(), set()
messages = 0
for name in glob.glob(sys.argv[1] + '/*.json'):
    for e in json.load(open(name))['traceEvents']:
        messages += e.get('cat') == 'message'
        if e['ph'] == 's': begins.add(e['id'])
        if e['ph'] == 'f': ends.add(e['id'])
if messages == 0 or begins != ends or len(begins) * 2 != messages:
    sys.exit(f'{len(begins)} begin, {len(ends)} end, {messages} messages, {len(begins ^ ends)} differ')
END
)"

report "over the network: an operation starts with its first channel, however long it was queued" "$(python3 - "$tmp/net" <<'END' 2>&1
import glob, json, sys
for name in glob.glob(sys.argv[1] + '/*.json'):
    starts, ops = {}, []
    for e in json.load(open(name))['traceEvents']:
        if e.get('cat') == 'channel':
            parent = e['args']['parent']
            starts[parent] = min(e['ts'], starts.get(parent, e['ts']))
        ops += [e] if e.get('cat') == 'op' else []
    wrong = [e for e in ops if e['ts'] != starts.get(e['args']['id'])]
    if wrong or not ops:
        sys.exit(f'{name}: {len(wrong)} of {len(ops)} start at another time')
END
)"

mkdir "$tmp/puts"
env NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR="$tmp/puts" timeout 300 "$build/examples/one_sided" >"$tmp/puts.log" 2>&1
report "one-sided: the job" "$([ $? = 0 ] || tail -5 "$tmp/puts.log")"
report "one-sided: puts and waits are operations, and nothing points at them" "$(python3 - "$tmp/puts" <<'END' 2>&1
import glob, json, sys
for name in glob.glob(sys.argv[1] + '/*.json') or sys.exit('no files'):
    events = json.load(open(name))['traceEvents']
    ops = [e for e in events if e.get('cat') == 'op']
    puts, waits = [[e for e in ops if e['name'] == n] for n in ('PutSignal', 'WaitSignal')]
    if not puts or not waits or any(e['args']['bytes'] == 0 for e in puts) or any(e['dur'] <= 0 for e in waits):
        sys.exit(f'{name}: {[(e["name"], e["dur"], e["args"]) for e in ops][:8]}')
    if any(e.get('cat') == 'arrow' for e in events):
        sys.exit(f'{name}: arrows')
END
)"
if [ -x "$tool" ]; then
  "$tool" summary "$tmp"/puts/*.json >"$tmp/summary" 2>&1
  report "one-sided: tutti-trace summary" "$(grep -q '^PutSignal ' "$tmp/summary" || cat "$tmp/summary")"
fi

job unwritable TUTTI_TRACE_DIR="$tmp/none/such" -- -P 2 -b 8 -e 64 -n 5
report "no such folder: the job" "$([ $? = 0 ] || tail -5 "$tmp/unwritable.log")"
report "no such folder: said" "$(grep -c 'WARN trace: rank [01]: cannot create .*none/such.*No such file' "$tmp/unwritable.log" | grep -qx 2 || tail -5 "$tmp/unwritable.log")"
env NCCL_PROFILER_PLUGIN=trace NCCL_DEBUG=WARN TUTTI_TRACE_DIR="$tmp/none/such" TUTTI_TRACE_WAIT=x timeout 300 "$perf" -P 2 -b 8 -e 64 -n 5 >"$tmp/warned.log" 2>&1
report "without NCCL_DEBUG_SUBSYS: the job" "$([ $? = 0 ] || tail -5 "$tmp/warned.log")"
report "without NCCL_DEBUG_SUBSYS: said" "$([ "$(grep -c 'WARN trace: rank [01]: cannot create .*none/such.*No such file' "$tmp/warned.log")" = 2 ] || tail -5 "$tmp/warned.log")"
report "without NCCL_DEBUG_SUBSYS: settings" "$(grep 'WARN trace: TUTTI_TRACE_WAIT=x is no number' "$tmp/warned.log" >"$tmp/lines" || tail -5 "$tmp/warned.log")"
report "no such folder: the summary is in the log" "$(grep 'trace: events: 0 written' "$tmp/unwritable.log" >"$tmp/lines" || tail -5 "$tmp/unwritable.log")"

report "no such folder: the summary names the host" "$([ "$(grep -c "trace: Tutti trace: rank [01] of 2, .* host $(uname -n), process" "$tmp/unwritable.log")" = 2 ] || tail -5 "$tmp/unwritable.log")"

lost() { # FOLDER: is the file whole, and does it say what it lost?
  python3 - "$1" <<'END' 2>&1
import glob, json, sys
files = glob.glob(sys.argv[1] + '/*r0.json')
trace = json.load(open(files[0]))
if trace['otherData']['lost_disk'] == 0 or not trace['otherData']['finished']:
    sys.exit(f'{trace["otherData"]}')
if sum(e['ph'] == 'X' for e in trace['traceEvents']) != trace['otherData']['written']:
    sys.exit(f'not as many as said: {trace["otherData"]}')
END
}

if unshare -rm true 2>/dev/null; then
  mkdir "$tmp/small"
  export -f job
  perf=$perf tmp=$tmp unshare -rm bash -c 'mount -t tmpfs -o size=200k tmpfs "$tmp/small" && job small TUTTI_TRACE_DIR="$tmp/small" -- -P 2 -b 8 -e 64 -n 400 -c 0; s=$?; mkdir "$tmp/kept" && cp "$tmp"/small/* "$tmp/kept"; exit $s'
  report "disk full: the job" "$([ $? = 0 ] || tail -5 "$tmp/small.log")"
  report "disk full: said" "$(grep 'WARN trace: rank 0: cannot write .*No space left' "$tmp/small.log" >"$tmp/lines" || tail -5 "$tmp/small.log")"
  report "disk full: the time line is whole" "$(lost "$tmp/kept")"
  report "disk full: the text says so" "$(grep -E ' [1-9][0-9]* lost because they could not be written .No space left' "$tmp"/kept/*r0.txt "$tmp/small.log" 2>&1 >"$tmp/lines" || echo "nothing of it")"
  mkdir "$tmp/full"
  perf=$perf tmp=$tmp unshare -rm bash -c 'mount -t tmpfs -o size=64k tmpfs "$tmp/full" && { head -c 64K /dev/zero >"$tmp/full/zeros"; job full TUTTI_TRACE_DIR="$tmp/full" -- -P 2 -b 8 -e 64 -n 5 -c 0; s=$?; ls "$tmp/full" >"$tmp/names"; exit $s; }'
  report "full from the first: the job" "$([ $? = 0 ] || tail -5 "$tmp/full.log")"
  report "full from the first: said" "$(grep 'WARN trace: rank 0: cannot write .*No space left' "$tmp/full.log" >"$tmp/lines" || tail -5 "$tmp/full.log")"
  report "full from the first: no time line without a byte" "$(grep json "$tmp/names")"
else
  echo "skipped: no file system of our own here"
fi

mkdir "$tmp/ring"
job ring TUTTI_TRACE_DIR="$tmp/ring" TUTTI_TRACE_RING=1 TUTTI_TRACE_EVENTS=64 -- -P 2 -b 8 -e 64 -n 200 -c 0
report "the last events: the job" "$([ $? = 0 ] || tail -5 "$tmp/ring.log")"
report "the last events: no more than fit" "$(python3 - "$tmp/ring" <<'END' 2>&1
import glob, json, sys
files = glob.glob(sys.argv[1] + '/*.json')
if len(files) != 2:
    sys.exit(f'{len(files)} files')
for name in files:
    events = [e for e in json.load(open(name))['traceEvents'] if e['ph'] == 'X' and e['cat'] != 'op']
    if not 32 <= len(events) <= 64:
        sys.exit(f'{len(events)} events')
END
)"

# Asked for by a signal while the job runs: a file more, and the job does not mind. One request at a time to each rank: when the last one's file is whole nothing
# is being written any more, and the job can be ended.
mkdir "$tmp/asked"
env NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR="$tmp/asked" TUTTI_TRACE_RING=1 TUTTI_TRACE_EVENTS=256 \
  timeout 900 "$perf" -P 2 -b 64K -e 64K -N 0 -c 0 >"$tmp/asked.log" 2>&1 &
supervisor=$!
trap 'kill $supervisor 2>/dev/null; rm -rf "$tmp"' EXIT # it would not end
trap 'exit 130' INT TERM
report "asked by a signal: files while it runs" "$(python3 - "$tmp" <<'END' 2>&1
import glob, json, os, re, signal, sys, time
tmp = sys.argv[1]
end = time.monotonic() + 600

def await_it(what, is_there):
    while not is_there():
        if time.monotonic() > end:
            sys.exit(f'{what}: {len(glob.glob(tmp + "/asked/*.json"))} files')
        time.sleep(0.02)

def ranks():
    return dict(re.findall(r'Rank +([01]) .* Pid +([0-9]+) on', open(tmp + '/asked.log').read()))

def handles(pid): # a rank that has no communicator yet has no handler either
    caught = re.search(r'^SigCgt:\s*([0-9a-f]+)', open(f'/proc/{pid}/status').read(), re.M)
    return int(caught.group(1), 16) >> signal.SIGUSR2 - 1 & 1

def events(name): # None: it is still being written, which for so few events is done at once
    try:
        return sum(e['ph'] == 'X' for e in json.load(open(name))['traceEvents'])
    except ValueError:
        return None

await_it('both ranks', lambda: len(ranks()) == 2)
for rank, pid in ranks().items():
    files = lambda: glob.glob(f'{tmp}/asked/*-r{rank}*.json')
    await_it(f'handler of rank {rank}', lambda: handles(pid))
    for _ in range(100): # those written before the first operations have fewer events
        before = set(files())
        os.kill(int(pid), signal.SIGUSR2)
        await_it(f'rank {rank}', lambda: set(files()) - before)
        name = (set(files()) - before).pop()
        await_it(f'{name} is not whole', lambda: events(name) is not None)
        if events(name) >= 100:
            break
        time.sleep(0.05)
    else:
        sys.exit(f'{name}: {events(name)} events')
END
)"
report "asked by a signal: the job goes on" "$(kill -0 $supervisor 2>&1)"
kill $supervisor
wait $supervisor 2>/dev/null
report "asked by a signal: the files are whole" "$(python3 -c '
import glob, json, sys
for name in glob.glob(sys.argv[1] + "/*.json"):
    json.load(open(name))
' "$tmp/asked" 2>&1)"

exit $failed
