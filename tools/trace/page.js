'use strict';
(function () {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = id => document.getElementById(id), line = $('line'), rate = $('rate'), heat = $('heat');
  const LEFT = 150, TOP = 22, RIGHT = 12; // margins of what has a time axis
  const BINS = 300; // of the bandwidth's curve
  const LANES = 4;
  const MANY = 8; // from more ranks on, waiting is a heat map; so many are named
  const HUES = { AllReduce: 212, AllGather: 150, ReduceScatter: 28, Broadcast: 275, Reduce: 330, AlltoAll: 185, Gather: 90, Scatter: 55, Send: 0, Recv: 245 };
  const OTHERS = { message: 'msg', other: 'call' }; // names of colours in the style
  let job, rows, most; // what is shown; most: the longest wait
  const view = { from: 0, to: 1, detail: false };

  // ---- Texts and scales

  const make = (parent, tag, text) => {
    const e = parent.appendChild(document.createElement(tag));
    e.textContent = text;
    return e;
  };
  const unitOf = us => us >= 2e6 ? { name: 's', size: 1e6 } : us >= 2e3 ? { name: 'ms', size: 1e3 } : { name: 'µs', size: 1 };
  const time = us => { const u = unitOf(us); return (us / u.size).toFixed(3) + ' ' + u.name; };
  const grouped = n => n.toLocaleString('en');
  const bytes = n => grouped(n) + ' bytes' + (n >= 1 << 20 ? ' (' + +(n / (1 << 20)).toFixed(2) + ' MiB)' : n >= 1024 ? ' (' + +(n / 1024).toFixed(2) + ' KiB)' : '');
  const gbs = v => v.toPrecision(3) + ' GB/s';

  // Round numbers from low to high, about `many`, and how many decimals they need.
  function ticks(low, high, many) {
    const rough = (high - low) / many, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find(f => f * power >= rough * 0.999), list = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) list.push(i * step);
    return { list, step, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }

  const style = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  let palette; // of the scheme, light or dark
  function readPalette() {
    palette = {};
    for (const name of ['back', 'text', 'soft', 'line', 'heat', 'msg', 'call']) palette[name] = style(name);
    for (const name in HUES) palette[name] = 'hsl(' + HUES[name] + ' 55% ' + style('light') + ')';
  }
  const kindOf = (name, title) => name in HUES ? name : /^mess|^proxy/.test(title) ? OTHERS.message : OTHERS.other;

  function rankTitle(r) {
    const several = job.ranks.some(o => o.comm !== r.comm);
    return 'rank ' + r.rank + (several ? ' of ' + (r.name || r.comm.slice(0, 8)) : '');
  }

  // ---- Rows: a rank's operations, and its other tracks when they are wanted. Slices are sorted by start.

  // Ends: the latest end of a slice and all before it.
  function withEnds(row) {
    let end = -Infinity;
    row.ends = Float64Array.from(row.slices, s => end = Math.max(end, s[0] + s[1]));
    return row;
  }
  function tracksOf(r) {
    const tracks = new Map();
    for (const s of r.slices) { if (!tracks.has(s[3])) tracks.set(s[3], []); tracks.get(s[3]).push(s); }
    return [...tracks].sort((a, b) => a[0] - b[0]).map(([tid, slices]) => ({ rank: r, title: r.names[tid] || 'track ' + tid, slices, height: 18 }));
  }
  // Operations that run at the same time stand below each other, in LANES rows at most.
  function lanesOf(r) {
    const lanes = [];
    for (const op of r.ops) {
      let lane = lanes.find(l => l.end <= op[0] + 1e-3);
      if (!lane && lanes.length < LANES) lanes.push(lane = { slices: [] });
      lane = lane || lanes[LANES - 1];
      lane.end = op[0] + op[1];
      lane.slices.push(op);
    }
    return (lanes.length ? lanes : [{ slices: [] }]).map((l, i) =>
      withBandwidth({ rank: r, title: i ? '' : rankTitle(r), ops: true, slices: l.slices, height: job.ranks.length > 16 ? 14 : 24 }));
  }
  // What each operation adds to the mean of the ranks, in GB/s: both ends of a message have its bytes.
  function withBandwidth(row) {
    const n = row.slices.length, mean = data.opStride / job.width;
    row.bandwidth = [new Float64Array(n), new Float64Array(n)];
    row.slices.forEach((op, i) => {
      if (data.texts[op[2]] !== 'Recv' && op[1] > 0 && !isOpen(op)) bandwidth(row.rank, op).forEach((v, c) => { row.bandwidth[c][i] = v * mean; });
    });
    return row;
  }
  function makeRows() {
    rows = [];
    for (const r of job.ranks) {
      rows.push(...lanesOf(r));
      if (view.detail) rows.push(...tracksOf(r));
    }
    let y = TOP;
    for (const row of rows) { withEnds(row).y = y; y += row.height; }
    rows.bottom = y;
  }
  // The first slice of the row such that it or one before ends at t or later: whatever a pixel hides is passed over, however much it is.
  function firstEnding(row, t) {
    let low = 0, high = row.slices.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.ends[middle] < t) low = middle + 1; else high = middle;
    }
    return low;
  }

  // ---- Drawing: both canvases over time have the same axis

  function prepare(canvas, height, width) {
    if (width) canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    width = width || canvas.clientWidth || 800;
    // Browsers draw nothing on a canvas that is larger.
    const scale = Math.min(window.devicePixelRatio || 1, 32000 / Math.max(width, height), Math.sqrt(2e8 / (width * height)));
    canvas.width = width * scale;
    canvas.height = height * scale;
    const g = canvas.getContext('2d');
    g.scale(scale, scale);
    g.fillStyle = palette.back;
    g.fillRect(0, 0, width, height);
    g.font = '12px system-ui, sans-serif';
    g.textBaseline = 'middle';
    return [g, width];
  }
  const x = (t, width) => LEFT + (t - view.from) / (view.to - view.from) * (width - LEFT - RIGHT);
  const at = (x, width) => view.from + (x - LEFT) / (width - LEFT - RIGHT) * (view.to - view.from);

  function drawTimeAxis(g, width, bottom) {
    const unit = unitOf(view.to), t = ticks(view.from / unit.size, view.to / unit.size, Math.max(2, Math.floor((width - LEFT) / 130)));
    g.strokeStyle = palette.line;
    g.fillStyle = palette.soft;
    g.textAlign = 'left';
    g.fillText('time (' + unit.name + ')', 6, 11);
    g.textAlign = 'center';
    for (const v of t.list) {
      const a = Math.round(x(v * unit.size, width)) + 0.5, text = v.toFixed(t.decimals), half = g.measureText(text).width / 2;
      g.beginPath(); g.moveTo(a, TOP - 4); g.lineTo(a, bottom); g.stroke();
      g.fillText(text, Math.min(a, width - half - 2), 11);
    }
    g.textAlign = 'left';
  }

  const widths = new Map(); // of names, in pixels: measuring is slow
  function widthOf(g, name) {
    if (!widths.has(g.font + name)) widths.set(g.font + name, g.measureText(name).width);
    return widths.get(g.font + name);
  }
  const isOpen = op => /^not /.test(data.texts[op[6]]); // of a flight recorder: it had not ended
  function drawSlice(g, row, s, width, last) {
    const a = x(s[0], width), w = Math.max(x(s[0] + s[1], width) - a, 1), name = data.texts[s[2]];
    if (a + w <= last) return last; // nothing new would be seen
    const gap = row.height > 20 ? 3 : 1;
    g.globalAlpha = row.ops ? 0.9 : 0.65;
    g.fillStyle = palette[kindOf(name, row.title)];
    g.fillRect(a, row.y + gap, w > 3 ? w - 0.5 : w, row.height - 2 * gap);
    if (row.ops && isOpen(s)) {
      g.globalAlpha = 1;
      g.strokeStyle = palette.heat;
      g.lineWidth = 2;
      g.strokeRect(a + 1, row.y + gap + 1, Math.max(w - 2.5, 1), row.height - 2 * gap - 2);
    }
    if (w > 20 && w > widthOf(g, name) + 10) {
      g.globalAlpha = 1;
      g.fillStyle = palette.back;
      g.fillText(name, Math.max(a, LEFT) + 4, row.y + row.height / 2 + 0.5, w - 8);
    }
    return a + w;
  }
  function drawRow(g, row, width) {
    g.font = (row.height > 20 ? 12 : 11) + 'px system-ui, sans-serif';
    g.fillStyle = palette[row.ops ? 'text' : 'soft'];
    g.fillText(row.title, row.ops ? 6 : 16, row.y + row.height / 2 + 0.5, LEFT - (row.ops ? 12 : 22));
    g.save();
    g.beginPath(); g.rect(LEFT, row.y, width - LEFT - RIGHT, row.height); g.clip();
    let last = -1;
    for (let i = firstEnding(row, view.from); i < row.slices.length; i = Math.max(i + 1, firstEnding(row, at(last, width)))) {
      if (row.slices[i][0] > view.to) break;
      last = drawSlice(g, row, row.slices[i], width, last);
    }
    g.restore();
  }
  function drawLine() {
    const [g, width] = prepare(line, rows.bottom + 4);
    drawTimeAxis(g, width, rows.bottom);
    for (const row of rows) drawRow(g, row, width);
    line.dataset.from = view.from; line.dataset.to = view.to;
  }

  // ---- Bandwidth

  // [algbw, busbw] of an operation in GB/s.
  function bandwidth(r, op) {
    const f = r.factors[data.texts[op[2]]], alg = op[3] * f[0] / Math.max(op[1], 1e-3) / 1e3;
    return [alg, alg * f[1]];
  }
  // Mean of the ranks in each part of what is shown.
  function curves() {
    const alg = new Float64Array(BINS), bus = new Float64Array(BINS), size = (view.to - view.from) / BINS;
    for (const row of rows) for (let i = row.ops ? firstEnding(row, view.from) : Infinity; i < row.slices.length && row.slices[i][0] < view.to; i++) {
      const op = row.slices[i], a = (op[0] - view.from) / size, b = (op[0] + Math.max(op[1], 1e-3) - view.from) / size;
      for (let k = Math.max(0, Math.floor(a)); k < Math.min(Math.ceil(b), BINS); k++) {
        const share = Math.max(0, Math.min(b, k + 1) - Math.max(a, k));
        alg[k] += row.bandwidth[0][i] * share;
        bus[k] += row.bandwidth[1][i] * share;
      }
    }
    return [alg, bus];
  }
  const CURVES = ['algbw', 'busbw'], CURVE_HUES = ['AllReduce', 'ReduceScatter'];
  let shownCurves;
  function drawRate() {
    const H = 220, BOTTOM = H - 8, [g, width] = prepare(rate, H);
    shownCurves = curves();
    const highest = shownCurves.reduce((m, c) => Math.max(m, ...c), 0), t = ticks(0, highest || 1, 6), top = Math.max(t.list[t.list.length - 1], highest) || 1;
    const y = v => BOTTOM - v / top * (BOTTOM - TOP - 8);
    drawTimeAxis(g, width, BOTTOM);
    for (const v of t.list) {
      const b = Math.round(y(v)) + 0.5;
      g.beginPath(); g.moveTo(LEFT, b); g.lineTo(width - RIGHT, b); g.stroke();
      g.textAlign = 'right';
      g.fillText(v.toFixed(t.decimals), LEFT - 8, Math.min(b, H - 8));
      g.textAlign = 'left';
    }
    g.fillText('GB/s', 6, TOP + 10);
    [1, 0].forEach(c => { // algbw is seen where both are the same
      const curve = shownCurves[c];
      g.lineWidth = c ? 3 : 1.5;
      g.strokeStyle = palette[CURVE_HUES[c]];
      g.beginPath();
      for (let i = 0; i < BINS; i++) {
        for (const k of [i, i + 1]) g.lineTo(LEFT + k / BINS * (width - LEFT - RIGHT), y(curve[i]));
      }
      g.stroke();
    });
    rate.dataset.most = highest;
  }

  // ---- Legends

  function legend(place, entries) {
    place.textContent = '';
    for (const [name, color] of entries) {
      const e = make(place, 'span', name), swatch = document.createElement('i');
      swatch.style.background = color;
      e.prepend(swatch);
    }
  }
  function drawLegends() {
    const seen = new Map();
    for (const row of rows) for (const s of row.slices) {
      const kind = kindOf(data.texts[s[2]], row.title);
      if (!seen.has(kind)) seen.set(kind, row.ops ? kind in HUES ? kind : 'other operations' : kind === OTHERS.message ? 'messages and proxies' : kind in HUES ? kind : 'calls and others');
    }
    legend($('legend'), [...seen].map(([kind, name]) => [name, palette[kind]]));
    legend($('curves'), CURVES.map((name, c) => [name, palette[CURVE_HUES[c]]]));
  }

  // ---- Waiting

  function drawMost() {
    const n = job.ranks.length, sums = job.ranks.map((r, k) => ({ rank: r, sum: job.waited.reduce((s, row) => s + row[k], 0) }));
    const all = sums.reduce((s, e) => s + e.sum, 0), unit = unitOf(Math.max(...sums.map(e => e.sum))), table = $('most');
    sums.sort((a, b) => b.sum - a.sum);
    table.textContent = '';
    $('nobody').hidden = all > 0;
    $('waiting').hidden = !(all > 0);
    const head = table.insertRow();
    for (const text of ['rank', 'waited for (' + unit.name + ')', 'of all waiting', '']) make(head, 'th', text);
    for (const e of sums.slice(0, Math.min(n, MANY)).filter(e => e.sum > 0)) {
      const row = table.insertRow(), bar = (make(row, 'th', rankTitle(e.rank)), make(row, 'td', (e.sum / unit.size).toFixed(3)),
        make(row, 'td', (100 * e.sum / all).toFixed(1) + ' %'), make(row, 'td', ''));
      bar.className = 'bar';
      make(bar, 'i', '').style.width = 100 * e.sum / sums[0].sum + '%';
    }
  }
  const shade = (v, strongest) => 'color-mix(in srgb, ' + palette.heat + ' ' + Math.round(v / most * strongest) + '%, ' + palette.back + ')';
  function drawTable(unit) {
    const table = $('waits'), head = table.insertRow();
    make(head, 'th', 'waits \\ for');
    job.ranks.forEach(r => make(head, 'th', rankTitle(r)));
    job.waited.forEach((values, i) => {
      const row = table.insertRow();
      make(row, 'th', rankTitle(job.ranks[i]));
      values.forEach((v, k) => { make(row, 'td', i === k ? '' : (v / unit.size).toFixed(3)).style.background = v > 0 ? shade(v, 55) : ''; });
    });
  }
  const EDGE = 92; // left of and above the heat map
  const cellSize = () => Math.max(5, Math.min(22, Math.floor(800 / job.ranks.length)));
  function drawHeat(unit) {
    const n = job.ranks.length, size = cellSize(), side = n * size, [g] = prepare(heat, EDGE - 36 + side + 4, EDGE + side + 130);
    const every = Math.ceil(16 / size), up = EDGE - 36;
    job.waited.forEach((values, i) => values.forEach((v, k) => {
      g.fillStyle = i === k ? palette.line : v > 0 ? shade(v, 90) : palette.back;
      g.fillRect(EDGE + k * size, up + i * size, size - 1, size - 1);
    }));
    g.strokeStyle = palette.line;
    g.strokeRect(EDGE - 0.5, up - 0.5, side, side);
    g.fillStyle = palette.soft;
    g.font = '11px system-ui, sans-serif';
    job.ranks.forEach((r, i) => {
      if (i % every) return;
      g.textAlign = 'right'; g.fillText(r.rank, EDGE - 5, up + (i + 0.5) * size);
      g.textAlign = 'center'; g.fillText(r.rank, EDGE + (i + 0.5) * size, up - 9, every * size - 2);
    });
    g.font = '12px system-ui, sans-serif';
    g.textAlign = 'left';
    g.fillText('rank waited for', EDGE, up - 28);
    g.fillText('waiting rank', 0, up - 9);
    for (let i = 0; i < 100; i++) { // the scale
      g.fillStyle = shade(most * (1 - i / 99), 90);
      g.fillRect(EDGE + side + 20, up + i * 1.6, 14, 1.6);
    }
    g.fillStyle = palette.soft;
    g.fillText((most / unit.size).toFixed(3) + ' ' + unit.name, EDGE + side + 40, up + 5);
    g.fillText('0', EDGE + side + 40, up + 155);
  }
  function drawWaits() {
    most = Math.max(1e-9, ...job.waited.map(r => Math.max(...r)));
    const unit = unitOf(most), many = job.ranks.length > MANY;
    $('matrix').textContent = 'Time (' + unit.name + ') that the row\'s rank waited for the column\'s';
    $('waits').textContent = '';
    $('waits').hidden = many;
    heat.hidden = !many;
    drawMost();
    if (many) drawHeat(unit); else drawTable(unit);
  }

  // ---- What is under the pointer

  function say(e, text) {
    const says = $('says');
    says.textContent = text;
    says.style.left = Math.max(0, Math.min(e.clientX + 14, innerWidth - says.offsetWidth - 8)) + 'px';
    says.style.top = (e.clientY + 18 + says.offsetHeight > innerHeight ? e.clientY - says.offsetHeight - 8 : e.clientY + 18) + 'px';
  }
  const timeAt = e => at(Math.max(e.offsetX, LEFT), e.target.clientWidth);
  function sliceAt(e) {
    const row = rows.find(r => e.offsetY >= r.y && e.offsetY < r.y + r.height), t = timeAt(e);
    if (!row) return [];
    if (e.offsetX <= LEFT) return [row];
    const near = (view.to - view.from) / (line.clientWidth - LEFT - RIGHT) * 2;
    let i = firstEnding(row, t - near);
    while (i < row.slices.length && row.slices[i][0] - near <= t && row.slices[i][0] + row.slices[i][1] + near < t) i++;
    return i < row.slices.length && row.slices[i][0] - near <= t ? [row, row.slices[i]] : [];
  }
  function whatLine(e) {
    const [row, s] = sliceAt(e);
    if (!row) return '';
    const r = row.rank, place = 'host ' + r.host + ', pid ' + r.pid + ', communicator ' + (r.name ? r.name + ' ' : '') + r.comm;
    if (!s) return 'rank ' + r.rank + (row.ops ? '' : ', ' + row.title) + '\n' + place;
    const when = '\n' + time(s[1]) + ', from ' + time(s[0]) + ' on';
    if (!row.ops) return 'rank ' + r.rank + ', ' + row.title + ': ' + data.texts[s[2]] + when;
    const bw = bandwidth(r, s);
    return 'rank ' + r.rank + ': ' + data.texts[s[2]] + ', ' + bytes(s[3]) + (s[5] >= 0 ? ', with rank ' + s[5] : '') +
      (data.texts[s[6]] ? '\n' + data.texts[s[6]] : '') + when + (s[7] > 0 ? ', queued for ' + time(s[7]) + ' before' : '') +
      '\nalgbw ' + gbs(bw[0]) + ', busbw ' + gbs(bw[1]) + '\nnumber ' + s[4] + '; ' + place;
  }
  function whatRate(e) {
    const t = timeAt(e), bin = Math.min(BINS - 1, Math.floor((t - view.from) / (view.to - view.from) * BINS));
    return e.offsetX <= LEFT ? '' : time(t) + '\n' + CURVES.map((name, c) => name + ' ' + gbs(shownCurves[c][bin])).join(', ');
  }
  function whatHeat(e) {
    const size = cellSize(), k = Math.floor((e.offsetX - EDGE) / size), i = Math.floor((e.offsetY - EDGE + 36) / size), row = job.waited[i];
    return !row || row[k] === undefined || i === k ? '' : rankTitle(job.ranks[i]) + ' waited ' + time(row[k]) + ' for ' + rankTitle(job.ranks[k]);
  }

  // ---- Moving

  const draw = () => { drawLine(); drawRate(); };
  function move(from, to) {
    const length = Math.max(job.length, 1), least = Math.min(1, length), span = Math.min(Math.max(to - from, least), length);
    view.from = Math.min(Math.max(from, 0), length - span);
    view.to = view.from + span;
    draw();
  }
  function zoom(factor, at) {
    const from = at - (at - view.from) * factor;
    move(from, from + (view.to - view.from) * factor);
  }
  function listen(canvas, what) {
    let held = null;
    canvas.addEventListener('wheel', e => { if (!e.ctrlKey && !e.metaKey) return; e.preventDefault(); zoom(e.deltaY < 0 ? 0.8 : 1.25, timeAt(e)); }, { passive: false });
    canvas.addEventListener('pointerdown', e => { held = { x: e.offsetX, from: view.from, to: view.to }; canvas.setPointerCapture(e.pointerId); });
    for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, () => { held = null; });
    canvas.addEventListener('pointermove', e => {
      if (!held) return say(e, what(e));
      const d = (e.offsetX - held.x) / (canvas.clientWidth - LEFT - RIGHT) * (held.to - held.from);
      move(held.from - d, held.to - d);
    });
  }
  listen(line, whatLine);
  listen(rate, whatRate);
  heat.addEventListener('pointermove', e => say(e, whatHeat(e)));
  for (const canvas of [line, rate, heat]) canvas.addEventListener('pointerleave', e => say(e, ''));
  line.addEventListener('keydown', e => {
    const span = view.to - view.from, middle = (view.from + view.to) / 2;
    if (e.key === '+' || e.key === '=') zoom(0.5, middle);
    else if (e.key === '-') zoom(2, middle);
    else if (e.key === 'ArrowLeft') move(view.from - span / 4, view.to - span / 4);
    else if (e.key === 'ArrowRight') move(view.from + span / 4, view.to + span / 4);
    else return;
    e.preventDefault();
  });
  $('all').addEventListener('click', () => move(0, Infinity));
  $('detail').addEventListener('click', () => {
    view.detail = !view.detail;
    $('detail').setAttribute('aria-pressed', view.detail);
    makeRows();
    redraw();
  });

  // ---- Jobs

  function redraw() {
    readPalette();
    drawLegends();
    draw();
    drawWaits();
  }
  function show(i) {
    job = data.jobs[i];
    const nops = job.ranks.reduce((n, r) => n + r.ops.length, 0), lost = job.ranks.reduce((n, r) => n + r.lost, 0);
    const title = (data.jobs.length > 1 ? 'Job ' + (i + 1) + ' of ' + data.jobs.length + ': ' : '') + job.title;
    $('title').textContent = document.title = title;
    $('facts').textContent = job.ranks.length + ' time lines, ' + grouped(nops) + ' operations in ' + time(job.length) +
      (data.opStride > 1 ? '; one of ' + data.opStride + ' operations is shown' : '') +
      (data.stride > 1 ? '; one of ' + data.stride + ' of the others' : '') + (lost ? '; events were lost: ' + grouped(lost) : '');
    $('summary').textContent = job.summary;
    [...$('jobs').children].forEach((b, k) => b.setAttribute('aria-pressed', k === i));
    view.from = 0;
    view.to = Math.max(job.length, 1);
    makeRows();
    redraw();
  }
  if (data.jobs.length > 1) data.jobs.forEach((j, i) => make($('jobs'), 'button', 'Job ' + (i + 1) + ': ' + j.title).addEventListener('click', () => show(i)));
  const byStart = (a, b) => a[0] - b[0];
  for (const j of data.jobs) for (const r of j.ranks) { r.ops.sort(byStart); r.slices.sort(byStart); }
  show(0);
  window.addEventListener('resize', redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  document.documentElement.dataset.ready = '1';
})();
