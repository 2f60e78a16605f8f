#!/usr/bin/env bash
# trace_browser.sh BUILD: the page of `tutti-trace report` in a real browser, from a file: it loads without a word on the console and asks for nothing else, draws
# what the job did, can be zoomed and moved, and says what is under the pointer.
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
  check('the facts are there', /2 ranks, [1-9]\d* operations/.test(document.getElementById('facts').textContent));
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
  const longest = data.ranks[0].ops.reduce((a, b) => b[1] > a[1] ? b : a);
  const box = line.getBoundingClientRect(), x = 150 + (longest[0] + longest[1] / 2) / before * (line.clientWidth - 150);
  line.dispatchEvent(new PointerEvent('pointermove', { clientX: box.x + x + 1, clientY: box.y + 22 + 12, bubbles: true }));
  check('the pointer finds an operation', /rank 0: AllReduce, .* bytes/.test(says.textContent));
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
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$tmp/profile" \
    --window-size=1500,1000 --enable-logging=stderr "$@" --dump-dom "file://$page" 2>"$tmp/console"
}

NCCL_PROFILER_PLUGIN=trace TUTTI_TRACE_DIR="$tmp" timeout 120 "$build/bin/all_reduce_perf" -P 2 -b 64 -e 1M -f 128 -n 20 -c 0 >"$tmp/log" 2>&1 ||
  report "the job" "$(tail -5 "$tmp/log")"
# A name that would end the data, were it put there as it is.
sed -i '1,20s|"args":{"name":"channel 0"}|"args":{"name":"</script><b>channel 0"}|' "$tmp"/*-r1.json
"$tool" report "$tmp"/tutti-trace-*.json -o "$tmp/page.html" 2>"$tmp/errors"
report "the page is written" "$([ $? = 0 ] || cat "$tmp/errors")"
cat "$tmp/page.html" "$tmp/check.html" >"$tmp/checked.html"
for scheme in light dark; do
  options=()
  [ $scheme = light ] || options=(--blink-settings=preferredColorScheme=0 --force-dark-mode)
  browse "$tmp/checked.html" "${options[@]}" >"$tmp/dom"
  report "$scheme: console" "$(grep -a 'CONSOLE' "$tmp/console" | head -3)"
  verdict=$(sed -n '/<pre id="verdict">/,/<\/pre>/p' "$tmp/dom")
  report "$scheme: verdict" "$(grep -q '^end' <<<"$verdict" || echo "the check did not run to its end")"
  report "$scheme: page" "$(grep '^not ok' <<<"$verdict" | tr '\n' ';')"
done
exit $failed
