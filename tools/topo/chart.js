(function ({ data, el, shape }) {
  const home = document.getElementById('chart'), all = data.predictions, sizes = data.sizes;
  const W = 460, H = 270, L = 56, R = 12, T = 28, B = 26, LEAST = 0.1, EVERY = 4, START = 17;
  // Places among the colours of channels.
  const hues = { Ring: 0, Tree: 1, CollNetDirect: 2, NVLS: 3, PAT: 4, NVLSTree: 7, CollNetChain: 8 };
  const dashes = { LL: '2 3', LL128: '8 4' };
  const short = v => Number(v.toPrecision(3));
  function scaled(v, step, units) {
    let u = 0;
    while (v >= step && u + 1 < units.length) {
      v /= step;
      u++;
    }
    return short(v) + ' ' + units[u];
  }
  const bytes = n => scaled(n, 1024, ['B', 'KiB', 'MiB', 'GiB']);
  const time = us => scaled(us, 1000, ['\u00b5s', 'ms', 's']);
  const rate = (us, i) => sizes[i] / us / 1e3;
  const x = i => L + (W - L - R) * i / (sizes.length - 1);
  // What a plot shows of a time at a size; where that is on its axis, from 0 to 1; the axis' ticks.
  function timePlot(times) {
    const from = Math.floor(Math.log10(Math.max(LEAST, Math.min(...times)))), to = Math.ceil(Math.log10(Math.max(...times)));
    const ticks = [];
    for (let d = from; d <= to; d++) ticks.push({ v: 10 ** d, text: time(10 ** d) });
    return { name: 'time', value: us => us, part: v => (Math.log10(v) - from) / (to - from), ticks };
  }
  function ratePlot(rates) {
    const most = Math.max(...rates), ten = 10 ** Math.floor(Math.log10(most / 4));
    const step = ten * [1, 2, 5, 10].find(k => most / (ten * k) <= 5), ticks = [];
    for (let n = 0; n * step < most + step; n++) ticks.push({ v: n * step, text: String(short(n * step)) });
    const top = ticks[ticks.length - 1].v;
    return { name: 'bandwidth, GB/s', value: rate, part: v => v / top, ticks };
  }
  function draw(plot, curves, pick) {
    const y = v => H - B - (H - T - B) * plot.part(v);
    const svg = shape('svg', { viewBox: '0 0 ' + W + ' ' + H, role: 'img', 'aria-label': plot.name + ' over size' });
    const label = (at, anchor, text) => svg.append(shape('text', { x: at[0], y: at[1], 'text-anchor': anchor }, text));
    svg.append(shape('text', { class: 'name', x: L, y: 14 }, plot.name));
    plot.ticks.forEach(t => {
      svg.append(shape('path', { class: 'axis', d: 'M' + L + ' ' + y(t.v) + 'H' + (W - R) }));
      label([L - 6, y(t.v) + 4], 'end', t.text);
    });
    sizes.forEach((s, i) => { if (i % EVERY === 3) label([x(i), H - B + 16], 'middle', bytes(s)); });
    const points = us => us.map((v, i) => v >= LEAST ? x(i).toFixed(1) + ' ' + y(plot.value(v, i)).toFixed(1) : null);
    const path = us => points(us).map((p, i, list) => p === null ? '' : (i && list[i - 1] !== null ? 'L' : 'M') + p).join('');
    const best = sizes.map((s, i) => Math.min(...curves.map(c => c.us[i] || Infinity)));
    if (curves.length > 1) svg.append(shape('path', { class: 'best', d: path(best.map(v => v === Infinity ? null : v)) }));
    curves.forEach(c => svg.append(shape('path', { class: 'curve tt-c' + hue(c), 'data-curve': name(c), d: path(c.us),
      'style': 'stroke-dasharray:' + (dashes[c.protocol] || 'none') })));
    const at = shape('path', { class: 'at' });
    svg.append(at);
    svg.addEventListener('mousemove', ev => {
      const b = svg.getBoundingClientRect(), to = (ev.clientX - b.left) * W / b.width;
      pick(Math.round(Math.min(1, Math.max(0, (to - L) / (W - L - R))) * (sizes.length - 1)));
    });
    return { svg, mark: i => at.setAttribute('d', 'M' + x(i) + ' ' + T + 'V' + (H - B)) };
  }
  const hue = c => hues[c.algorithm] || 0;
  const name = c => c.algorithm + ' ' + c.protocol;
  function swatch(c) {
    return shape('svg', { width: 34, height: 8, 'aria-hidden': true },
      shape('path', { class: 'curve tt-c' + hue(c), d: 'M1 4H33', style: 'stroke-dasharray:' + (dashes[c.protocol] || 'none') }));
  }
  function row(c, i, first) {
    const us = c.us[i], cells = [swatch(c), c.algorithm, c.protocol, us ? time(us) : '-', us ? short(rate(us, i)) : '-'];
    return el('tr', first ? { class: 'first' } : {}, ...cells.map((v, k) => el('td', k > 2 ? { class: 'n' } : {}, v)));
  }
  function build() {
    const plots = el('div', { id: 'plots' }), table = el('table', { id: 'values' });
    const func = el('select', { id: 'func' }, ...[...new Set(all.map(c => c.function))].map(f => el('option', {}, f)));
    const size = el('input', { type: 'range', id: 'size', min: 0, max: sizes.length - 1, value: START });
    const said = el('output', { id: 'said' });
    let drawn = [], curves = [];
    function values() {
      const i = Number(size.value);
      const sorted = [...curves].sort((a, b) => (a.us[i] || Infinity) - (b.us[i] || Infinity));
      said.textContent = bytes(sizes[i]);
      drawn.forEach(d => d.mark(i));
      const head = ['', 'algorithm', 'protocol', 'time', 'GB/s'];
      table.replaceChildren(el('tr', {}, ...head.map((h, k) => el('th', k > 2 ? { scope: 'col', class: 'n' } : { scope: 'col' }, h))),
        ...sorted.map((c, k) => row(c, i, k === 0 && sorted.length > 1)));
    }
    function pick(i) {
      size.value = i;
      values();
    }
    function redraw() {
      curves = all.filter(c => c.function === func.value);
      const seen = curves.flatMap(c => c.us.map((us, i) => ({ us, i })).filter(p => p.us >= LEAST));
      drawn = [timePlot(seen.map(p => p.us)), ratePlot(seen.map(p => rate(p.us, p.i)))].map(p => draw(p, curves, pick));
      plots.replaceChildren(...drawn.map(d => d.svg));
      values();
    }
    func.addEventListener('change', redraw);
    size.addEventListener('input', values);
    home.append(el('div', { class: 'pick' }, el('label', {}, 'function ', func), el('label', {}, 'size ', size, ' ', said)), plots, table);
    redraw();
  }
  if (home) build();
  document.documentElement.setAttribute('data-ready', '1');
})(page);
