// The graph of steps, drawn as SVG, only what is in view, so that thousands of steps move smoothly.
//
// A node is {id, name, tone, sign, word, detail, note, ghost, group, groupName}: tone names the colour,
// sign (a path in a square of 16) and word say the same, a ghost does not exist, and nodes of a
// group fold into one. An edge is [from, to], two ids.

import { shorten } from "./labels.js";
import { HEIGHT, WIDTH, fold, layout } from "./layout.js";
import { button, fill, h, legend, number, patch } from "./ui.js";

const DETAIL = 0.5; // below this scale nodes are plain boxes
const SCALES = [1, 0.8, 0.65, DETAIL]; // from each on, texts have the size that can be read at it
const READABLE = 0.65; // the least scale that a graph begins with
const LEAST = 11.5; // pixels of a text on the screen
const AT_ONCE = 12; // nodes that come into the document in one frame of a movement

// TONES lists the tones of states, those first that need a person most.
export const TONES = ["bad", "wait", "run", "idle", "good", "off"];

// Drawing.

// curve returns an edge as path data, with its arrow.
function curve(points) {
  let d = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length; i++) {
    const [x, y] = points[i],
      [px, py] = points[i - 1];
    d += i % 2 ? `C${(x + px) / 2} ${py} ${(x + px) / 2} ${y} ${x} ${y}` : `L${x} ${y}`;
  }
  const [x, y] = points.at(-1);
  return `${d}M${x - 6} ${y - 4}L${x} ${y}L${x - 6} ${y + 4}`;
}

// moved shifts the absolute coordinates of path data.
function moved(d, dx, dy) {
  return d.replace(/([MLHVA])([^A-Za-z]+)/g, (_, letter, rest) => {
    const n = rest.match(/-?(\d+\.?\d*|\.\d+)/g).map(Number),
      shift = { H: [dx], V: [dy], A: [0, 0, 0, 0, 0, dx, dy] }[letter] ?? [dx, dy];
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
  const counts = tally(members),
    batch = members.every((m) => m.group === id);
  const name = batch ? (members[0].groupName ?? id) : id.replace("layer", "Layer");
  return {
    id,
    members,
    counts,
    name,
    times: batch ? ` × ${number(members.length)}` : "",
    tone: counts[0].tone,
    sign: counts[0].sign,
    word: counts.map((c) => `${number(c.n)} ${c.word.toLowerCase()}`).join(" · "),
    detail: "",
  };
}

let graphs = 0; // drawn so far, for ids

// Graph shows steps as a graph in an element: pan, zoom, fit, arrow keys along edges, folding.
export class Graph {
  prefix;
  options;
  open;
  root;
  drawn;
  // constructor takes the element to fill; options: label, onSelect(id), onOpen(id), limit.
  constructor(root, options = {}) {
    Object.assign(this, {
      root,
      options,
      prefix: `graph${++graphs}-`,
      open: new Set(),
      view: { x: 0, y: 0, k: 1 },
      touched: false,
      nodes: new Map(),
      drawn: new Map(),
    });
    this.edges = h("g.edges");
    this.boxes = h("g.boxes");
    this.cards = h("g.cards");
    this.lit = h("path.edge.lit");
    this.way = h("path.edge.way");
    this.world = h("g", this.edges, this.way, this.lit, this.boxes, this.cards);
    this.svg = h("svg.graph-world", this.world);
    this.pane = h(
      "div.graph-view",
      { tabindex: 0, role: "application", "aria-roledescription": "graph", "aria-label": options.label ?? "Graph" },
      this.svg,
    );
    this.legend = h("div.key");
    this.tools = h("div.graph-tools");
    root.classList.add("graph");
    root.append(this.pane, this.legend, this.tools);
    this.listen();
  }

  // set shows other nodes and edges; view, selection and folding stay.
  set(nodes, edges) {
    this.source = { nodes, edges };
    this.all = new Map(nodes.map((n) => [n.id, n]));
    this.arrange();
  }

  // update shows one changed node without drawing the others.
  update(node) {
    const old = this.all.get(node.id),
      home = this.shown.home.get(node.id);
    if (!old || !home) return;
    Object.assign(old, node);
    if (home !== node.id) this.nodes.set(home, groupNode({ id: home, members: this.nodes.get(home).members }));
    const card = this.drawn.get(home);
    if (card) this.drawn.set(home, patch(card, this.card(home)));
    this.stale = this.changed = true;
    this.soon();
  }

  // select marks a node, brings it into view and tells the page. Without one, nothing is marked.
  select(id, quietly = false) {
    const home = this.shown?.home.get(id) ?? id;
    if (!this.nodes.has(home)) {
      if (!id) this.picked = this.active = this.pane.querySelector(".active")?.classList.remove("active");
      return this.light();
    }
    const before = this.active;
    this.picked = this.shown.home.has(id) ? id : this.nodes.get(home).members[0].id;
    this.active = home;
    for (const at of [before, home]) this.repaint(at);
    this.light(home);
    this.reveal(home);
    this.pane.setAttribute("aria-activedescendant", this.prefix + this.places.get(home).index);
    if (!quietly) this.options.onSelect?.(home, this.nodes.get(home).members);
  }

  // jump selects the next node of a list, after the one that is selected.
  jump(list) {
    const next = list[(list.findIndex((n) => n.id === this.picked) + 1) % list.length];
    if (!next) return;
    this.touched = true;
    if (this.view.k < DETAIL) this.zoom(0.75 / this.view.k);
    this.select(next.id, true);
    this.options.onSelect?.(next.id);
  }

  // fit shows the whole graph.
  fit() {
    const { width, height } = this.size(),
      pad = 24;
    const k = Math.min((width - 2 * pad) / this.shape.width, (height - 2 * pad) / this.shape.height, 1);
    this.look((width - this.shape.width * k) / 2, (height - this.shape.height * k) / 2, k);
  }

  // zoom scales the view by a factor around a point of the screen, by default its middle.
  zoom(factor, px, py) {
    const { width, height } = this.size(),
      { x, y, k } = this.view;
    const next = Math.min(Math.max(k * factor, this.least()), 2.5),
      cx = px ?? width / 2,
      cy = py ?? height / 2;
    this.look(cx - ((cx - x) / k) * next, cy - ((cy - y) / k) * next, next);
    this.touched = this.zooming = true;
  }

  unfold(id) {
    const at = this.places.get(id),
      member = this.nodes.get(id)?.members?.[0].id;
    for (const g of id ? [id] : this.shown.groups) this.open.add(g);
    this.arrange();
    if (!id && this.active) this.reveal(this.active);
    if (!at) return;
    const now = this.places.get(this.shown.home.get(member)),
      { x, y, k } = this.view;
    this.look(x + (at.x - now.x) * k, y + (at.y - now.y) * k, k);
    this.touched = true;
    this.select(now.id);
  }

  // refold closes all groups.
  refold() {
    this.open.clear();
    this.arrange();
  }

  destroy() {
    this.watch.disconnect();
  }

  // What is where.

  arrange() {
    const { nodes, edges } = this.source;
    this.shown = fold(nodes, edges, { open: this.open, limit: this.options.limit });
    this.shape = layout(this.shown.nodes, this.shown.edges);
    this.nodes = new Map(this.shown.nodes.map((n) => [n.id, n.members ? groupNode(n) : n]));
    this.places = new Map(this.shape.nodes.map((p, index) => [p.id, { ...p, index }]));
    this.links = { from: new Map(), to: new Map() };
    const link = (side, a, b) => (side.has(a) ? side.get(a).push(b) : side.set(a, [b]));
    for (const [a, b] of this.shown.edges) {
      link(this.links.from, a, b);
      link(this.links.to, b, a);
    }
    this.wires = new Map();
    for (const e of this.shape.edges)
      for (const id of new Set(e.links.flat())) (this.wires.get(id) ?? this.wires.set(id, []).get(id)).push(e);
    this.clear();
    this.fillEdges();
    this.stale = true;
    this.active = this.shown.home.get(this.picked);
    this.light(this.active);
    this.showTools();
    this.pane.style.height = `clamp(10rem, ${Math.round(this.shape.height + 72)}px, min(36rem, 62vh))`;
    if (this.touched) this.soon();
    else this.start();
  }

  // start fits the graph, or begins at its first unfinished step if it would be too small.
  start() {
    const { width, height } = this.size();
    if (!width || !this.shape.width) return;
    this.fit();
    if (this.view.k >= READABLE) return;
    const open = this.shape.nodes.filter((p) => !["good", "off"].includes(this.nodes.get(p.id).tone));
    const first = open.find((p) => this.nodes.get(p.id).tone === "bad") ?? open[0] ?? this.shape.nodes[0];
    const k = Math.min(0.8, Math.max(READABLE, height / (this.shape.height + 48))),
      tall = this.shape.height * k;
    const y =
      tall + 48 < height ? (height - tall) / 2 : Math.min(24, Math.max(height - 24 - tall, height / 2 - first.y * k));
    this.look(Math.min(24, width / 3 - first.x * k), y, k);
  }

  size() {
    return { width: this.pane.clientWidth, height: this.pane.clientHeight };
  }

  least() {
    const { width, height } = this.size();
    return Math.min(DETAIL, (0.5 * width) / this.shape.width, (0.5 * height) / this.shape.height);
  }

  clear() {
    this.drawn.clear();
    this.cards.replaceChildren();
  }

  // fillEdges joins edges into paths of a hundred, each with its box.
  fillEdges() {
    this.strands = [];
    const ghost = (e) => e.links.every((link) => link.some((id) => this.nodes.get(id).ghost));
    for (const faint of [false, true]) {
      const edges = this.shape.edges.filter((e) => Boolean(ghost(e)) === faint);
      for (let i = 0; i < edges.length; i += 100) this.strands.push(strand(edges.slice(i, i + 100), faint));
    }
    this.edges.replaceChildren(...this.shape.frames.map((f) => h("rect.frame", { rx: 12, ...f })));
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
    if (this.changed) this.showTools();
    this.changed = false;
    if (k !== this.scale) {
      clearTimeout(this.sharp);
      if (this.scale && this.zooming)
        this.sharp = setTimeout(() => {
          this.zooming = false;
          this.soon();
        }, 120);
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
    const size = LEAST / (SCALES.find((s) => s <= k) ?? DETAIL);
    if (size === this.text) return;
    this.text = size;
    this.clear();
    this.showTools();
  }

  // fill puts into the document what is in view or near it.
  fill() {
    const { x, y, k } = this.view,
      { width, height } = this.size(),
      near = 300;
    const box = {
      x: (-x - near) / k,
      y: (-y - near) / k,
      width: (width + 2 * near) / k,
      height: (height + 2 * near) / k,
    };
    const meets = (b) =>
      b.x < box.x + box.width && b.x + b.width > box.x && b.y < box.y + box.height && b.y + b.height > box.y;
    for (const s of this.strands) {
      if (!meets(s)) s.path.remove();
      else if (!s.path.isConnected) this.edges.append(s.path);
    }
    if (this.scale < DETAIL) this.paintBoxes();
    else this.paintCards(meets);
  }

  paintCards(meets) {
    const near = this.shape.nodes.filter((p) => meets({ ...p, width: WIDTH, height: HEIGHT }));
    const come = near.filter((p) => !this.drawn.has(p.id)),
      ids = new Set(near.map((p) => p.id));
    const room = this.drawn.size ? AT_ONCE : come.length;
    for (const [id, card] of this.drawn) if (!ids.has(id) && this.drawn.delete(id)) card.remove();
    for (const { id } of come.slice(0, room)) this.drawn.set(id, this.card(id));
    this.cards.append(...come.slice(0, room).map((p) => this.drawn.get(p.id)));
    if (come.length > room) this.soon();
  }

  // paintBoxes draws all nodes of a tone as one path.
  paintBoxes() {
    if (!this.stale) return;
    const data = new Map();
    for (const p of this.shape.nodes) {
      const n = this.nodes.get(p.id),
        key = `box ${n.tone}${n.ghost ? " ghost" : ""}`;
      data.set(key, `${data.get(key) ?? ""}M${p.x} ${p.y}h${WIDTH}v${HEIGHT}h${-WIDTH}z`);
    }
    this.boxes.replaceChildren(...[...data].map(([name, d]) => h("path", { class: name, d })));
    this.stale = false;
  }

  // card draws one node, without a transform: thousands of those are slow.
  card(id) {
    const n = this.nodes.get(id),
      { x, y, index } = this.places.get(id);
    const face = (name, by) => h("rect", { class: name, x: x + by, y: y + by, width: WIDTH, height: HEIGHT, rx: 9 });
    const size = this.text,
      two = HEIGHT / size > 2.6,
      room = WIDTH - 48; // lines of text that fit, and their width
    const text = (name, dx, dy, words, large = size) =>
      h("text", { class: name, x: x + dx, y: y + dy, "font-size": large }, words);
    const large = Math.max(size, 13.5),
      note = n.note && size < 13 ? n.note : "",
      [base, below] = two ? [HEIGHT / 2 - 4, HEIGHT / 2 + size] : [HEIGHT / 2 + large / 3];
    const name = shorten(n.name, room - (note && note.length * 6.5), large, true, n.times);
    const both = shorten(n.word, room, size, false, n.detail ? " · " + n.detail : "");
    return h(
      "g",
      {
        class: `node ${n.tone}${n.ghost ? " ghost" : ""}${id === this.active ? " active" : ""}`,
        "data-id": id,
        id: this.prefix + index,
        role: "img",
        "aria-label": this.describe(n),
      },
      h("title", this.describe(n)),
      n.members && [face("behind", 8), face("behind", 4)],
      face("face", 0),
      h("circle.disc", { cx: x + 21, cy: y + 25, r: 12 }),
      h("path.sign", { d: moved(n.sign, x + 13, y + 17) }),
      text("label", 40, base, name, large),
      two && text("detail", 40, below, both.startsWith(n.word) ? both : shorten(n.word, room, size)),
      n.members ? this.bar(n, x, y) : note && text("note", WIDTH - 9, 16, note, 11.5),
    );
  }

  bar(n, left, y) {
    let x = left + 40;
    return n.counts.map((c) => {
      const width = Math.max(((WIDTH - 52) * c.n) / n.members.length, 2);
      x += width;
      return h("rect", { class: `share ${c.tone}`, x: x - width, y: y + 42, width, height: 3 });
    });
  }

  describe(n) {
    const after = this.links.to.get(n.id) ?? [],
      names = after
        .slice(0, 3)
        .map((id) => this.nodes.get(id).name)
        .join(", ");
    const more = after.length > 3 ? ` and ${after.length - 3} more` : "";
    return (
      `${n.name}${n.times ?? ""}: ${n.word}` +
      (n.detail ? ", " + n.detail : "") +
      (names && `; after ${names}${more}`) +
      (n.members ? "; press Enter to unfold" : "")
    );
  }

  repaint(id) {
    this.drawn.get(id)?.classList.toggle("active", id === this.active);
  }

  // light marks the edges of a node, as they are drawn.
  light(id) {
    const real = (e) => e.links.some((link) => link.includes(id) && !link.some((n) => this.nodes.get(n).ghost));
    this.lit.setAttribute(
      "d",
      (this.wires.get(id) ?? [])
        .filter(real)
        .slice(0, 200)
        .map((e) => curve(e.points))
        .join(""),
    );
  }

  // mark marks the edges along a path of nodes, such as the critical one.
  mark(path) {
    const homes = path.map((id) => this.shown.home.get(id)),
      steps = new Set(homes.slice(1).map((to, i) => `${homes[i]} ${to}`));
    const marked = new Set(
      homes.flatMap((id) => this.wires.get(id) ?? []).filter((e) => e.links.some((link) => steps.has(link.join(" ")))),
    );
    this.way.setAttribute("d", [...marked].map((e) => curve(e.points)).join(""));
  }

  // reveal moves the view as little as possible so that a node is in it.
  reveal(id) {
    const p = this.places.get(id),
      { width, height } = this.size(),
      { x, y, k } = this.view,
      pad = 30;
    const shift = (low, high, size) => (low < pad ? pad - low : high > size - pad ? size - pad - high : 0);
    const dx = shift(p.x * k + x, (p.x + WIDTH) * k + x, width),
      dy = shift(p.y * k + y, (p.y + HEIGHT) * k + y, height);
    if (dx || dy) this.look(x + dx, y + dy, k);
  }

  // Tools, pointer and keys.

  showTools() {
    const all = this.source.nodes,
      failed = all.filter((n) => n.tone === "bad"),
      { groups } = this.shown;
    const tool = (name, text, act) => button(text, act, "quiet small", { "aria-label": name, title: name, key: text });
    fill(
      this.tools,
      failed.length > 0 &&
        all.length > 3 &&
        button(`Failed ${number(failed.length)}`, () => this.jump(failed), "quiet small", {
          key: "failed",
          title: "Go to the next step that failed",
        }),
      [...groups].some((g) => !this.open.has(g)) && tool("Unfold every step", "Unfold", () => this.unfold()),
      this.open.size > 0 && tool("Fold batches and layers", "Fold", () => this.refold()),
      tool("Zoom in", "+", () => this.zoom(1.3)),
      tool("Zoom out", "−", () => this.zoom(1 / 1.3)),
      tool("Fit the graph into the view", "Fit", () => {
        this.fit();
        this.touched = true;
      }),
    );
    fill(this.legend, this.scale < DETAIL && legend(tally(all).map((c) => [c.tone, `${c.word} ${number(c.n)}`])));
  }

  listen() {
    const fingers = new Map();
    const on = (name, act, options) => this.pane.addEventListener(name, act, options);
    on("pointerdown", (e) => {
      fingers.set(e.pointerId, { ...this.at(e), far: 0 });
    });
    on("pointermove", (e) => this.drag(e, fingers));
    on("pointerup", (e) => {
      if (fingers.get(e.pointerId)?.far < 5) this.click(e);
      fingers.delete(e.pointerId);
    });
    on("pointercancel", (e) => fingers.delete(e.pointerId));
    on("wheel", (e) => this.wheel(e), { passive: false });
    on("keydown", (e) => this.key(e));
    on("focus", () => this.active ?? (this.shape?.nodes.length && this.select(this.shape.nodes[0].id, true)));
    this.watch = new ResizeObserver(() => {
      if (this.shape) this.touched ? this.soon() : this.start();
    });
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
    const now = this.at(e),
      dx = now.x - finger.x,
      dy = now.y - finger.y,
      { x, y, k } = this.view;
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
    const at = this.at(e),
      { x, y, k } = this.view,
      wx = (at.x - x) / k,
      wy = (at.y - y) / k;
    const hit = this.shape.nodes.find((p) => wx >= p.x && wx <= p.x + WIDTH && wy >= p.y && wy <= p.y + HEIGHT);
    if (!hit) return;
    if (this.nodes.get(hit.id).members) this.unfold(hit.id);
    else this.select(hit.id);
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const act = {
      ArrowRight: () => this.along("from"),
      ArrowLeft: () => this.along("to"),
      ArrowUp: () => this.beside(-1),
      ArrowDown: () => this.beside(1),
      Home: () => this.select(this.shape.nodes[0].id),
      End: () => this.select(this.shape.nodes.at(-1).id),
      Enter: () => this.enter(),
      "+": () => this.zoom(1.3),
      "=": () => this.zoom(1.3),
      "-": () => this.zoom(1 / 1.3),
      0: () => this.fit(),
      Backspace: () => this.open.size && this.refold(),
    }[e.key];
    if (!act || !this.active) return;
    e.preventDefault();
    e.stopPropagation();
    act();
  }

  // along follows an edge to the neighbour that is nearest in height.
  along(side) {
    const here = this.places.get(this.active),
      next = this.links[side].get(this.active) ?? [];
    const far = (id) =>
      Math.abs(this.places.get(id).y - here.y) + 1000 * Math.abs(this.places.get(id).layer - here.layer);
    if (next.length) this.select(next.reduce((a, b) => (far(b) < far(a) ? b : a)));
  }

  // beside goes to the node above or below in the same layer.
  beside(step) {
    const here = this.places.get(this.active);
    const row = this.shape.nodes.filter((p) => p.layer === here.layer).sort((a, b) => a.x - b.x || a.y - b.y);
    const next = row[row.findIndex((p) => p.id === here.id) + step];
    if (next) this.select(next.id);
  }

  enter() {
    if (this.nodes.get(this.active).members) this.unfold(this.active);
    else this.options.onOpen?.(this.active);
  }
}

// strand returns edges as one path with the box that it covers.
function strand(edges, faint) {
  const xs = [],
    ys = [];
  for (const e of edges)
    for (const [x, y] of e.points) {
      xs.push(x);
      ys.push(y);
    }
  const x = Math.min(...xs),
    y = Math.min(...ys);
  const path = h("path", { class: faint ? "edge faint" : "edge", d: edges.map((e) => curve(e.points)).join("") });
  return { path, x: x - 5, y: y - 5, width: Math.max(...xs) - x + 10, height: Math.max(...ys) - y + 10 };
}
