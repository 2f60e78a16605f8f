const page = (function () {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  const nodes = data.nodes, links = data.links;
  const svg = $('machine'), details = $('details'), controls = $('controls');
  const FEW = 64;
  const rows = {};
  data.paths.forEach(r => { rows[r.from] = r; });
  // What a click keeps; of two places, the second one.
  let pinned = null, second = null;
  // An element with attributes, and children: elements or text. Text is never read as HTML.
  function el(tag, attrs, ...children) {
    const e = document.createElement(tag);
    for (const k in attrs || {}) e.setAttribute(k, attrs[k]);
    e.append(...children.map(c => c instanceof Node ? c : String(c)));
    return e;
  }
  function shape(tag, attrs, ...children) {
    const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const k in attrs) e.setAttribute(k, attrs[k]);
    e.append(...children);
    return e;
  }
  const label = i => ({ PCI: 'PCI ' + nodes[i].bus, NIC: 'NIC ' + (nodes[i].bus || ''), NVS: 'NVSwitch' }[nodes[i].kind] || nodes[i].name) +
    (nodes[i].port_name ? ' ' + nodes[i].port_name : '');
  const num = v => v >= 1000 ? Math.round(v) : Math.round(v * 100) / 100;
  const gbs = v => num(v) + ' GB/s';
  // Nobody has measured the links to ranks in host memory.
  const kind = l => l.type === 'MEM' ? 'host memory' : l.type;
  const speed = l => l.type === 'MEM' ? '' : num(l.bandwidth);
  const fact = l => l.type === 'MEM' ? 'not measured' : gbs(l.bandwidth);
  function title(n) {
    const host = data.hosts.length > 1 ? ', host ' + n.host : '';
    const text = { GPU: n.name + ': rank ' + n.rank + ', dev ' + n.dev, DEV: 'GPU of another group, dev ' + n.dev,
      NET: n.name + (n.port_name ? ': ' + n.port_name : ''), CPU: n.name + (n.numa >= 0 ? ', NUMA node ' + n.numa : ''), RANK: n.name + ': in host memory', NVS: 'NVSwitch',
      PCI: 'PCI switch ' + n.bus, NIC: 'NIC ' + (n.bus || '') }[n.kind];
    return text + (n.kind === 'NVS' ? '' : host);
  }
  function table(head, body) {
    const t = el('table');
    if (head) t.append(el('tr', {}, ...head.map(h => el('th', { scope: 'col' }, h))));
    body.forEach(r => t.append(r instanceof Node ? r : el('tr', {}, ...r.map(c => el('td', {}, c)))));
    return t;
  }
  // A row that lights something while the pointer or the keyboard is on it.
  function lit(cells, show) {
    const tr = el('tr', { tabindex: 0 }, ...cells.map(c => el('td', {}, c)));
    tr.addEventListener('mouseenter', show);
    tr.addEventListener('focus', show);
    return tr;
  }
  // ---- Which channels use a link ----
  const used = links.map(() => ({}));
  data.graphs.forEach(g => g.channels.forEach((c, i) => new Set(c.links).forEach(l => {
    (used[l][g.name] = used[l][g.name] || []).push(i);
  })));
  // 0, 1, 2, 5 as 0-2, 5.
  function ranges(list) {
    const out = [];
    for (let i = 0; i < list.length; i++) {
      let j = i;
      while (j + 1 < list.length && list[j + 1] === list[j] + 1) j++;
      out.push(i === j ? list[i] : list[i] + (j > i + 1 ? '-' : ', ') + list[j]);
      i = j;
    }
    return out.join(', ');
  }
  function uses(l) {
    const names = Object.keys(used[l]);
    return names.length ? names.map(n => n + ' ' + ranges(used[l][n])).join('; ') : 'none';
  }
  // ---- What is lit ----
  const boxes = new Map(), lines = new Map();
  svg.querySelectorAll('[data-node]').forEach(e => boxes.set(Number(e.dataset.node), e));
  svg.querySelectorAll('[data-link]').forEach(e => lines.set(Number(e.dataset.link), e));
  const line = l => lines.get(l) || lines.get(links[l].back);
  function light(linkIds, nodeIds) {
    svg.querySelectorAll('.hot').forEach(e => e.classList.remove('hot'));
    linkIds.map(line).concat(nodeIds.map(n => boxes.get(n))).forEach(e => { if (e) e.classList.add('hot'); });
  }
  // ---- Details ----
  const words = { bus: 'bus id', rank: 'rank', dev: 'dev', sm: 'compute capability', gcn: 'gfx', gdr: 'GPU direct', port_name: 'port name',
    port: 'port', bandwidth: 'bandwidth', latency: 'latency', coll: 'reduces in the network', maxconn: 'connections', guid: 'GUID',
    rail: 'rail', plane: 'plane', numa: 'NUMA node', arch: 'architecture', vendor: 'vendor', model: 'model', device: 'device',
    subsystem_vendor: 'subsystem vendor', subsystem_device: 'subsystem device', host: 'host', line: 'line in the file' };
  function attribute(n, k) {
    if (k === 'device' && typeof n[k] === 'number') return n[k] === n.id ? null : title(nodes[n[k]]);
    if (k === 'bandwidth') return gbs(n[k]);
    if (k === 'latency') return n[k] + ' microseconds';
    if (k === 'sm') return n[k] ? (n[k] / 10).toFixed(1) : null;
    if (k === 'host') return data.hosts.length > 1 ? n[k] + ' (' + data.hosts[n[k]] + ')' : null;
    if (k === 'line' && !n[k] || k === 'gcn' && n[k] === '0' || n[k] === -1 || n[k] === '') return null;
    return typeof n[k] === 'boolean' ? (n[k] ? 'yes' : 'no') : n[k];
  }
  function pathTable(n) {
    const row = rows[n.id];
    const list = row.type.map((t, to) => ({ t, to })).filter(p => p.to !== n.id);
    return table(['to', 'type', 'GB/s', 'links'], list.map(p =>
      lit([label(p.to), p.t || 'no way', p.t ? num(row.bandwidth[p.to]) : '', p.t ? row.hops[p.to].length : ''],
        () => light(row.hops[p.to], [n.id, p.to]))));
  }
  function showNode(id) {
    const n = nodes[id], own = links.filter(l => l.from === id);
    light(own.map(l => l.id), []);
    const facts = Object.keys(words).filter(k => k in n).map(k => [words[k], attribute(n, k)]).filter(r => r[1] !== null);
    const parts = [el('h2', {}, title(n)), table(null, facts), el('h3', {}, 'Links'),
      table(['to', 'kind', 'GB/s'], own.map(l => [label(l.to), kind(l), speed(l)]))];
    if (rows[id]) parts.push(el('h3', {}, 'Best path to'), pathTable(n));
    details.replaceChildren(...parts);
  }
  function wayTable(from, to) {
    const row = rows[from], type = row.type[to];
    const head = label(from) + ' to ' + label(to) + ': ';
    if (!type) return [el('h3', {}, head + 'no way')];
    const hops = row.hops[to];
    const note = hops.length ? table(['link', 'kind', 'GB/s'], hops.map(h =>
      lit([label(links[h].from) + ' to ' + label(links[h].to), kind(links[h]), speed(links[h])],
        () => light([h], [links[h].from, links[h].to])))) : el('p', { class: 'soft' }, 'Over no link of this machine.');
    return [el('h3', {}, head + type + ', ' + gbs(row.bandwidth[to])), note];
  }
  function showPair(a, b) {
    light(rows[a].hops[b].concat(rows[b].hops[a]), [a, b]);
    details.replaceChildren(el('h2', {}, label(a) + ' and ' + label(b)), ...wayTable(a, b), ...wayTable(b, a));
  }
  function showLink(id) {
    const l = links[id], back = links[l.back];
    light([id], [l.from, l.to]);
    const way = x => label(x.from) + ' to ' + label(x.to);
    const facts = [['kind', kind(l)], [way(l), fact(l)]];
    if (back) facts.push([way(back), fact(back)]);
    const body = [[way(l), uses(id)]];
    if (back) body.push([way(back), uses(l.back)]);
    details.replaceChildren(el('h2', {}, label(l.from) + ' - ' + label(l.to)), table(null, facts),
      el('h3', {}, 'Channels that use it'), table(null, body));
  }
  const hops = e => rows[e.from] && rows[e.from].hops[e.to] || [];
  function showEdge(g, i, k) {
    const e = g.channels[i].edges[k];
    light(hops(e), [e.from, e.to]);
    const facts = [['graph', g.name], ['channel', i], ['from', label(e.from)], ['to', label(e.to)], ['bandwidth', gbs(e.bandwidth)],
      ['path type', e.type || 'no way']];
    if (e.type) facts.push(['whole path', gbs(e.path_bandwidth)]);
    details.replaceChildren(el('h2', {}, g.name + ', channel ' + i), table(null, facts));
  }
  function showChannel(g, i) {
    const c = g.channels[i];
    light(c.links, []);
    const name = n => nodes[n].name, head = g.pattern === 'NVLS' || g.pattern === 'COLLNET_DIRECT';
    const order = head ? 'head ' + name(c.gpus[0]) + ', all others ' + (g.pattern === 'NVLS' ? 'through the NVSwitch' : 'directly')
      : c.gpus.map(name).join(' > ') + (g.pattern === 'RING' && c.nets[0] < 0 ? ' > ' + name(c.gpus[0]) : '');
    const facts = [['order', order], ['bandwidth', gbs(g.speedintra)]];
    if (c.nets[0] >= 0) facts.push(['comes by', label(c.nets[0])], ['leaves by', label(c.nets[1])], ['to the card', gbs(g.speedinter)]);
    const parts = [el('h2', {}, g.name + ', channel ' + i), table(null, facts)];
    if (c.edges && c.edges.length <= FEW) {
      parts.push(el('h3', {}, 'Edges'), table(['from', 'to', 'path', 'GB/s'], c.edges.map(e =>
        lit([label(e.from), label(e.to), e.type || '', num(e.bandwidth)], () => light(hops(e), [e.from, e.to])))));
    }
    details.replaceChildren(...parts);
  }
  function rest() {
    light([], []);
    details.replaceChildren(el('h2', {}, 'Details'),
      el('p', { class: 'soft' }, 'Point at a box, a line or a channel. A click or Enter keeps it here, a click on a second place ' +
        'shows the paths between both, Escape lets go. In the drawing the arrow keys go from one to the next.'));
  }
  const graphOf = name => data.graphs.find(g => g.name === name);
  function show(e) {
    if (e.dataset.node) showNode(Number(e.dataset.node));
    else if (e.dataset.link) showLink(Number(e.dataset.link));
    else showEdge(graphOf(e.dataset.graph), Number(e.dataset.channel), Number(e.dataset.edge));
  }
  function unpin() {
    [pinned, second].forEach(e => { if (e) e.classList.remove('pinned'); });
    pinned = second = null;
  }
  function pin(e) {
    const has = x => x !== null && x.dataset.node && rows[x.dataset.node];
    if (has(pinned) && has(e) && e !== pinned && !second) {
      second = e;
      showPair(Number(pinned.dataset.node), Number(e.dataset.node));
    } else {
      const again = e === pinned && !second;
      unpin();
      if (again) return;
      pinned = e;
      show(e);
    }
    e.classList.add('pinned');
  }
  // Details of e while the pointer is on it, or the keyboard.
  function watch(e, tell) {
    e.addEventListener('mouseenter', () => { if (!pinned) tell(); });
    e.addEventListener('mouseleave', () => { if (!pinned) light([], []); });
    e.addEventListener('focus', () => { if (!pinned) tell(); });
  }
  // ---- Pointer and keys in the drawing ----
  const items = [...boxes.values(), ...lines.values()];
  const centres = new Map();
  function centre(e) {
    if (!centres.has(e)) {
      const b = e.getBBox();
      centres.set(e, [b.x + b.width / 2, b.y + b.height / 2]);
    }
    return centres.get(e);
  }
  const keys = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  function nearest(from, way) {
    const at = centre(from);
    let best = null, least = Infinity;
    items.forEach(e => {
      const to = centre(e), dx = to[0] - at[0], dy = to[1] - at[1];
      const along = dx * way[0] + dy * way[1], across = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
      if (e !== from && along > 1 && along + 2 * across < least) {
        least = along + 2 * across;
        best = e;
      }
    });
    return best;
  }
  function step(to) {
    items.forEach(e => e.setAttribute('tabindex', e === to ? '0' : '-1'));
    to.focus();
  }
  items.forEach(e => {
    watch(e, () => show(e));
    e.addEventListener('click', () => pin(e));
    e.addEventListener('keydown', ev => {
      if (ev.key === 'Enter' || ev.key === ' ') {
        pin(e);
        ev.preventDefault();
      } else if (keys[ev.key]) {
        const to = nearest(e, keys[ev.key]);
        if (to) step(to);
        ev.preventDefault();
      }
    });
  });
  const first = boxes.values().next().value;
  if (first) first.setAttribute('tabindex', '0');
  document.addEventListener('keydown', ev => {
    if (ev.key === 'Escape') {
      unpin();
      rest();
    }
  });
  // ---- Search ----
  const find = $('find'), found = $('found');
  let matches = [], turn = -1;
  const text = n => [n.name, n.bus, n.port_name, n.guid, label(n.id), title(n)].filter(t => t).join(' ').toLowerCase();
  function search() {
    const want = find.value.trim().toLowerCase();
    boxes.forEach(e => e.classList.remove('found'));
    matches = want ? nodes.filter(n => boxes.has(n.id) && text(n).includes(want)) : [];
    turn = -1;
    matches.forEach(n => boxes.get(n.id).classList.add('found'));
    found.textContent = want ? matches.length + ' found' : '';
    if (matches.length === 1 && !pinned) showNode(matches[0].id);
  }
  find.addEventListener('input', search);
  find.addEventListener('keydown', ev => {
    if (ev.key !== 'Enter' || !matches.length) return;
    turn = (turn + 1) % matches.length;
    const e = boxes.get(matches[turn].id);
    unpin();
    pin(e);
    e.scrollIntoView({ block: 'nearest', inline: 'center' });
    found.textContent = turn + 1 + ' of ' + matches.length;
  });
  // ---- Channels ----
  const on = new Map(); // line: how many channels that are shown use it
  let lines_on = 0;
  // Shows or hides a channel's lines. The first time they get wider, unseen ones over them, which a pointer meets more easily.
  function draw(g, i, want) {
    const group = svg.querySelector('.tt-channel[data-graph="' + g.name + '"][data-channel="' + i + '"]');
    if (!group) return;
    group.setAttribute('visibility', want ? 'visible' : 'hidden');
    if (!want || group.querySelector('.tt-hit')) return;
    [...group.children].forEach(p => {
      const hit = shape('path', { class: 'tt-hit', d: p.getAttribute('d') });
      Object.assign(hit.dataset, { graph: g.name, channel: i, edge: p.dataset.edge });
      watch(hit, () => {
        show(hit);
        p.classList.add('hot');
      });
      hit.addEventListener('click', () => pin(hit));
      group.append(hit);
    });
  }
  function toggle(g, i, want) {
    draw(g, i, want);
    new Set(g.channels[i].links.map(line)).forEach(e => {
      if (!e) return;
      const n = (on.get(e) || 0) + (want ? 1 : -1);
      on.set(e, n);
      lines_on += want && n === 1 ? 1 : !want && n === 0 ? -1 : 0;
      e.classList.toggle('on', n > 0);
    });
    svg.classList.toggle('some', lines_on > 0);
  }
  // A piece of line as the channel has it.
  function swatch(kind, i) {
    return shape('svg', { width: 26, height: 8, 'aria-hidden': true },
      shape('path', { class: 'tt-edge tt-g' + kind + ' tt-c' + (i + 4 * kind) % COLOURS, d: 'M1 4H25' }));
  }
  const kinds = ['ring', 'tree', 'collnet direct', 'collnet chain', 'NVLS'];
  const every = [];
  function set(list, want) {
    list.forEach(b => {
      if (b.checked === want) return;
      b.checked = want;
      b.dispatchEvent(new Event('change'));
    });
  }
  function button(text, what, list, want) {
    const b = el('button', { type: 'button', 'aria-label': text + ' channels of ' + what, 'data-set': what }, text);
    b.addEventListener('click', () => set(list, want));
    return b;
  }
  // Shows the channel behind the last one that is shown, alone.
  function nextButton(g, list) {
    const b = el('button', { type: 'button', 'aria-label': 'next channel of ' + g.name, 'data-next': g.name }, 'next');
    b.addEventListener('click', () => {
      const at = (list.map(c => c.checked).lastIndexOf(true) + 1) % list.length;
      set(list, false);
      set([list[at]], true);
      showChannel(g, at);
    });
    return b;
  }
  function channelRow(g) {
    const kind = kinds.indexOf(g.name), list = [];
    const row = el('fieldset', { class: 'channels' }, el('legend', {}, g.name + ', ' + gbs(g.speedintra) + ' each'));
    row.append(button('all', g.name, list, true), button('none', g.name, list, false));
    if (g.channels.length > 1) row.append(nextButton(g, list));
    g.channels.forEach((c, i) => {
      const box = el('input', { type: 'checkbox', 'aria-label': g.name + ' channel ' + i, 'data-graph': g.name, 'data-channel': i });
      const chip = el('label', {}, box, swatch(kind, i), i);
      box.checked = false;
      box.addEventListener('change', () => toggle(g, i, box.checked));
      box.addEventListener('focus', () => { if (!pinned) showChannel(g, i); });
      watch(chip, () => showChannel(g, i));
      list.push(box);
      row.append(chip);
    });
    every.push(...list);
    return row;
  }
  data.graphs.forEach(g => controls.append(channelRow(g)));
  if (data.graphs.length > 1) {
    controls.prepend(el('p', { class: 'every' }, 'All graphs: ', button('all', 'all graphs', every, true),
      button('none', 'all graphs', every, false)));
  }
  // One ring is shown at first.
  set(every.filter(b => b.dataset.graph === 'ring').slice(0, 1), true);
  const zoom = $('zoom');
  zoom.addEventListener('click', () => {
    const full = zoom.getAttribute('aria-pressed') !== 'true';
    zoom.setAttribute('aria-pressed', full);
    $('view').classList.toggle('full', full);
  });
  rest();
  return { data, el, shape };
})();
