#!/usr/bin/env bash
# trace_browser.sh BUILD: the page of `tutti-trace report` in a real browser, from a file: it loads without a word on the console and asks for nothing else, draws
# what the job did, can be zoomed and moved, and says what is under the pointer. Of many ranks it has a heat map; two runs in a folder are two jobs.
# shellcheck disable=SC2154 # variables of the sourced file
set -u
. "$(dirname "$0")/trace/begin.sh" "$1"
tool=$build/bin/tutti-trace
[ -x "$tool" ] && [ -x "$build/bin/all_reduce_perf" ] || { echo "skipped: tutti-trace is not built"; exit 77; }
for browser in chromium chromium-browser google-chrome ""; do
  if [ -n "$browser" ] && command -v "$browser" >/dev/null; then break; fi
done
[ -n "$browser" ] || { echo "skipped: no chromium"; exit 77; }

# What a reader would do, in the page itself: each line of its verdict begins with "ok" or "not ok".
cat >"$tmp/check.html" <<'END'
<script>
(function () {
  const said = [], check = (name, good) => said.push((good ? 'ok ' : 'not ok ') + name);
  const line = document.getElementById('line'), rate = document.getElementById('rate'), says = document.getElementById('says');
  const data = JSON.parse(document.getElementById('data').textContent);
  const inked = canvas => { // colours that are drawn
    const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
    for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
    return seen.size;
  };
  const from = () => Number(line.dataset.from), to = () => Number(line.dataset.to), span = () => to() - from();
  check('the script has run to its end', document.documentElement.dataset.ready === '1');
  const text = id => document.getElementById(id).textContent;
  check('the title names ranks, host, processes and time', /^2 ranks on \S+, pids \d+ to \d+, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/.test(text('title')));
  check('the facts are there', /2 time lines, [1-9]\d* operations/.test(text('facts')));
  check('the legend names the function', text('legend') === 'AllReduce' && text('curves') === 'algbwbusbw');
  check('the time line is drawn', inked(line) > 5 && line.clientHeight > 50);
  check('the bandwidth is drawn', inked(rate) > 3 && Number(rate.dataset.most) > 0);
  check('a row and a column for each rank', document.querySelectorAll('#waits tr').length === 3 && document.querySelectorAll('#waits td').length === 4);
  check('somebody waited', [...document.querySelectorAll('#waits td')].some(c => Number(c.textContent) > 0));
  check('the summary is there', /AllReduce +65536/.test(document.getElementById('summary').textContent));
  const before = span();
  const wheel = ctrlKey => line.dispatchEvent(new WheelEvent('wheel',
    { deltaY: -1, ctrlKey, clientX: line.getBoundingClientRect().x + 600, clientY: 0, bubbles: true, cancelable: true }));
  check('the wheel alone scrolls the page', wheel(false) && span() === before);
  check('the wheel with Ctrl zooms', !wheel(true) && span() < before);
  const key = k => line.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true, cancelable: true }));
  key('+'); key('+');
  const at = from();
  key('ArrowRight');
  check('an arrow key moves', from() > at);
  document.getElementById('all').click();
  check('and all comes back', from() === 0 && span() === before);
  const longest = data.jobs[0].ranks[0].ops.reduce((a, b) => b[1] > a[1] ? b : a);
  const point = (canvas, x, y) => {
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.x + x, clientY: box.y + y, bubbles: true }));
  };
  point(line, 151 + (longest[0] + longest[1] / 2) / before * (line.clientWidth - 162), 22 + 12);
  check('the pointer finds an operation', /rank 0: AllReduce, [\d,]+ bytes/.test(says.textContent));
  check('with algorithm, protocol, kernel variant and type', /\n[A-Z]+, [A-Z0-9]+, [A-Z0-9_]+, ncclFloat32, \d+ channel/.test(says.textContent));
  check('and its bandwidth', /algbw [\d.]+ GB\/s, busbw [\d.]+ GB\/s/.test(says.textContent));
  point(rate, 400, 100);
  check('the pointer finds a bandwidth', /algbw [\d.]+ GB\/s, busbw/.test(says.textContent));
  const highest = rate.dataset.most;
  for (let i = 0; i < 12; i++) key('+');
  check('the bandwidth follows the zoom', rate.dataset.most !== highest);
  document.getElementById('all').click();
  const height = line.clientHeight;
  document.getElementById('detail').click();
  check('channels appear', line.clientHeight > height);
  document.getElementById('detail').click();
  check('and go', line.clientHeight === height);
  check('nothing from elsewhere', performance.getEntriesByType('resource').length === 0 && !document.querySelector('[src], link[href^=http]'));
  document.body.append(Object.assign(document.createElement('pre'), { id: 'verdict', textContent: '\n' + said.join('\n') + '\nend\n' }));
})();
</script>
END

browse() { # browse PAGE OPTION…: the page's document on standard output, the console in $tmp/console
  local page=$1
  shift
  timeout 300 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$tmp/profile" \
    --window-size=1500,1000 --enable-logging=stderr "$@" --dump-dom "file://$page" 2>"$tmp/console"
}

NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR="$tmp" timeout 300 "$build/bin/all_reduce_perf" -P 2 -b 64 -e 1M -f 128 -n 20 -c 0 >"$tmp/log" 2>&1 ||
  report "the job" "$(tail -5 "$tmp/log")"
# A name that would end the data, were it put there as it is.
sed -i '1,20s|"args":{"name":"channel 0"}|"args":{"name":"</script><b>channel 0"}|' "$tmp"/*-r1.json
"$tool" report "$tmp"/tutti-trace-*.json -o "$tmp/page.html" 2>"$tmp/errors"
report "the page is written" "$([ $? = 0 ] || cat "$tmp/errors")"

judge() { # judge NAME PAGE CHECK OPTION...: what the check says in the page, and the console
  cat "$2" "$3" >"$tmp/checked.html"
  browse "$tmp/checked.html" "${@:4}" >"$tmp/dom"
  report "$1: console" "$(grep -a 'CONSOLE' "$tmp/console" | head -3)"
  verdict=$(sed -n '/<pre id="verdict">/,/<\/pre>/p' "$tmp/dom")
  report "$1: verdict" "$(grep -q '^end' <<<"$verdict" || echo "the check did not run to its end")"
  report "$1: page" "$(grep '^not ok' <<<"$verdict" | tr '\n' ';')"
}

judge light "$tmp/page.html" "$tmp/check.html"
judge dark "$tmp/page.html" "$tmp/check.html" --blink-settings=preferredColorScheme=0 --force-dark-mode

# A job of 64 ranks in which all wait for rank 5, for 100 us, and a day later one of two ranks.
mkdir "$tmp/many"
trace() { # trace COMM RANK RANKS PID START DURATION DAYS [MORE]
  printf '{"traceEvents":[{"name":"AllGather","cat":"op","ph":"X","pid":0,"tid":1,"ts":%d,"dur":%d,"args":{"bytes":1000000,"seq":0}}%s],' \
    "$5" "$6" "${8:-}"
  printf '"otherData":{"tutti_trace":1,"rank":%d,"ranks":%d,"comm":"%s","name":"","host":"h","pid":%d,"clock":"c",' "$2" "$3" "$1" "$4"
  printf '"realtime_minus_monotonic_ns":0,"began_us":%d,"lost_ring_full":0,"lost_disk":0}}' $((86400000000 * $7))
}
for ((rank = 0; rank < 64; rank++)); do
  late=$((rank == 5 ? 100 : 0))
  trace 0x1 $rank 64 $((100 + rank)) $((1000 + late)) $((1100 - late)) 1 >"$tmp/many/a$rank.json"
done
for rank in 0 1; do
  trace 0x2 $rank 2 $((200 + rank)) 1000 1000 2 \
    ',{"name":"Recv","cat":"op","ph":"X","pid":0,"tid":2,"ts":1500,"dur":100,"args":{"bytes":9000000,"seq":0,"peer":1}}' >"$tmp/many/b$rank.json"
done
cat >"$tmp/many.html" <<'END'
<script>
(function () {
  const said = [], check = (name, good) => said.push((good ? 'ok ' : 'not ok ') + name);
  const $ = id => document.getElementById(id), cells = (t, i) => [...$(t).rows[i].cells].map(c => c.textContent).join();
  const point = (id, x, y) => {
    const box = $(id).getBoundingClientRect();
    $(id).dispatchEvent(new PointerEvent('pointermove', { clientX: box.x + x, clientY: box.y + y, bubbles: true }));
    return $('says').textContent;
  };
  check('two jobs', $('jobs').children.length === 2 && $('title').textContent === 'Job 1 of 2: 64 ranks on h, pids 100 to 163, 1970-01-02 00:00:00 UTC');
  check('a heat map, no numbers', $('heat').clientHeight > 300 && $('waits').textContent === '' && $('waits').hidden);
  check('who was waited for', cells('most', 1) === 'rank 5,6.300,100.0 %,' && $('most').rows.length === 2);
  check('the pointer finds a wait', point('heat', 92 + 5.5 * 12, 56 + 3.5 * 12) === 'rank 3 waited 100.000 µs for rank 5');
  check('bandwidth of an all-gather: 64 MB in 1.1 ms', /algbw 58.2 GB\/s, busbw 57.3 GB\/s/.test(point('line', 700, 29)));
  $('jobs').children[1].click();
  check('the other job', $('title').textContent === 'Job 2 of 2: 2 ranks on h, pids 200 to 201, 1970-01-03 00:00:00 UTC');
  check('nobody waited', !$('nobody').hidden && $('waiting').hidden);
  check('operations at the same time stand below each other', $('line').clientHeight === 22 + 4 * 24 + 4 && $('legend').textContent === 'AllGatherRecv');
  check('bandwidth: 2 MB in 1 ms, a receive does not count', Math.abs($('rate').dataset.most - 2) < 1e-6);
  document.body.append(Object.assign(document.createElement('pre'), { id: 'verdict', textContent: '\n' + said.join('\n') + '\nend\n' }));
})();
</script>
END
"$tool" report "$tmp"/many/*.json -o "$tmp/many-page.html" 2>"$tmp/errors"
report "64 ranks and 2: the page is written" "$([ $? = 0 ] || cat "$tmp/errors")"
judge "64 ranks and 2" "$tmp/many-page.html" "$tmp/many.html"
exit $failed
