#!/usr/bin/env bash
# topo_browser.sh BUILD: the page of `tutti-topo show --format html` in a real browser, with a real pointer and real keys (chromedriver): it
# loads from a file without a word on the console and without asking for anything; channels come and go, everything says what it is under the
# pointer, two places show their paths, the search finds; it is drawn light, dark and for paper.
set -u
build=$(cd "$1" && pwd) || exit 1
tool=$build/bin/tutti-topo
[ -x "$tool" ] || { echo "skipped: tutti-topo is not built"; exit 77; }
for browser in chromium chromium-browser google-chrome ""; do
  if [ -n "$browser" ] && command -v "$browser" >/dev/null; then break; fi
done
[ -n "$browser" ] || { echo "skipped: no chromium"; exit 77; }
command -v chromedriver >/dev/null || { echo "skipped: no chromedriver (package chromium-driver)"; exit 77; }
command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; }

tmp=$(mktemp -d)
driver="" session=""
unset "${!NCCL_@}" http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
failed=0 checks=0

leave() {
  [ -z "$session" ] || wire DELETE "" >/dev/null
  [ -z "$driver" ] || { kill "$driver"; wait "$driver"; } 2>/dev/null
  rm -rf "$tmp"
}
trap leave EXIT

# ---- The browser ----

# wire METHOD PATH [JSON]: asks chromedriver; its answer on standard output.
wire() {
  curl -s --max-time 60 -X "$1" -H 'Content-Type: application/json' ${3+-d "$3"} "$address/session${session:+/$session}$2"
}

quoted() { # TEXT as a JSON string
  printf '"%s"' "$(printf %s "$1" | tr '\n' ' ' | sed 's/\\/\\\\/g; s/"/\\"/g')"
}

# js CODE: runs it in the page; what it returns, as text.
js() {
  wire POST /execute/sync "{\"script\":$(quoted "$1"),\"args\":[]}" | sed 's/^{"value"://; s/}$//; s/^"//; s/"$//; s/\\"/"/g'
}

# point SELECTOR [N]: moves the pointer there: onto a part of the (N-th such) element that nothing covers. Fails where there is none.
point() {
  local at
  at=$(js "return t.spot($(quoted "$1"), ${2:-0})")
  case $at in *[0-9],[0-9]*) ;; *) return 1 ;; esac
  wire POST /actions "{\"actions\":[{\"type\":\"pointer\",\"id\":\"mouse\",\"actions\":[
    {\"type\":\"pointerMove\",\"duration\":0,\"x\":${at%,*},\"y\":${at#*,}}]}]}" >"$tmp/answer"
  grep -q '^{"value":null}' "$tmp/answer"
}

press() { # the pointer's button
  wire POST /actions '{"actions":[{"type":"pointer","id":"mouse","actions":[{"type":"pointerDown","button":0},
    {"type":"pointerUp","button":0}]}]}' >"$tmp/answer"
}

click() { point "$@" && press; }

keys() { # keys KEY…: characters, or \uE… of WebDriver
  local list="" k
  for k; do list="$list${list:+,}{\"type\":\"keyDown\",\"value\":\"$k\"},{\"type\":\"keyUp\",\"value\":\"$k\"}"; done
  wire POST /actions "{\"actions\":[{\"type\":\"key\",\"id\":\"keys\",\"actions\":[$list]}]}" >"$tmp/answer"
}
tab='\uE004' enter='\uE007' escape='\uE00C' right='\uE014' space=' '

type_text() {
  local text=$1 list=() i
  for ((i = 0; i < ${#text}; i++)); do list+=("${text:i:1}"); done
  keys "${list[@]}"
}

media() { # media TYPE SCHEME
  wire POST /goog/cdp/execute "{\"cmd\":\"Emulation.setEmulatedMedia\",\"params\":{\"media\":\"$1\",
    \"features\":[{\"name\":\"prefers-color-scheme\",\"value\":\"$2\"}]}}" >"$tmp/answer"
}

start() {
  local i
  chromedriver --port=0 >"$tmp/driver" 2>&1 &
  driver=$!
  for ((i = 0; i < 300; i++)); do
    # It takes one free port for IPv6 and wants the same for IPv4, where another process may have it: then once more.
    if grep -q 'Address already in use' "$tmp/driver"; then
      wait "$driver"
      chromedriver --port=0 >"$tmp/driver" 2>&1 &
      driver=$!
    fi
    address=$(sed -n 's/.*started successfully on port \([0-9]*\).*/http:\/\/127.0.0.1:\1/p' "$tmp/driver")
    [ -z "$address" ] || break
    kill -0 "$driver" 2>/dev/null || break
    sleep 0.1
  done
  [ -n "$address" ] || { echo "FAILED: chromedriver does not start"; cat "$tmp/driver"; exit 1; }
  wire POST "" "{\"capabilities\":{\"alwaysMatch\":{\"goog:loggingPrefs\":{\"browser\":\"ALL\"},\"goog:chromeOptions\":{
    \"binary\":\"$(command -v "$browser")\",\"args\":[\"--headless\",\"--no-sandbox\",\"--disable-gpu\",\"--disable-dev-shm-usage\",
    \"--no-first-run\",\"--disable-background-networking\",\"--user-data-dir=$tmp/profile\",\"--window-size=1500,1000\"]}}}}" >"$tmp/answer"
  session=$(sed -n 's/.*"sessionId":"\([0-9a-f]*\)".*/\1/p' "$tmp/answer")
  [ -n "$session" ] || { echo "FAILED: no browser"; head -c 2000 "$tmp/answer"; exit 1; }
}

# ---- Checks ----

report() { # report NAME PROBLEM: an empty problem is a success
  checks=$((checks + 1))
  [ -z "$2" ] || { echo "FAILED: $page: $1: $2"; failed=1; }
}

done_well() { # done_well NAME COMMAND…: it succeeds
  local name=$1
  shift
  if "$@"; then report "$name" ""; else report "$name" "$* failed"; fi
}

says() { # says NAME EXPRESSION: true in the page
  local got
  got=$(js "return String($2)")
  [ "$got" = true ] && got="" || got="$2 is ${got:-nothing}; details: $(js 'return t.details()' | head -c 200)"
  report "$1" "$got"
}

helpers="window.t = {
  details: () => document.getElementById('details').innerText,
  visible: () => [...document.querySelectorAll('.tt-channel')].filter(g => getComputedStyle(g).visibility === 'visible'),
  boxes: () => document.querySelectorAll('input[data-channel]').length,
  on: () => document.querySelectorAll('.tt-link.on').length,
  first: () => [...document.querySelectorAll('#values tr.first td')].slice(1, 3).map(e => e.textContent).join(' '),
  hot: () => document.querySelectorAll('.tt-link.hot').length,
  bright: c => c.match(/[0-9.]+/g).slice(0, 3).reduce((a, v) => a + Number(v), 0) / 3,
  light: c => c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0.05),
  contrast: (a, b) => Math.max(t.light(a) / t.light(b), t.light(b) / t.light(a)),
  spot: (css, n) => {
    const e = document.querySelectorAll(css)[n];
    if (!e) return 'there is none';
    e.scrollIntoView({ block: 'center', inline: 'center' });
    const all = [], b = e.getBoundingClientRect();
    if (e.getTotalLength) {
      const m = e.getScreenCTM(), length = e.getTotalLength();
      for (let i = 1; i < 40; i++) {
        const p = e.getPointAtLength(length * i / 40).matrixTransform(m);
        all.push([p.x, p.y]);
      }
      all.sort((p, q) => Math.abs(p[0] - b.x - b.width / 2) - Math.abs(q[0] - b.x - b.width / 2));
    } else all.push([b.x + b.width / 2, b.y + b.height / 2], [b.x + b.width / 2, b.y + 5]);
    const free = all.find(p => e.contains(document.elementFromPoint(Math.round(p[0]), Math.round(p[1]))));
    return free ? Math.round(free[0]) + ',' + Math.round(free[1]) : 'covered';
  } };"

check_channels() {
  says "one ring is shown at first" "t.visible().length === 1 && t.visible()[0].dataset.graph === 'ring' && t.boxes() > 1"
  done_well "the next ring" click 'button[data-next=ring]'
  says "it is alone" "t.visible().length === 1 && t.visible()[0].dataset.channel === '1'"
  says "neighbours differ in colour" "(() => { const of = i => getComputedStyle(document.querySelector(
    '.tt-channel[data-graph=ring][data-channel=\"' + i + '\"] .tt-edge')).stroke; return of(0) !== of(1); })()"
  done_well "ring: none" click 'button[data-set=ring]' 1
  says "none is shown" "t.visible().length === 0 && t.on() === 0"
  done_well "a click on a box" click 'input[data-graph=ring][data-channel="0"]'
  says "the channel appears" "t.visible().length === 1 && t.visible()[0].dataset.graph === 'ring'"
  says "its lines have lengths" "[...t.visible()[0].children].every(p => p.getTotalLength() > 1) && t.visible()[0].children.length > 0"
  says "links that it uses stand out" "t.on() > 0"
  says "the others fade" "[...document.querySelectorAll('[data-link]:not(.on)')].every(l => Number(getComputedStyle(l).opacity) < 0.5)"
  done_well "the pointer on its line" point '.tt-hit[data-graph=ring][data-edge="0"]'
  says "the line says its channel" "/^ring, channel 0/.test(t.details())"
  says "from where to where" "/from\\s+(GPU|NET)[0-9]/.test(t.details()) && /to\\s+(GPU|NET)[0-9]/.test(t.details())"
  says "how fast, over what" "/bandwidth\\s+[0-9.]+ GB/.test(t.details()) && /path type\\s+(NVL|NVB|PIX|PXB|PHB|SYS|PXN)/.test(t.details())"
  says "it is marked" "document.querySelectorAll('.tt-edge.hot').length === 1"
  done_well "a click on the box" click 'input[data-graph=ring][data-channel="0"]'
  says "the channel goes" "t.visible().length === 0 && t.on() === 0"
  done_well "tree: all" click 'button[data-set=tree]'
  says "all of the graph appear" "t.visible().length === document.querySelectorAll('input[data-graph=tree]').length"
  done_well "ring: one" click 'input[data-graph=ring]'
  says "graphs differ in colour and dashes" "(() => {
    const a = getComputedStyle(document.querySelector('.tt-g0')), b = getComputedStyle(document.querySelector('.tt-g1'));
    return a.stroke !== b.stroke && a.strokeDasharray !== b.strokeDasharray; })()"
  done_well "all graphs: all" click '.every button'
  says "all appear" "t.visible().length === t.boxes() && t.boxes() > 1"
  done_well "all graphs: none" click '.every button' 1
  says "all go" "t.visible().length === 0 && t.on() === 0 && document.querySelectorAll('input:checked').length === 0"
}

check_pointer() { # check_pointer FILE
  local port
  done_well "the pointer on a GPU" point '.tt-gpu'
  says "GPU: name, rank, dev, bus id" "/^GPU0: rank 0, dev [0-9]/.test(t.details()) && /bus id\\s+[0-9a-f]{4}:/.test(t.details())"
  says "GPU: links and paths" "/Links/.test(t.details()) && /Best path to/.test(t.details())"
  done_well "a click keeps it" press
  done_well "the pointer on a path" point '#details tr[tabindex]'
  says "a path lights its links" "t.hot() > 0"
  keys "$escape"
  done_well "the pointer on a port" point '.tt-net'
  port=$("$tool" show "$1" | sed -n 's/.*NET0  \([^ ]*\) .*/\1/p' | head -1)
  says "port: its name" "t.details().includes($(quoted "NET0: $port"))"
  says "port: in its box" "document.querySelector('.tt-net').textContent.includes($(quoted "${port:0:8}"))"
  done_well "the pointer on a link" point '[data-link]'
  says "link: bandwidth and channels" "/GB.s/.test(t.details()) && /ring [0-9]/.test(t.details())"
}

check_pair() { # check_pair FILE: the path as the tool's other command says it
  local type
  type=$("$tool" paths --from GPU0 --to GPU1 "$1" | awk '$1 == "GPU0" && $2 == "GPU1" { print $3 }')
  report "the tool knows the path" "$([ -n "$type" ] || echo "no path GPU0 GPU1")"
  done_well "a click on a place" click '.tt-gpu' 0
  done_well "a click on another" click '.tt-gpu' 1
  says "paths between both" "t.details().includes($(quoted "GPU0 to GPU1: $type, ")) && /GPU1 to GPU0: /.test(t.details())"
  says "their links" "document.querySelectorAll('#details tr[tabindex]').length > 1 && document.querySelectorAll('.pinned').length === 2"
  done_well "a third place begins anew" click '.tt-cpu' 0
  says "one is kept" "document.querySelectorAll('.pinned').length === 1 && /^CPU/.test(t.details())"
  keys "$escape"
  says "Escape lets go" "document.querySelectorAll('.pinned').length === 0 && /^Details/.test(t.details())"
}

check_keys() {
  local bus i
  bus=$(js "return JSON.parse(document.getElementById('data').textContent).nodes[1].bus")
  done_well "a click into the search" click '#find'
  type_text "$bus"
  says "a bus id is found" "document.getElementById('found').textContent === '1 found' && document.querySelector('.found').dataset.node === '1'"
  keys "$enter"
  says "Enter shows it" "document.querySelector('.pinned').dataset.node === '1' && t.details().includes('$bus')"
  keys "$escape" x x
  says "nothing is found, and said" "document.getElementById('found').textContent === '0 found' && !document.querySelector('.found')"
  js "document.getElementById('find').value = ''; document.getElementById('find').dispatchEvent(new Event('input'))" >"$tmp/answer"
  keys "$tab" "$tab"
  says "Tab: one place in the drawing" "document.activeElement.closest('#machine') !== null && document.querySelectorAll('#machine [tabindex=\"0\"]').length === 1"
  says "it says what it is" "t.details() !== '' && !/^Details/.test(t.details())"
  js "window.was = document.activeElement" >"$tmp/answer"
  keys "$right"
  says "an arrow goes on" "document.activeElement !== window.was && document.activeElement.closest('#machine') !== null"
  keys "$enter"
  says "Enter keeps it" "document.querySelectorAll('.pinned').length === 1"
  keys "$escape"
  for ((i = 0; i < 8; i++)); do
    keys "$tab"
    [ "$(js "return document.activeElement.type")" != checkbox ] || break
  done
  says "Tab reaches a channel" "document.activeElement.type === 'checkbox' && /channel 0/.test(t.details())"
  keys "$space"
  says "Space shows it" "document.activeElement.checked && t.visible().length === 1"
  keys "$space"
  says "and hides it" "t.visible().length === 0"
}

# The chart, beside what the tool's other commands say of the same machine.
check_chart() { # check_chart FILE OPTION…
  local first
  says "two plots with every prediction" "(() => {
    const n = JSON.parse(document.getElementById('data').textContent).predictions.filter(p => p.function === 'AllReduce').length;
    const plots = [...document.querySelectorAll('#plots svg')];
    return n > 1 && plots.length === 2 && plots.every(p => p.querySelectorAll('.curve').length === n); })()"
  first=$("$tool" explain --bytes 1M "${@:2}" "$1" | awk '$1 == "*" { print $2, $3 }')
  says "1 MiB: what is chosen comes first" "t.first() === $(quoted "$first")"
  done_well "the pointer in a plot" point '#plots svg' 1
  says "it names another size" "document.getElementById('said').textContent !== '1 MiB'"
  js "const s = document.getElementById('size'); s.value = s.max; s.dispatchEvent(new Event('input'))" >"$tmp/answer"
  first=$("$tool" explain --bytes 8G "${@:2}" "$1" | awk '$1 == "*" { print $2, $3 }')
  says "8 GiB: what is chosen comes first" "document.getElementById('said').textContent === '8 GiB' && t.first() === $(quoted "$first")"
  js "const f = document.getElementById('func'); f.value = 'AllToAll'; f.dispatchEvent(new Event('change'))" >"$tmp/answer"
  says "all-to-all has the least time of its links" "document.querySelectorAll('#plots .curve').length === 2"
  says "curves stay inside" "[...document.querySelectorAll('#plots .curve')].every(c => { const b = c.getBBox();
    return b.x >= 50 && b.y >= 20 && b.x + b.width <= 452 && b.y + b.height <= 250; })"
}

check_words() { # every column that needs it is explained below its table
  local word
  for word in bound hops "cross NIC" together path; do
    says "$word is explained" "[...document.querySelectorAll('dt')].some(e => e.textContent === '$word' && e.nextSibling.textContent.length > 20)"
  done
  says "names and numbers are legible in the picture at its actual size" "[...document.querySelectorAll('.tt-box text, .tt-number')]
    .every(e => parseFloat(getComputedStyle(e).fontSize) >= 10)"
  says "texts stay in their boxes" "[...document.querySelectorAll('.tt-box')].every(g =>
    [...g.querySelectorAll('text')].every(e => [...g.querySelectorAll('rect')].some(f => { const b = e.getBBox(), r = f.getBBox();
      return b.x >= r.x - 1 && b.x + b.width <= r.x + r.width + 1 && b.y >= r.y - 2 && b.y + b.height <= r.y + r.height + 2; })))"
}

check_looks() {
  local scheme
  js "window.width = () => document.getElementById('machine').getBoundingClientRect().width; window.fit = width()" >"$tmp/answer"
  done_well "actual size" click '#zoom'
  says "it is not smaller" "width() >= fit"
  done_well "and back" click '#zoom'
  says "it fits again" "width() === fit"
  for scheme in light dark; do
    media screen $scheme
    says "$scheme: text stands out" "t.contrast(getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color) >= 7"
    says "$scheme: page and picture" "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('.tt-back')).fill]
      .every(c => t.bright(c) < 100 === ('$scheme' === 'dark'))"
    says "$scheme: channels stand out" "[...document.querySelectorAll('.tt-edge')].every(e =>
      t.contrast(getComputedStyle(e).stroke, getComputedStyle(document.body).backgroundColor) >= 3)"
  done
  media print dark
  says "paper: light, the picture alone" "getComputedStyle(document.querySelector('aside')).display === 'none' &&
    getComputedStyle(document.getElementById('bar')).display === 'none' && t.bright(getComputedStyle(document.body).backgroundColor) > 200"
  media "" ""
}

load() { # load FILE OPTION…: writes the page and opens it
  local file=$1
  shift
  "$tool" show --format html -o "$tmp/page.html" "$@" "$file" 2>"$tmp/errors" || { report "written" "$(head -3 "$tmp/errors")"; return 1; }
  wire POST /url "{\"url\":\"file://$tmp/page.html\"}" >"$tmp/answer"
  js "$helpers" >"$tmp/answer"
  says "the script has run to its end" "document.documentElement.dataset.ready === '1'"
  says "the drawing has a size" "document.getElementById('machine').getBoundingClientRect().height > 200"
  says "nothing else was asked for" "performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length === 0"
}

console() {
  wire POST /se/log '{"type":"browser"}' >"$tmp/console"
  report "console" "$(grep -vx '{"value":\[\]}' "$tmp/console" | head -c 500)"
}

look() { # look NAME FILE OPTION…: at the picture and the texts alone
  page=$1
  load "${@:2}" || return
  check_words
  console
}

visit() { # visit NAME FILE OPTION…
  local file=$2
  page=$1
  load "${@:2}" || return
  shift 2
  check_channels
  check_pointer "$file"
  check_pair "$file"
  check_keys
  check_chart "$file" "$@"
  check_words
  check_looks
  console
}

start
machines=tests/topologies/known
visit "H100" $machines/hgx_h100_8gpu_nvswitch_8nic/input.xml
visit "V100" $machines/dgx1v_8xV100_4nic/input.xml -N 2
visit "16 AMD GPUs" $machines/amd_asnv_topo_16p1h/input.xml
look "GB200 x 4" $machines/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml --hosts 4
visit "PCI alone" $machines/pcie_2gpu_1nic_one_switch/input.xml
echo "$checks checks"
exit $failed
