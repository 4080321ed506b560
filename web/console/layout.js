// The layout of graphs: fold turns nodes into groups, and layout gives nodes and edges their places. Nothing here
// touches the page.

export const WIDTH = 192,
  HEIGHT = 50; // of a node
const GAP_X = 42,
  GAP_Y = 14; // between layers, and between the nodes of one
const WRAP = 24; // a layer with more nodes becomes a block of several columns

function adjacency(nodes, edges) {
  const index = new Map(nodes.map((n, i) => [n.id, i]));
  const parents = nodes.map(() => []),
    children = nodes.map(() => []);
  for (const [from, to] of edges) {
    const a = index.get(from),
      b = index.get(to);
    if (a === undefined || b === undefined || a === b) continue;
    children[a].push(b);
    parents[b].push(a);
  }
  return { parents, children };
}

// layersOf returns the layer of each node: the longest path that leads to it.
function layersOf({ parents, children }) {
  const layer = parents.map(() => 0),
    waits = parents.map((p) => p.length),
    queue = [];
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
  const n = layer.length,
    up = layer.map(() => []),
    down = layer.map(() => []),
    edges = [];
  const level = layer.slice();
  let room = 4 * n + 2000;
  const link = (a, b) => {
    down[a].push(b);
    up[b].push(a);
  };
  for (let from = 0; from < n; from++) {
    for (const to of children[from]) {
      const bends = [],
        span = level[to] - level[from] - 1;
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
  const at = up.map(() => 0);
  const number = (row) =>
    row.forEach((v, i) => {
      at[v] = i - (row.length - 1) / 2;
    });
  const sweep = (row, sides) => {
    const key = new Map(row.map((v) => [v, sides[v].length ? mean(sides[v], at) : at[v]]));
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
  const offset = [0],
    blocks = [];
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
  const real = row.filter((v) => v < n),
    bends = row.filter((v) => v >= n);
  const high = Math.ceil(Math.sqrt(real.length * 2.1)),
    top = -(high * (HEIGHT + GAP_Y)) / 2;
  real.forEach((v, i) => {
    x[v] = left + 14 + Math.floor(i / high) * (WIDTH + 16);
    y[v] = top + (i % high) * (HEIGHT + GAP_Y) + (HEIGHT + GAP_Y) / 2;
  });
  bends.forEach((v, i) => {
    x[v] = left;
    y[v] = top - 30 - i * GAP_Y;
  });
  const width = Math.ceil(real.length / high) * (WIDTH + 16) + 12;
  return { x: left, y: top - 10, width, height: high * (HEIGHT + GAP_Y) + 20 };
}

// place gives each point its middle: x by layer, y between its neighbours.
function place(rows, n, { up, down }) {
  const x = [],
    y = up.map(() => 0),
    frames = [],
    widths = [];
  const tall = (v) => (v < n ? HEIGHT : 2);
  let left = 0;
  rows.forEach((row, l) => {
    let width = WIDTH;
    if (row.filter((v) => v < n).length > WRAP) {
      frames[l] = wrap(row, n, left, x, y);
      width = frames[l].width;
    } else {
      row.forEach((v) => {
        x[v] = left;
      });
      settle(row, y, () => 0, tall);
    }
    widths[l] = width;
    left += width + GAP_X;
  });
  const pull = (sides) => (v) => (sides[v].length ? mean(sides[v], y) : y[v]);
  const both = up.map((list, v) => list.concat(down[v]));
  for (const [sides, back] of [
    [up, false],
    [down, true],
    [up, false],
    [both, true],
  ]) {
    for (const l of back ? [...rows.keys()].reverse() : rows.keys())
      if (!frames[l]) settle(rows[l], y, pull(sides), tall);
  }
  return { x, y, frames, widths, width: left - GAP_X };
}

// layout places nodes in layers from left to right and returns them with their edges as points.
export function layout(nodes, edges) {
  if (!nodes.length) return { nodes: [], edges: [], frames: [], width: 0, height: 0 };
  const links = adjacency(nodes, edges),
    layer = layersOf(links),
    n = nodes.length;
  const bent = withBends(layer, links.children),
    rows = rowsOf(bent.level);
  order(rows, bent.up, bent.down);
  const at = place(rows, n, bent);
  let top = Infinity,
    bottom = -Infinity;
  for (const y of at.y) {
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  for (const f of at.frames)
    if (f) {
      top = Math.min(top, f.y);
      bottom = Math.max(bottom, f.y + f.height);
    }
  top -= HEIGHT / 2;
  const frames = at.frames.map((f) => f && { ...f, y: f.y - top });
  const placed = nodes.map((node, i) => ({ id: node.id, x: at.x[i], y: at.y[i] - top - HEIGHT / 2, layer: layer[i] }));
  const drawn = edgePoints(nodes, bent, at, frames, top);
  return {
    nodes: placed,
    edges: drawn,
    frames: frames.filter(Boolean),
    width: at.width,
    height: bottom + HEIGHT / 2 - top,
  };
}

// edgePoints returns edges as {links, points}, those of a block up to its frame and equal ones once: links lists the
// ends of all edges that one stands for.
function edgePoints(nodes, { level, edges }, { x, y, widths }, frames, top) {
  const seen = new Map(),
    drawn = [],
    n = nodes.length;
  for (const path of edges) {
    const ends = [path[0], path.at(-1)].map((v) => (frames[level[v]] ? `frame ${level[v]}` : v)),
      link = [nodes[path[0]].id, nodes[path.at(-1)].id];
    const key = `${ends[0]} ${ends[1]}`,
      same = seen.get(key);
    if (same) {
      same.links.push(link);
      continue;
    }
    const points = [];
    path.forEach((v, i) => {
      const frame = v < n && frames[level[v]],
        width = frame || v >= n ? widths[level[v]] : WIDTH;
      const left = frame ? frame.x : x[v],
        middle = frame ? frame.y + frame.height / 2 : y[v] - top;
      if (i > 0) points.push([left, middle]);
      if (i < path.length - 1) points.push([left + width, middle]);
    });
    drawn.push({ links: [link], points });
    seen.set(key, drawn.at(-1));
  }
  return drawn;
}

// Folding.

// contract replaces nodes by the groups in home, and drops equal edges.
function contract(nodes, edges, home) {
  const groups = new Map(),
    seen = new Set(),
    kept = [];
  for (const node of nodes) {
    const id = home.get(node.id);
    if (id === node.id) groups.set(id, node);
    else if (groups.has(id)) groups.get(id).members.push(node);
    else groups.set(id, { id, members: [node] });
  }
  for (const [a, b] of edges) {
    const from = home.get(a),
      to = home.get(b),
      key = `${from} ${to}`;
    if (from === undefined || to === undefined || from === to || seen.has(key)) continue;
    seen.add(key);
    kept.push([from, to]);
  }
  return { nodes: [...groups.values()], edges: kept };
}

// segments joins consecutive layers until there are at most about sixty groups.
function segments(nodes, edges) {
  const layer = layersOf(adjacency(nodes, edges)),
    rows = rowsOf(layer),
    home = new Map();
  const enough = Math.ceil(nodes.length / 60);
  let open = [];
  const close = () => {
    const from = open.length && layer[open[0]] + 1,
      to = open.length && layer[open.at(-1)] + 1;
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
  const batch = (n) => (n.group && size.get(n.group) > few ? n.group : n.id);
  const small = contract(nodes, edges, new Map(nodes.map((n) => [n.id, batch(n)])));
  const wide = small.nodes.length > limit ? segments(small.nodes, small.edges) : null;
  const home = new Map(),
    groups = new Set();
  for (const n of nodes) {
    let id = batch(n),
      segment = wide?.get(id) ?? id;
    for (const g of [id, segment]) if (g !== n.id) groups.add(g);
    if (segment !== id && !open.has(segment)) id = segment;
    else if (open.has(id)) id = n.id;
    home.set(n.id, id);
  }
  return { ...contract(nodes, edges, home), home, groups };
}
