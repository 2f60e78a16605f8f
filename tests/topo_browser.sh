#!/usr/bin/env bash
# topo_browser.sh BUILD: the page of `tutti-topo show --format html` in a real browser: it loads without a word on the console, its
# channels appear when they are switched on, details come with the pointer and the keyboard, and it is drawn light and dark.
set -u
build=$(cd "$1" && pwd) || exit 1
tool=$build/bin/tutti-topo
[ -x "$tool" ] || { echo "skipped: tutti-topo is not built"; exit 77; }
"$tool" show --help 2>&1 | grep -q html || { echo "skipped: tutti-topo writes no pages"; exit 77; }
for browser in chromium chromium-browser google-chrome ""; do
  if [ -n "$browser" ] && command -v "$browser" >/dev/null; then break; fi
done
[ -n "$browser" ] || { echo "skipped: no chromium"; exit 77; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset "${!NCCL_@}"
failed=0

report() { # report NAME PROBLEM: an empty problem is a success
  if [ -z "$2" ]; then
    echo "ok: $1"
  else
    echo "FAILED: $1: $2"
    failed=1
  fi
}

# What a reader would do, in the page itself: each line of its verdict begins with "ok" or "not ok".
cat >"$tmp/check.html" <<'END'
<script>
(function () {
  const said = [], check = (name, good) => said.push((good ? 'ok ' : 'not ok ') + name);
  const details = () => document.getElementById('details').textContent;
  const at = e => { // what a pointer at the middle of e would hit
    e.scrollIntoView({ block: 'center', inline: 'center' });
    const b = e.getBoundingClientRect();
    return document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2);
  };
  const visible = () => [...document.querySelectorAll('.tt-channel')].filter(g => getComputedStyle(g).visibility === 'visible');
  const gpu = document.querySelector('.tt-gpu');
  check('the script has run to its end', document.documentElement.dataset.ready === '1');
  check('the drawing has a size', document.getElementById('machine').getBoundingClientRect().height > 200);
  check('no channel is shown at first', visible().length === 0);

  const button = document.querySelector('button[data-graph=ring][data-channel="0"]');
  at(button).click();
  check('a channel appears', visible().length === 1 && visible()[0].dataset.graph === 'ring');
  check('its lines have lengths', [...visible()[0].children].every(p => p.getTotalLength() > 1) && visible()[0].children.length > 0);
  check('its button is pressed', button.getAttribute('aria-pressed') === 'true');
  check('the links that it uses stand out', document.querySelectorAll('.tt-link.on').length > 0);
  check('the others fade', [...document.querySelectorAll('[data-link]:not(.on)')].every(l => Number(getComputedStyle(l).opacity) < 0.5));
  at(button).click();
  check('the channel goes again', visible().length === 0 && document.querySelectorAll('.tt-link.on').length === 0);
  document.querySelectorAll('.channels').forEach(row => [...row.querySelectorAll('button')].at(-2).click());
  check('all channels of all graphs appear', visible().length === document.querySelectorAll('button[data-channel]').length);
  document.querySelectorAll('.channels').forEach(row => [...row.querySelectorAll('button')].at(-1).click());
  check('and go', visible().length === 0);

  const hit = at(gpu).closest('[data-node]');
  check('nothing covers a box', hit === gpu);
  hit.dispatchEvent(new MouseEvent('mouseenter'));
  check('a box shows details', /GPU 0, rank 0/.test(details()) && /bus id/.test(details()) && /Best path to/.test(details()));
  check('paths have types and bandwidths', document.querySelectorAll('#details tr[tabindex]').length > 0);
  const row = document.querySelector('#details tr[tabindex]');
  row.dispatchEvent(new MouseEvent('mouseenter'));
  check('a path lights its links', document.querySelectorAll('.tt-link.hot').length > 0);
  const link = document.querySelector('[data-link]');
  link.dispatchEvent(new MouseEvent('mouseenter'));
  check('a link shows its bandwidth and channels', /GB\/s/.test(details()) && /ring \d/.test(details()));

  gpu.focus();
  const key = k => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true, cancelable: true }));
  key('ArrowRight');
  check('an arrow key goes on', document.activeElement !== gpu && document.activeElement.closest('svg') !== null);
  key('Enter');
  const kept = details();
  gpu.dispatchEvent(new MouseEvent('mouseenter'));
  check('Enter keeps the details', details() === kept && document.querySelectorAll('.pinned').length === 1);
  key('Escape');
  check('Escape lets them go', document.querySelectorAll('.pinned').length === 0);
  check('one place for Tab in the drawing', document.querySelectorAll('#machine [tabindex="0"]').length === 1);

  const width = () => document.getElementById('machine').getBoundingClientRect().width, fit = width();
  document.getElementById('zoom').click();
  check('actual size is not less', width() >= fit);
  document.getElementById('zoom').click();
  check('and back', width() === fit);

  const back = getComputedStyle(document.body).backgroundColor, text = getComputedStyle(document.body).color;
  const light = c => c.match(/\d+/g).slice(0, 3).reduce((a, v) => a + Number(v), 0) / 3;
  check('text stands out from the background', Math.abs(light(back) - light(text)) > 150);
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  check('light or dark as asked for', dark === (light(back) < 100) && dark === (light(getComputedStyle(document.querySelector('.tt-back')).fill) < 100));
  said.push('scheme ' + (dark ? 'dark' : 'light'));
  document.body.append(Object.assign(document.createElement('pre'), { id: 'verdict', textContent: '\n' + said.join('\n') + '\n' }));
})();
</script>
END

# browse PAGE OPTION…: the page's document on standard output, the console in $tmp/console.
browse() {
  local page=$1
  shift
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$tmp/profile" \
    --window-size=1500,1000 --enable-logging=stderr "$@" --dump-dom "file://$page" 2>"$tmp/console"
}

check_page() { # check_page NAME FILE OPTION…
  local name=$1 file=$2 verdict
  shift 2
  browse "$file" "$@" >"$tmp/dom"
  report "$name: console" "$(grep -a 'CONSOLE' "$tmp/console" | head -3)"
  verdict=$(sed -n '/<pre id="verdict">/,/<\/pre>/p' "$tmp/dom")
  report "$name: verdict" "$(grep -q '^scheme ' <<<"$verdict" || echo "the check did not run to its end")"
  report "$name: page" "$(grep '^not ok' <<<"$verdict" | tr '\n' ';')"
  [ "$name" != dark ] || grep -q '^scheme dark' <<<"$verdict" || echo "skipped: this browser cannot be told to be dark"
}

machines=tests/topologies/known
for machine in hgx_h100_8gpu_nvswitch_8nic dgx1v_8xV100_4nic amd_asnv_topo_16p1h pcie_2gpu_1nic_one_switch; do
  if ! "$tool" show --format html "$machines/$machine/input.xml" >"$tmp/$machine.html" 2>"$tmp/errors"; then
    report "$machine: written" "$(head -3 "$tmp/errors")"
    continue
  fi
  browse "$tmp/$machine.html" >"$tmp/dom"
  report "$machine: console of the page alone" "$(grep -a 'CONSOLE' "$tmp/console" | head -3)"
  cat "$tmp/$machine.html" "$tmp/check.html" >"$tmp/checked.html"
  check_page "$machine, light" "$tmp/checked.html"
done
check_page "dark" "$tmp/checked.html" --blink-settings=preferredColorScheme=0 --force-dark-mode

exit $failed
