// The graph of steps. fold and layout are pure: they turn nodes and edges into groups and places.
// Graph draws them as SVG, only what is in view, so that thousands of steps move smoothly.
//
// A node is {id, name, tone, sign, word, detail, note, ghost, group, groupName}: tone names the colour,
// sign (a path in a square of 16) and word say the same, a ghost does not exist, and nodes of a
// group fold into one. An edge is [from, to], two ids.

import { button, h, visible } from "./ui.js";

const WIDTH = 192, HEIGHT = 50; // of a node
const GAP_X = 42, GAP_Y = 14; // between layers, and between the nodes of one
const WRAP = 24; // a layer with more nodes becomes a block of several columns
const DETAIL = 0.5; // below this scale nodes are plain boxes
const CELL_X = 540, CELL_Y = 260; // nodes come into the document in cells of this size
const AT_ONCE = 2; // cells that come in one frame of a movement

// TONES lists the tones of states, those first that need a person most.
export const TONES = ["bad", "wait", "run", "idle", "good", "off"];

// Layout.

function adjacency(nodes, edges) {
  const index = new Map(nodes.map((n, i) => [n.id, i]));
  const parents = nodes.map(() => []), children = nodes.map(() => []);
  for (const [from, to] of edges) {
    const a = index.get(from), b = index.get(to);
    if (a === undefined || b === undefined || a === b) continue;
    children[a].push(b);
    parents[b].push(a);
  }
  return { parents, children };
}

// layersOf returns the layer of each node: the longest path that leads to it.
function layersOf({ parents, children }) {
  const layer = parents.map(() => 0), waits = parents.map(p => p.length), queue = [];
  waits.forEach((n, i) => n || queue.push(i));
  for (let q = 0; q < queue.length; q++) {
    for (const child of children[queue[q]]) {
      layer[child] = Math.max(layer[child], layer[queue[q]] + 1);
      if (!--waits[child]) queue.push(child);
    }
  }
  return layer;
}

// withBends adds a point to each layer that an edge crosses, up to a limit.
function withBends(layer, children) {
  const n = layer.length, up = layer.map(() => []), down = layer.map(() => []), edges = [];
  const level = layer.slice();
  let room = 4 * n + 2000;
  const link = (a, b) => { down[a].push(b); up[b].push(a); };
  for (let from = 0; from < n; from++) {
    for (const to of children[from]) {
      const bends = [], span = level[to] - level[from] - 1;
      if (span > 0 && span <= room) {
        room -= span;
        for (let l = level[from] + 1; l < level[to]; l++) {
          bends.push(level.push(l) - 1);
          up.push([]);
          down.push([]);
        }
      }
      const path = [from, ...bends, to];
      for (let i = 1; i < path.length; i++) link(path[i - 1], path[i]);
      edges.push(path);
    }
  }
  return { level, up, down, edges };
}

// rowsOf returns the points of each layer in the order in which they came.
function rowsOf(level) {
  const rows = [];
  level.forEach((l, i) => (rows[l] ??= []).push(i));
  return rows;
}

const mean = (list, value) => list.reduce((sum, i) => sum + value[i], 0) / list.length;

// order sorts layers by the mean place of neighbours, from both sides in turn.
function order(rows, up, down) {
  const place = up.map(() => 0);
  const number = row => row.forEach((v, i) => { place[v] = i - (row.length - 1) / 2; });
  const sweep = (row, sides) => {
    const key = new Map(row.map(v => [v, sides[v].length ? mean(sides[v], place) : place[v]]));
    row.sort((a, b) => key.get(a) - key.get(b));
    number(row);
  };
  rows.forEach(number);
  for (let pass = 0; pass < 4; pass++) {
    for (let l = 1; l < rows.length; l++) sweep(rows[l], up);
    for (let l = rows.length - 2; l >= 0; l--) sweep(rows[l], down);
  }
}

// settle moves the points of a layer near to where they want to be, in their order.
function settle(row, y, want, tall) {
  const offset = [0], blocks = [];
  for (let i = 1; i < row.length; i++) offset.push(offset[i - 1] + (tall(row[i - 1]) + tall(row[i])) / 2 + GAP_Y);
  row.forEach((v, i) => {
    let block = { sum: want(v) - offset[i], n: 1 };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).n >= block.sum / block.n) {
      const last = blocks.pop();
      block = { sum: last.sum + block.sum, n: last.n + block.n };
    }
    blocks.push(block);
  });
  let i = 0;
  for (const block of blocks) {
    for (const end = i + block.n; i < end; i++) y[row[i]] = block.sum / block.n + offset[i];
  }
}

// wrap places the nodes of a long layer in columns, and returns the frame around them.
function wrap(row, n, left, x, y) {
  const real = row.filter(v => v < n), bends = row.filter(v => v >= n);
  const high = Math.ceil(Math.sqrt(real.length * 2.1)), top = -(high * (HEIGHT + GAP_Y)) / 2;
  real.forEach((v, i) => {
    x[v] = left + 14 + Math.floor(i / high) * (WIDTH + 16);
    y[v] = top + (i % high) * (HEIGHT + GAP_Y) + (HEIGHT + GAP_Y) / 2;
  });
  bends.forEach((v, i) => { x[v] = left; y[v] = top - 30 - i * GAP_Y; });
  const width = Math.ceil(real.length / high) * (WIDTH + 16) + 12;
  return { x: left, y: top - 10, width, height: high * (HEIGHT + GAP_Y) + 20 };
}

// place gives each point its middle: x by layer, y between its neighbours.
function place(rows, n, { up, down }) {
  const x = [], y = up.map(() => 0), frames = [], widths = [];
  const tall = v => (v < n ? HEIGHT : 2);
  let left = 0;
  rows.forEach((row, l) => {
    let width = WIDTH;
    if (row.filter(v => v < n).length > WRAP) {
      frames[l] = wrap(row, n, left, x, y);
      width = frames[l].width;
    } else {
      row.forEach(v => { x[v] = left; });
      settle(row, y, () => 0, tall);
    }
    widths[l] = width;
    left += width + GAP_X;
  });
  const pull = sides => v => (sides[v].length ? mean(sides[v], y) : y[v]);
  const both = up.map((list, v) => list.concat(down[v]));
  for (const [sides, back] of [[up, false], [down, true], [up, false], [both, true]]) {
    for (const l of back ? [...rows.keys()].reverse() : rows.keys()) if (!frames[l]) settle(rows[l], y, pull(sides), tall);
  }
  return { x, y, frames, widths, width: left - GAP_X };
}

// layout places nodes in layers from left to right and returns them with their edges as points.
export function layout(nodes, edges) {
  if (!nodes.length) return { nodes: [], edges: [], frames: [], width: 0, height: 0 };
  const links = adjacency(nodes, edges), layer = layersOf(links), n = nodes.length;
  const bent = withBends(layer, links.children), rows = rowsOf(bent.level);
  order(rows, bent.up, bent.down);
  const at = place(rows, n, bent);
  let top = Infinity, bottom = -Infinity;
  for (const y of at.y) { top = Math.min(top, y); bottom = Math.max(bottom, y); }
  for (const f of at.frames) if (f) { top = Math.min(top, f.y); bottom = Math.max(bottom, f.y + f.height); }
  top -= HEIGHT / 2;
  const frames = at.frames.map(f => f && { ...f, y: f.y - top });
  const placed = nodes.map((node, i) => ({ id: node.id, x: at.x[i], y: at.y[i] - top - HEIGHT / 2, layer: layer[i] }));
  const drawn = edgePoints(nodes, bent, at, frames, top);
  return { nodes: placed, edges: drawn, frames: frames.filter(Boolean), width: at.width, height: bottom + HEIGHT / 2 - top };
}

// edgePoints returns edges as points, those of a block up to its frame and equal ones once.
function edgePoints(nodes, { level, edges }, { x, y, widths }, frames, top) {
  const seen = new Set(), drawn = [], n = nodes.length;
  for (const path of edges) {
    const ends = [path[0], path.at(-1)].map(v => (frames[level[v]] ? `frame ${level[v]}` : v));
    const key = `${ends[0]} ${ends[1]}`;
    if (frames.length && seen.has(key)) continue;
    seen.add(key);
    const points = [];
    path.forEach((v, i) => {
      const frame = v < n && frames[level[v]], width = frame || v >= n ? widths[level[v]] : WIDTH;
      const left = frame ? frame.x : x[v], middle = frame ? frame.y + frame.height / 2 : y[v] - top;
      if (i > 0) points.push([left, middle]);
      if (i < path.length - 1) points.push([left + width, middle]);
    });
    drawn.push({ from: nodes[path[0]].id, to: nodes[path.at(-1)].id, points });
  }
  return drawn;
}

// Folding.

// contract replaces nodes by the groups in home, and drops equal edges.
function contract(nodes, edges, home) {
  const groups = new Map(), seen = new Set(), kept = [];
  for (const node of nodes) {
    const id = home.get(node.id);
    if (id === node.id) groups.set(id, node);
    else if (groups.has(id)) groups.get(id).members.push(node);
    else groups.set(id, { id, members: [node] });
  }
  for (const [a, b] of edges) {
    const from = home.get(a), to = home.get(b), key = `${from} ${to}`;
    if (from === undefined || to === undefined || from === to || seen.has(key)) continue;
    seen.add(key);
    kept.push([from, to]);
  }
  return { nodes: [...groups.values()], edges: kept };
}

// segments joins consecutive layers until there are at most about sixty groups.
function segments(nodes, edges) {
  const layer = layersOf(adjacency(nodes, edges)), rows = rowsOf(layer), home = new Map();
  const enough = Math.ceil(nodes.length / 60);
  let open = [];
  const close = () => {
    const from = open.length && layer[open[0]] + 1, to = open.length && layer[open.at(-1)] + 1;
    const id = from === to ? `layer ${from}` : `layers ${from} to ${to}`;
    for (const i of open) home.set(nodes[i].id, open.length > 1 ? id : nodes[i].id);
    open = [];
  };
  for (const row of rows) {
    if (row.length >= enough) close();
    open = open.concat(row);
    if (open.length >= enough) close();
  }
  close();
  return home;
}

// fold makes batches one node each, and layers groups if there are more than limit nodes.
export function fold(nodes, edges, { open = new Set(), limit = 1500, few = 6 } = {}) {
  const size = new Map();
  for (const n of nodes) if (n.group) size.set(n.group, (size.get(n.group) ?? 0) + 1);
  const batch = n => (n.group && size.get(n.group) > few ? n.group : n.id);
  const small = contract(nodes, edges, new Map(nodes.map(n => [n.id, batch(n)])));
  const wide = small.nodes.length > limit ? segments(small.nodes, small.edges) : null;
  const home = new Map(), groups = new Set();
  for (const n of nodes) {
    let id = batch(n), segment = wide?.get(id) ?? id;
    for (const g of [id, segment]) if (g !== n.id) groups.add(g);
    if (segment !== id && !open.has(segment)) id = segment;
    else if (open.has(id)) id = n.id;
    home.set(n.id, id);
  }
  return { ...contract(nodes, edges, home), home, groups };
}

// Drawing.

const clip = (text, most) => ((text = visible(text)).length > most ? `${text.slice(0, most - 1)}…` : text);

// curve returns an edge as path data, with its arrow.
function curve(points) {
  let d = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length; i++) {
    const [x, y] = points[i], [px, py] = points[i - 1];
    d += i % 2 ? `C${(x + px) / 2} ${py} ${(x + px) / 2} ${y} ${x} ${y}` : `L${x} ${y}`;
  }
  const [x, y] = points.at(-1);
  return `${d}M${x - 6} ${y - 4}L${x} ${y}L${x - 6} ${y + 4}`;
}

// moved shifts the absolute coordinates of path data.
function moved(d, dx, dy) {
  return d.replace(/([MLHVA])([^A-Za-z]+)/g, (_, letter, rest) => {
    const n = rest.match(/-?(\d+\.?\d*|\.\d+)/g).map(Number), shift = { H: [dx], V: [dy], A: [0, 0, 0, 0, 0, dx, dy] }[letter] ?? [dx, dy];
    return letter + n.map((v, i) => v + shift[i % shift.length]).join(" ");
  });
}

// tally counts the members of a group by their state, the most urgent first.
function tally(members) {
  const counts = new Map();
  for (const { word, tone, sign } of members) {
    const c = counts.get(word) ?? { word, tone, sign, n: 0 };
    c.n++;
    counts.set(word, c);
  }
  return [...counts.values()].sort((a, b) => TONES.indexOf(a.tone) - TONES.indexOf(b.tone));
}

// groupNode describes a folded group as a node.
function groupNode({ id, members }) {
  const counts = tally(members), batch = members.every(m => m.group === id);
  const name = batch ? members[0].groupName ?? id : id.replace("layer", "Layer");
  return {
    id, members, counts, name: batch ? `${name} × ${members.length}` : name, tone: counts[0].tone, sign: counts[0].sign,
    word: counts.map(c => `${c.n} ${c.word.toLowerCase()}`).join(" · "), detail: "",
  };
}

let graphs = 0; // drawn so far, for ids

// Graph shows steps as a graph in an element: pan, zoom, fit, arrow keys along edges, folding.
export class Graph {
  // constructor takes the element to fill; options: label, onSelect(id), onOpen(id), limit.
  constructor(root, options = {}) {
    Object.assign(this, {
      root, options, prefix: `graph${++graphs}-`, open: new Set(), view: { x: 0, y: 0, k: 1 }, touched: false, nodes: new Map(),
    });
    this.edges = h("g.edges");
    this.boxes = h("g.boxes");
    this.cards = h("g.cards");
    this.lit = h("path.edge.lit");
    this.world = h("g", this.edges, this.lit, this.boxes, this.cards);
    this.svg = h("svg.graph-world", this.world);
    this.pane = h("div.graph-view", { tabindex: 0, role: "application", "aria-roledescription": "graph",
      "aria-label": options.label ?? "Graph" }, this.svg);
    this.tools = h("div.graph-tools");
    root.classList.add("graph");
    root.append(this.pane, this.tools);
    this.addTools();
    this.listen();
  }

  // set shows other nodes and edges; view, selection and folding stay.
  set(nodes, edges) {
    this.source = { nodes, edges };
    this.all = new Map(nodes.map(n => [n.id, n]));
    this.arrange();
  }

  // update shows one changed node without drawing the others.
  update(node) {
    const old = this.all.get(node.id), home = this.shown.home.get(node.id);
    if (!old || !home) return;
    Object.assign(old, node);
    if (home !== node.id) this.nodes.set(home, groupNode({ id: home, members: this.nodes.get(home).members }));
    const cell = this.cells.get(this.cellOf.get(home));
    const card = cell?.drawn?.querySelector(`[data-id="${CSS.escape(home)}"]`);
    if (card) card.replaceWith(this.card(home));
    this.stale = true;
    this.soon();
  }

  // select marks a node, brings it into view and tells the page.
  select(id, quietly = false) {
    const home = this.shown?.home.get(id) ?? id;
    if (!this.nodes.has(home)) return;
    const before = this.active;
    this.picked = this.shown.home.has(id) ? id : this.nodes.get(home).members[0].id;
    this.active = home;
    for (const at of [before, home]) this.repaint(at);
    this.light(home);
    this.reveal(home);
    this.pane.setAttribute("aria-activedescendant", this.prefix + this.places.get(home).index);
    if (!quietly) this.options.onSelect?.(home, this.nodes.get(home).members);
  }

  // fit shows the whole graph.
  fit() {
    const { width, height } = this.size(), pad = 24;
    const k = Math.min((width - 2 * pad) / this.shape.width, (height - 2 * pad) / this.shape.height, 1);
    this.look((width - this.shape.width * k) / 2, (height - this.shape.height * k) / 2, k);
  }

  // zoom scales the view by a factor around a point of the screen, by default its middle.
  zoom(factor, px, py) {
    const { width, height } = this.size(), { x, y, k } = this.view;
    const next = Math.min(Math.max(k * factor, this.least()), 2.5), cx = px ?? width / 2, cy = py ?? height / 2;
    this.look(cx - ((cx - x) / k) * next, cy - ((cy - y) / k) * next, next);
    this.touched = this.zooming = true;
  }

  unfold(id) {
    const at = this.places.get(id), member = this.nodes.get(id)?.members?.[0].id;
    for (const g of id ? [id] : this.shown.groups) this.open.add(g);
    this.arrange();
    if (!id && this.active) this.reveal(this.active);
    if (!at) return;
    const now = this.places.get(this.shown.home.get(member)), { x, y, k } = this.view;
    this.look(x + (at.x - now.x) * k, y + (at.y - now.y) * k, k);
    this.touched = true;
    this.select(now.id);
  }

  // refold closes all groups.
  refold() {
    this.open.clear();
    this.arrange();
  }

  destroy() { this.watch.disconnect(); }

  // What is where.

  arrange() {
    const { nodes, edges } = this.source;
    this.shown = fold(nodes, edges, { open: this.open, limit: this.options.limit });
    this.shape = layout(this.shown.nodes, this.shown.edges);
    this.nodes = new Map(this.shown.nodes.map(n => [n.id, n.members ? groupNode(n) : n]));
    this.places = new Map(this.shape.nodes.map((p, index) => [p.id, { ...p, index }]));
    this.links = { from: new Map(), to: new Map() };
    const link = (side, a, b) => (side.has(a) ? side.get(a).push(b) : side.set(a, [b]));
    for (const [a, b] of this.shown.edges) {
      link(this.links.from, a, b);
      link(this.links.to, b, a);
    }
    this.fillCells();
    this.fillEdges();
    this.stale = true;
    this.active = this.shown.home.get(this.picked);
    this.light(this.active);
    this.showTools();
    this.pane.style.height = `clamp(10rem, ${Math.round(this.shape.height + 72)}px, min(26rem, 60vh))`;
    if (this.touched) this.soon();
    else this.start();
  }

  // start fits the graph, or begins at its first unfinished step if it would be too small.
  start() {
    const { width, height } = this.size();
    if (!width || !this.shape.width) return;
    this.fit();
    if (this.view.k >= DETAIL) return;
    const first = this.shape.nodes.find(p => !["good", "off"].includes(this.nodes.get(p.id).tone)) ?? this.shape.nodes[0];
    const k = Math.min(0.75, Math.max(DETAIL, height / (this.shape.height + 48))), tall = this.shape.height * k;
    const y = tall + 48 < height ? (height - tall) / 2 : Math.min(24, Math.max(height - 24 - tall, height / 2 - first.y * k));
    this.look(Math.min(24, width / 3 - first.x * k), y, k);
  }

  size() { return { width: this.pane.clientWidth, height: this.pane.clientHeight }; }

  least() {
    const { width, height } = this.size();
    return Math.min(DETAIL, (0.5 * width) / this.shape.width, (0.5 * height) / this.shape.height);
  }

  fillCells() {
    this.cells = new Map();
    this.cellOf = new Map();
    for (const p of this.shape.nodes) {
      const cx = Math.floor(p.x / CELL_X), cy = Math.floor(p.y / CELL_Y), key = `${cx} ${cy}`;
      if (!this.cells.has(key)) {
        this.cells.set(key, { ids: [], x: cx * CELL_X, y: cy * CELL_Y, width: CELL_X + WIDTH, height: CELL_Y + HEIGHT });
      }
      this.cells.get(key).ids.push(p.id);
      this.cellOf.set(p.id, key);
    }
    this.cards.replaceChildren();
  }

  // fillEdges joins edges into paths of a hundred, each with its box.
  fillEdges() {
    this.strands = [];
    const ghost = e => this.nodes.get(e.to).ghost || this.nodes.get(e.from).ghost;
    for (const faint of [false, true]) {
      const edges = this.shape.edges.filter(e => Boolean(ghost(e)) === faint);
      for (let i = 0; i < edges.length; i += 100) this.strands.push(strand(edges.slice(i, i + 100), faint));
    }
    this.edges.replaceChildren(...this.shape.frames.map(f => h("rect.frame", { rx: 12, ...f })));
  }

  // The view.

  look(x, y, k) {
    this.view = { x, y, k };
    this.soon();
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.paint();
    });
  }

  // paint moves the drawing and adds what has come near the view. While the scale changes, it only stretches.
  paint() {
    const { x, y, k } = this.view;
    if (k !== this.scale) {
      clearTimeout(this.sharp);
      if (this.scale && this.zooming) this.sharp = setTimeout(() => { this.zooming = false; this.soon(); }, 120);
      else this.rescale(k);
    }
    this.svg.style.transform = `translate(${x}px, ${y}px) scale(${k / this.scale})`;
    if (!this.zooming || k === this.scale) this.fill();
  }

  // rescale draws the world at another scale.
  rescale(k) {
    this.scale = k;
    this.svg.setAttribute("width", this.shape.width * k + 20);
    this.svg.setAttribute("height", this.shape.height * k + 20);
    this.world.setAttribute("transform", `scale(${k})`);
    this.pane.classList.toggle("far", k < DETAIL);
  }

  // fill puts into the document what is in view or near it.
  fill() {
    const { x, y, k } = this.view, { width, height } = this.size(), near = 300;
    const box = { x: (-x - near) / k, y: (-y - near) / k, width: (width + 2 * near) / k, height: (height + 2 * near) / k };
    const meets = b => b.x < box.x + box.width && b.x + b.width > box.x && b.y < box.y + box.height && b.y + b.height > box.y;
    for (const s of this.strands) {
      if (!meets(s)) s.path.remove();
      else if (!s.path.isConnected) this.edges.append(s.path);
    }
    if (this.scale < DETAIL) this.paintBoxes();
    else this.paintCards(meets);
  }

  paintCards(meets) {
    const come = [];
    for (const cell of this.cells.values()) {
      if (!meets(cell)) cell.drawn?.remove();
      else if (!cell.drawn?.isConnected) come.push(cell);
    }
    const room = this.cards.childElementCount ? AT_ONCE : come.length;
    for (const cell of come.slice(0, room)) {
      cell.drawn ??= h("g", cell.ids.map(id => this.card(id)));
      this.cards.append(cell.drawn);
    }
    if (come.length > room) this.soon();
  }

  // paintBoxes draws all nodes of a tone as one path.
  paintBoxes() {
    if (!this.stale) return;
    const data = new Map();
    for (const p of this.shape.nodes) {
      const n = this.nodes.get(p.id), key = `box ${n.tone}${n.ghost ? " ghost" : ""}`;
      data.set(key, `${data.get(key) ?? ""}M${p.x} ${p.y}h${WIDTH}v${HEIGHT}h${-WIDTH}z`);
    }
    this.boxes.replaceChildren(...[...data].map(([name, d]) => h("path", { class: name, d })));
    this.stale = false;
  }

  // card draws one node, without a transform: thousands of those are slow.
  card(id) {
    const n = this.nodes.get(id), { x, y, index } = this.places.get(id);
    const face = (name, by) => h("rect", { class: name, x: x + by, y: y + by, width: WIDTH, height: HEIGHT, rx: 9 });
    const text = (name, dx, dy, words) => h("text", { class: name, x: x + dx, y: y + dy }, words);
    return h("g", { class: `node ${n.tone}${n.ghost ? " ghost" : ""}${id === this.active ? " active" : ""}`, "data-id": id,
      id: this.prefix + index, role: "img", "aria-label": this.describe(n) },
    h("title", this.describe(n)), n.members && [face("behind", 8), face("behind", 4)], face("face", 0),
    h("circle.disc", { cx: x + 21, cy: y + 25, r: 12 }), h("path.sign", { d: moved(n.sign, x + 13, y + 17) }),
    text("label", 40, 21, clip(n.name, n.note ? 19 - n.note.length * 0.8 : 18)), text("detail", 40, 37, clip([n.word, n.detail].filter(Boolean).join(" · "), 24)),
    n.members ? this.bar(n, x, y) : n.note && text("note", WIDTH - 9, 16, n.note));
  }

  bar(n, left, y) {
    let x = left + 40;
    return n.counts.map(c => {
      const width = Math.max(((WIDTH - 52) * c.n) / n.members.length, 2);
      x += width;
      return h("rect", { class: `share ${c.tone}`, x: x - width, y: y + 42, width, height: 3 });
    });
  }

  describe(n) {
    const after = this.links.to.get(n.id) ?? [], names = after.slice(0, 3).map(id => this.nodes.get(id).name).join(", ");
    const more = after.length > 3 ? ` and ${after.length - 3} more` : "";
    return `${n.name}: ${n.word}` + (n.detail ? ", " + n.detail : "") + (names && `; after ${names}${more}`) + (n.members ? "; press Enter to unfold" : "");
  }

  repaint(id) {
    const drawn = this.cells.get(this.cellOf.get(id))?.drawn?.querySelector(`[data-id="${CSS.escape(id ?? "")}"]`);
    drawn?.classList.toggle("active", id === this.active);
  }

  // light marks the edges of a node.
  light(id) {
    const p = this.places.get(id), lines = [];
    if (p) {
      const between = (a, b) => [[a.x + WIDTH, a.y + HEIGHT / 2], [b.x, b.y + HEIGHT / 2]];
      const real = (side) => (this.links[side].get(id) ?? []).filter((n) => !this.nodes.get(n).ghost).slice(0, 200);
      for (const to of real("from")) lines.push(between(p, this.places.get(to)));
      for (const from of real("to")) lines.push(between(this.places.get(from), p));
    }
    this.lit.setAttribute("d", lines.map(curve).join(""));
  }

  // reveal moves the view as little as possible so that a node is in it.
  reveal(id) {
    const p = this.places.get(id), { width, height } = this.size(), { x, y, k } = this.view, pad = 30;
    const shift = (low, high, size) => (low < pad ? pad - low : high > size - pad ? size - pad - high : 0);
    const dx = shift(p.x * k + x, (p.x + WIDTH) * k + x, width), dy = shift(p.y * k + y, (p.y + HEIGHT) * k + y, height);
    if (dx || dy) this.look(x + dx, y + dy, k);
  }

  // Tools, pointer and keys.

  addTools() {
    const tool = (name, text, act) => {
      const b = button(text, act, "quiet small", { "aria-label": name, title: name });
      this.tools.append(b);
      return b;
    };
    tool("Zoom in", "+", () => this.zoom(1.3));
    tool("Zoom out", "−", () => this.zoom(1 / 1.3));
    tool("Fit the graph into the view", "Fit", () => { this.fit(); this.touched = true; });
    this.opener = tool("Show every step", "Unfold", () => this.unfold());
    this.closer = tool("Fold batches and layers", "Fold", () => this.refold());
  }

  showTools() {
    this.opener.hidden = ![...this.shown.groups].some(g => !this.open.has(g));
    this.closer.hidden = !this.open.size;
  }

  listen() {
    const fingers = new Map();
    const on = (name, act, options) => this.pane.addEventListener(name, act, options);
    on("pointerdown", e => { fingers.set(e.pointerId, { ...this.at(e), far: 0 }); });
    on("pointermove", e => this.drag(e, fingers));
    on("pointerup", e => {
      if (fingers.get(e.pointerId)?.far < 5) this.click(e);
      fingers.delete(e.pointerId);
    });
    on("pointercancel", e => fingers.delete(e.pointerId));
    on("wheel", e => this.wheel(e), { passive: false });
    on("keydown", e => this.key(e));
    on("focus", () => this.active ?? (this.shape?.nodes.length && this.select(this.shape.nodes[0].id, true)));
    this.watch = new ResizeObserver(() => { if (this.shape) this.touched ? this.soon() : this.start(); });
    this.watch.observe(this.pane);
  }

  at(e) {
    const { left, top } = this.pane.getBoundingClientRect();
    return { x: e.clientX - left, y: e.clientY - top };
  }

  // drag pans with one finger and zooms with two.
  drag(e, fingers) {
    const finger = fingers.get(e.pointerId);
    if (!finger) return;
    const now = this.at(e), dx = now.x - finger.x, dy = now.y - finger.y, { x, y, k } = this.view;
    const other = [...fingers].find(([id]) => id !== e.pointerId)?.[1];
    finger.far += Math.abs(dx) + Math.abs(dy);
    if (other) {
      const apart = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) || 1;
      this.zoom(apart(now, other) / apart(finger, other), other.x, other.y);
    } else if (finger.far >= 5) {
      this.pane.setPointerCapture(e.pointerId);
      this.look(x + dx, y + dy, k);
      this.touched = true;
    }
    Object.assign(finger, now);
  }

  wheel(e) {
    if (!e.ctrlKey && !e.metaKey && document.activeElement !== this.pane) return;
    e.preventDefault();
    const { x, y } = this.at(e);
    this.zoom(Math.exp(-Math.max(-60, Math.min(60, e.deltaY)) / 300), x, y);
  }

  click(e) {
    const at = this.at(e), { x, y, k } = this.view, wx = (at.x - x) / k, wy = (at.y - y) / k;
    const hit = this.shape.nodes.find(p => wx >= p.x && wx <= p.x + WIDTH && wy >= p.y && wy <= p.y + HEIGHT);
    if (!hit) return;
    if (this.nodes.get(hit.id).members) this.unfold(hit.id);
    else this.select(hit.id);
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const act = {
      ArrowRight: () => this.along("from"), ArrowLeft: () => this.along("to"),
      ArrowUp: () => this.beside(-1), ArrowDown: () => this.beside(1),
      Home: () => this.select(this.shape.nodes[0].id), End: () => this.select(this.shape.nodes.at(-1).id),
      Enter: () => this.enter(), "+": () => this.zoom(1.3), "=": () => this.zoom(1.3), "-": () => this.zoom(1 / 1.3),
      0: () => this.fit(), Backspace: () => this.closer.hidden || this.refold(),
    }[e.key];
    if (!act || !this.active) return;
    e.preventDefault();
    e.stopPropagation();
    act();
  }

  // along follows an edge to the neighbour that is nearest in height.
  along(side) {
    const here = this.places.get(this.active), next = this.links[side].get(this.active) ?? [];
    const far = id => Math.abs(this.places.get(id).y - here.y) + 1000 * Math.abs(this.places.get(id).layer - here.layer);
    if (next.length) this.select(next.reduce((a, b) => (far(b) < far(a) ? b : a)));
  }

  // beside goes to the node above or below in the same layer.
  beside(step) {
    const here = this.places.get(this.active);
    const row = this.shape.nodes.filter(p => p.layer === here.layer).sort((a, b) => a.x - b.x || a.y - b.y);
    const next = row[row.findIndex(p => p.id === here.id) + step];
    if (next) this.select(next.id);
  }

  enter() {
    if (this.nodes.get(this.active).members) this.unfold(this.active);
    else this.options.onOpen?.(this.active);
  }
}

// strand returns edges as one path with the box that it covers.
function strand(edges, faint) {
  const xs = [], ys = [];
  for (const e of edges) for (const [x, y] of e.points) { xs.push(x); ys.push(y); }
  const x = Math.min(...xs), y = Math.min(...ys);
  const path = h("path", { class: faint ? "edge faint" : "edge", d: edges.map(e => curve(e.points)).join("") });
  return { path, x: x - 5, y: y - 5, width: Math.max(...xs) - x + 10, height: Math.max(...ys) - y + 10 };
}
