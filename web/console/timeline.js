// The timeline of a task: a row for each step, with a bar for each attempt and lines for the time in
// the queue and in back-off. Only the rows in view are in the document.

import * as api from "./api.js";
import { shorten } from "./labels.js";
import { span } from "./model.js";
import { criticalPath, timeOf } from "./slow.js";
import { button, fill, h, legend, number, select } from "./ui.js";

const ROW = 26,
  HEAD = 26,
  NAMES = 190,
  MOST = 420; // heights, the width of names, the greatest height in view
const MOST_ZOOM = 200;
const FEW = 6,
  BARS = 300; // instances of a batch that are not folded, and bars of a folded one

let order = "first"; // of the rows, as last chosen

// Timeline shows the steps of the model of a page in an element. onSelect(id) is called for a click on a row.
export class Timeline {
  open;
  onSelect;
  sum;
  root;
  page;
  constructor(root, page, onSelect) {
    Object.assign(this, { root, page, onSelect, scale: 1, open: new Set(), sum: h("p.sum") });
    this.axis = h("g.axis");
    this.links = h("g.links");
    this.rows = h("g");
    this.labels = h("g");
    this.svg = h(
      "svg.timeline-rows",
      { role: "group", "aria-label": "Timeline" },
      this.axis,
      this.rows,
      this.links,
      this.labels,
    );
    this.pane = h(
      "div.timeline",
      {
        tabindex: 0,
        role: "region",
        "aria-label": "Timeline of attempts",
        onscroll: () => this.draw(),
        onkeydown: (e) => this.key(e),
      },
      this.svg,
    );
    this.svg.addEventListener("pointerover", (e) => this.point(e.target.closest("[data-id]")?.dataset.id));
    this.svg.addEventListener("pointerleave", () => this.point(this.chosen));
    this.svg.addEventListener("click", (e) => {
      const id = e.target.closest("[data-id]")?.dataset.id,
        row = this.rowOf?.(id);
      if (row?.batch) {
        if (!this.open.delete(id)) this.open.add(id);
        this.draw();
      } else if (id) this.onSelect(id);
    });
    const tool = (name, text, act) => button(text, act, "quiet small", { "aria-label": name, title: name });
    const choice = select(
      [
        ["first", "Failed and critical first"],
        ["start", "In their order"],
        ["long", "Longest first"],
        ["name", "By name"],
      ],
      order,
      (value) => {
        order = value;
        this.draw();
      },
      { "aria-label": "Order of the steps", class: "auto" },
    );
    root.append(
      this.sum,
      h(
        "div.row.timeline-head",
        legend(LEGEND),
        choice,
        tool("Zoom in on the timeline", "+", () => this.zoom(1.5)),
        tool("Zoom out of the timeline", "−", () => this.zoom(1 / 1.5)),
        tool("Fit the timeline into the view", "Fit", () => this.zoom(0)),
      ),
      this.pane,
    );
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.pane);
  }

  destroy() {
    this.watch.disconnect();
  }

  get model() {
    return this.page.model;
  }

  get chosen() {
    return this.page.state.step;
  }

  // reveal scrolls to the row of a step.
  reveal(id) {
    const i = this.items?.indexOf(this.rowOf(id)) ?? -1,
      top = HEAD + i * ROW;
    const { scrollTop, clientHeight } = this.pane;
    this.point(id);
    if (i >= 0 && (top - HEAD < scrollTop || top + ROW > scrollTop + clientHeight))
      this.pane.scrollTop = top - clientHeight / 2;
  }

  // zoom scales the axis around its middle; 0 shows everything.
  zoom(factor) {
    const at = (this.names + this.pane.clientWidth) / 2,
      before = this.scale;
    const inside = this.pane.scrollLeft + at - this.names;
    this.scale = Math.min(Math.max(before * factor, 1), MOST_ZOOM);
    this.draw();
    this.pane.scrollLeft = inside * (this.scale / before) - at + this.names;
    this.draw();
  }

  key(e) {
    const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, 0: 0 }[e.key];
    if (factor !== undefined && !e.ctrlKey && !e.metaKey) {
      e.preventDefault();
      return this.zoom(factor);
    }
    const step = { ArrowUp: -1, ArrowDown: 1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const next = this.items[this.items.indexOf(this.rowOf(this.chosen)) + step];
    if (next) this.onSelect(next.steps[0].id);
  }

  // ends returns the ends of the axis: up to the end of the task, or now. While it only waits for somebody to fix
  // it, that takes a third of the axis at most.
  ends() {
    const { task, steps } = this.model,
      from = this.model.created,
      end = this.model.end();
    let to = from;
    for (const s of steps.values()) to = Math.max(to, s.due ?? 0, ...s.spans.map((x) => x.to ?? x.from));
    to = Math.max(to, task.status === "blocked_by_failures" ? Math.min(end, to + (to - from) / 2) : end);
    return { from, to: Math.max(to, from + 0.1) };
  }

  // arrange returns the rows, {id, name, steps}: one for each step, and one for a batch that is folded.
  arrange() {
    const size = new Map(),
      rows = new Map(),
      batch = (s) => s.declared?.step_type === "batch_worker" && "batch " + s.declared.name;
    for (const s of this.model.steps.values()) size.set(batch(s), (size.get(batch(s)) ?? 0) + 1);
    for (const s of this.model.steps.values()) {
      const id = batch(s),
        many = id && size.get(id) > FEW;
      if (many && !rows.has(id))
        rows.set(id, { id, batch: true, name: s.declared.name, end: ` × ${number(size.get(id))}`, steps: [] });
      if (many) rows.get(id).steps.push(s);
      if (!many || this.open.has(id)) rows.set(s.id, { id: s.id, name: s.name, steps: [s], of: rows.get(id) });
    }
    const list = [...rows.values()],
      key = new Map(),
      urgency = (s) => (s.state === "error" ? 0 : this.critical.has(s) ? 1 : 2);
    if (order === "first") {
      // those of a batch stay with it
      for (const r of list) key.set(r, key.get(r.of) ?? r.steps.reduce((n, s) => Math.min(n, urgency(s)), 2));
    }
    if (order === "long") for (const r of list) key.set(r, -this.took(r));
    return order === "name"
      ? list.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }))
      : key.size
        ? list.sort((a, b) => key.get(a) - key.get(b))
        : list;
  }

  // took returns for how long a row ran: a batch, for as long as any of its steps did.
  took({ steps }) {
    let at = -Infinity,
      sum = 0;
    const runs = steps.flatMap((s) => s.spans.filter((x) => x.kind === "run"));
    for (const s of runs.sort((a, b) => a.from - b.from)) {
      const to = s.to ?? this.model.end();
      sum += Math.max(0, to - Math.max(at, s.from));
      at = Math.max(at, to);
    }
    return sum;
  }

  // rowOf returns the row of a step, or of the batch that it is folded into.
  rowOf(id) {
    return this.items.find((r) => r.id === id) ?? this.items.find((r) => r.steps.some((s) => s.id === id));
  }

  draw() {
    if (!this.pane.isConnected || !this.pane.clientWidth) return;
    this.path = criticalPath(this.model);
    this.critical = new Set(this.path);
    this.items = this.arrange();
    this.showSum();
    const high = this.items.length * ROW + HEAD + 4,
      bars = this.scale > 1 ? 14 : 0; // the height of a scroll bar
    this.pane.style.height = Math.min(high + 2 + bars, MOST) + "px";
    const { clientWidth, scrollTop } = this.pane;
    this.names = Math.min(NAMES, clientWidth / 3);
    const { from, to } = (this.range = this.ends()),
      room = (clientWidth - this.names - 92) * this.scale,
      width = this.names + room + 92;
    this.x = (at) => this.names + ((Math.min(at, to) - from) / (to - from)) * room;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", high);
    const first = Math.max(0, Math.floor((scrollTop - HEAD) / ROW)),
      last = first + Math.ceil(MOST / ROW) + 1;
    const shown = this.items.slice(first, last);
    fill(
      this.rows,
      shown.map((s, i) => this.row(s, first + i, width)),
    );
    fill(this.axis, this.ticks(room, scrollTop, high));
    fill(
      this.labels,
      h("rect.names", { x: 0, y: scrollTop, width: this.names - 1, height: HEAD }),
      shown.map((s, i) => this.label(s, HEAD + (first + i) * ROW)),
    );
    this.labels.setAttribute("transform", `translate(${this.pane.scrollLeft} 0)`);
    this.relate();
  }

  // ticks makes the axis as far as it is in view.
  ticks(room, top, high) {
    const { from, to } = this.range,
      { scrollLeft, clientWidth } = this.pane,
      marks = [],
      per = (to - from) / room;
    const step = niceStep(per * 110),
      end = Math.min(to - from, (scrollLeft + clientWidth) * per);
    for (let t = Math.floor((scrollLeft * per) / step) * step; t <= end; t += step) {
      const x = this.x(from + t);
      marks.push(
        h("line", { x1: x, x2: x, y1: top + HEAD - 4, y2: high }),
        h("text", { x: x + 4, y: top + 16 }, t ? span(t) : "0"),
      );
    }
    const now = this.x(api.now());
    if (!this.model.task.completed_at && api.now() < to)
      marks.push(h("line.now", { x1: now, x2: now, y1: top + HEAD - 4, y2: high }));
    return marks;
  }

  // showSum says what the time went to, along the critical path.
  showSum() {
    const sum = timeOf(this.model, this.path),
      total = this.model.end() - this.model.created;
    const parts = Object.entries(sum)
      .filter(([, ms]) => ms >= 0.001 && ms > total / 100)
      .sort((a, b) => b[1] - a[1]);
    fill(
      this.sum,
      parts.length > 0 &&
        h(
          "span",
          "Critical path: ",
          parts.map(([kind, ms], i) => [
            i > 0 && " · ",
            h(i ? "span" : "b", i ? span(ms) : `${span(ms)} of ${span(total)}`, " ", SUMS[kind]),
          ]),
        ),
    );
  }

  label(row, y) {
    const chosen = row.steps.some((s) => s.id === this.chosen),
      name = row.batch ? (this.open.has(row.id) ? "▾ " : "▸ ") + row.name : row.name;
    const critical = row.steps.some((s) => this.critical.has(s));
    return h(
      "g",
      { class: (chosen ? "chosen" : "") + (critical ? " critical" : ""), key: row.id, "data-id": row.id },
      h("rect.names", { x: 0, y, width: this.names - 1, height: ROW }),
      critical && h("rect.mark", { x: 0, y: y + 4, width: 3, height: ROW - 8 }),
      h("text.label", { x: 8, y: y + 17 }, shorten(name, this.names - 16, 12.5, critical, row.end)),
    );
  }

  row(row, i, width) {
    const { id, name, end = "", steps, batch } = row,
      y = HEAD + i * ROW,
      took = this.took(row),
      [step] = steps;
    // A bar that continues beyond the axis is cut, and says how long it is.
    const over = !batch && step.spans.at(-1),
      cut = over && this.until(over, step) > this.range.to && `→ ${span(this.until(over, step) - over.from)}`;
    const words = batch
      ? `${number(steps.length)} steps`
      : step.spans
          .map((s) => `${WORDS[this.model.kindOf(s, step)]} ${span((s.to ?? this.model.end()) - s.from)}`)
          .join(", ");
    const last = Math.max(0, ...steps.map((s) => (s.spans.length ? this.x(this.until(s.spans.at(-1), s)) : 0)));
    return h(
      "g",
      {
        class: `line${steps.some((s) => s.id === this.chosen) ? " chosen" : ""}${batch ? " many" : ""}`,
        key: id,
        "data-id": id,
        role: "img",
        "aria-label": `${name}${end}: ${words || "not started"}`,
      },
      h("rect.back", { x: 0, y, width, height: ROW }),
      steps
        .filter((_, n) => n % Math.ceil(steps.length / BARS) === 0)
        .map((one) => one.spans.map((s) => this.bar(s, y, one))),
      (took > 0 || cut) && h("text.took", { x: last + 6, y: y + 17 }, cut || span(took)),
    );
  }

  // until returns when a span ends: so far, or for a back-off when the retry is due.
  until(s, step) {
    return s.to ?? ((s.kind === "retry" && step.due) || this.model.end());
  }

  bar(s, y, step) {
    const from = this.x(s.from),
      to = this.x(this.until(s, step)),
      width = Math.max(to - from, s.kind === "run" ? 3 : 0);
    const kind = this.model.kindOf(s, step),
      tone = kind !== "run" ? kind : s.to === undefined ? "run" : (TONES[s.end] ?? "off");
    const shape = s.kind === "run" ? { y: y + 6, height: ROW - 12, rx: 3 } : { y: y + ROW / 2 - 1.5, height: 3 };
    const what = `${WORDS[kind]}${kind === "run" ? " " + s.attempt : ""}, ${span((s.to ?? this.model.end()) - s.from)}`;
    return h("rect", { class: `attempt ${tone}`, x: from, width, ...shape }, h("title", what));
  }

  // point shows what the step under the pointer depended on.
  point(id) {
    if (id === this.pointed || !this.items) return;
    this.pointed = id;
    this.relate();
  }

  relate() {
    const step = this.model.steps.get(this.pointed),
      place = new Map();
    this.items.forEach((r, i) => r.steps.forEach((s) => place.set(s.id, i)));
    const middle = (s) => HEAD + place.get(s.id) * ROW + ROW / 2;
    const lines = (step ? this.model.parents(step) : []).slice(0, 100).map((p) => {
      const x = this.x(p.spans.at(-1)?.to ?? p.created),
        to = this.x(step.spans[0]?.from ?? this.range.to),
        bend = Math.max(to - x, 24) / 2;
      return h("path", {
        d: `M${x} ${middle(p)}C${x + bend} ${middle(p)} ${to - bend} ${middle(step)} ${to} ` + `${middle(step)}`,
      });
    });
    fill(this.links, lines);
  }
}

const WORDS = { queue: "ready for", run: "attempt", retry: "back-off", people: "waited for a person for" };
const SUMS = {
  queue: "waited for a slot or a worker",
  run: "ran",
  retry: "back-off",
  people: "waited for a person",
  rest: "between steps",
};
const TONES = {
  enqueued_for_orchestration: "good",
  complete: "good",
  resolved_manually: "good",
  enqueued_as_error_for_orchestration: "bad",
  error: "bad",
};

// niceStep rounds a length of time up to one that reads well.
function niceStep(ms) {
  const units = [1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
  const power = 10 ** Math.floor(Math.log10(Math.max(ms, 0.001)));
  if (ms <= 5000) return [1, 2, 5, 10].find((f) => f * power >= ms) * power;
  return units.find((u) => u >= ms) ?? Math.ceil(ms / 864e5) * 864e5;
}

const LEGEND = [
  ["good", "succeeded"],
  ["bad", "failed"],
  ["run", "running"],
  ["queue", "waits for a slot or a worker"],
  ["retry", "back-off"],
  ["people", "waits for a person"],
  ["mark", "critical path"],
];
