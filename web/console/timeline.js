// The timeline of a task: a row for each step, with a bar for each attempt and lines for the time in
// the queue and in back-off. Only the rows in view are in the document.

import * as api from "./api.js";
import { button, fill, h } from "./ui.js";
import { span } from "./model.js";

const ROW = 26, HEAD = 26, NAMES = 190, MOST = 420; // heights, the width of names, the greatest height in view
const MOST_ZOOM = 200;

// Timeline shows the steps of a model in an element. onSelect(id) is called for a click on a row.
export class Timeline {
  constructor(root, model, onSelect) {
    Object.assign(this, { model, onSelect, scale: 1 });
    this.axis = h("g.axis");
    this.links = h("g.links");
    this.rows = h("g");
    this.labels = h("g");
    this.svg = h("svg.timeline-rows", { role: "group", "aria-label": "Timeline" }, this.axis, this.rows, this.links, this.labels);
    this.pane = h("div.timeline", { tabindex: 0, role: "region", "aria-label": "Timeline of attempts",
      onscroll: () => this.draw(), onkeydown: (e) => this.key(e) }, this.svg);
    this.svg.addEventListener("pointerover", (e) => this.point(e.target.closest("[data-id]")?.dataset.id));
    this.svg.addEventListener("pointerleave", () => this.point(this.chosen));
    this.svg.addEventListener("click", (e) => {
      const id = e.target.closest("[data-id]")?.dataset.id;
      if (id) this.onSelect(id);
    });
    this.pane.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    const tool = (name, text, act) => button(text, act, "quiet small", { "aria-label": name, title: name });
    root.append(h("div.row.timeline-head", legend(), tool("Zoom in on the timeline", "+", () => this.zoom(1.5)),
      tool("Zoom out of the timeline", "−", () => this.zoom(1 / 1.5)), tool("Fit the timeline into the view", "Fit", () => this.zoom(0))), this.pane);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.pane);
  }

  destroy() { this.watch.disconnect(); }

  select(id, reveal = true) {
    this.chosen = this.pointed = id;
    const i = this.steps?.findIndex((s) => s.id === id) ?? -1, top = HEAD + i * ROW;
    const { scrollTop, clientHeight } = this.pane;
    if (reveal && i >= 0 && (top - HEAD < scrollTop || top + ROW > scrollTop + clientHeight)) this.pane.scrollTop = top - clientHeight / 2;
    this.draw();
  }

  // zoom scales the axis around a place, by default the middle; 0 shows everything.
  zoom(factor, at = (this.names + this.pane.clientWidth) / 2) {
    const before = this.scale, inside = this.pane.scrollLeft + at - this.names;
    this.scale = Math.min(Math.max(before * factor, 1), MOST_ZOOM);
    this.draw();
    this.pane.scrollLeft = inside * (this.scale / before) - at + this.names;
    this.draw();
  }

  wheel(e) {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    this.zoom(Math.exp(-Math.max(-60, Math.min(60, e.deltaY)) / 200), e.clientX - this.pane.getBoundingClientRect().left);
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
    const next = this.steps[this.steps.findIndex((s) => s.id === this.chosen) + step];
    if (next) this.onSelect(next.id);
  }

  ends() {
    const { task, steps } = this.model, from = this.model.created;
    let to = from;
    for (const s of steps.values()) {
      const last = s.spans.at(-1);
      to = Math.max(to, last ? last.to ?? last.from : s.created, s.due ?? 0);
    }
    if (!task.completed_at && task.status !== "blocked_by_failures") to = Math.max(to, api.now());
    return { from, to: Math.max(to, from + 0.1) };
  }

  draw() {
    if (!this.pane.isConnected || !this.pane.clientWidth) return;
    this.steps = [...this.model.steps.values()];
    const high = this.steps.length * ROW + HEAD + 4, bars = this.scale > 1 ? 14 : 0; // the height of a scroll bar
    this.pane.style.height = Math.min(high + 2 + bars, MOST) + "px";
    const { clientWidth, scrollTop } = this.pane;
    this.names = Math.min(NAMES, clientWidth / 3);
    const { from, to } = (this.range = this.ends()), room = (clientWidth - this.names - 70) * this.scale, width = this.names + room + 70;
    this.x = (at) => this.names + ((Math.min(at, to) - from) / (to - from)) * room;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", high);
    const first = Math.max(0, Math.floor((scrollTop - HEAD) / ROW)), last = first + Math.ceil(MOST / ROW) + 1;
    const shown = this.steps.slice(first, last);
    fill(this.rows, shown.map((s, i) => this.row(s, first + i, width)));
    fill(this.axis, this.ticks(room, scrollTop, high));
    fill(this.labels, h("rect.names", { x: 0, y: scrollTop, width: this.names - 1, height: HEAD }),
      shown.map((s, i) => this.label(s, HEAD + (first + i) * ROW)));
    this.labels.setAttribute("transform", `translate(${this.pane.scrollLeft} 0)`);
    this.relate();
  }

  // ticks makes the axis as far as it is in view.
  ticks(room, top, high) {
    const { from, to } = this.range, { scrollLeft, clientWidth } = this.pane, marks = [], per = (to - from) / room;
    const step = niceStep(per * 110), end = Math.min(to - from, (scrollLeft + clientWidth) * per);
    for (let t = Math.floor((scrollLeft * per) / step) * step; t <= end; t += step) {
      const x = this.x(from + t);
      marks.push(h("line", { x1: x, x2: x, y1: top + HEAD - 4, y2: high }), h("text", { x: x + 4, y: top + 16 }, t ? span(t) : "0"));
    }
    const now = this.x(api.now());
    if (!this.model.task.completed_at && api.now() < to) marks.push(h("line.now", { x1: now, x2: now, y1: top + HEAD - 4, y2: high }));
    return marks;
  }

  label(step, y) {
    const most = Math.floor(this.names / 7.6), name = step.name.length > most ? step.name.slice(0, most - 1) + "…" : step.name;
    return h("g", { class: step.id === this.chosen ? "chosen" : "", key: step.id, "data-id": step.id },
      h("rect.names", { x: 0, y, width: this.names - 1, height: ROW }), h("text.label", { x: 8, y: y + 17 }, name));
  }

  row(step, i, width) {
    const y = HEAD + i * ROW, took = this.model.took(step);
    const words = step.spans.map((s) => `${WORDS[s.kind]} ${span((s.to ?? api.now()) - s.from)}`).join(", ");
    const end = step.spans.length ? this.x(this.until(step.spans.at(-1), step)) : 0;
    return h("g", { class: "line" + (step.id === this.chosen ? " chosen" : ""), key: step.id, "data-id": step.id, role: "img",
      "aria-label": `${step.name}: ${words || "not started"}` },
      h("rect.back", { x: 0, y, width, height: ROW }),
      step.spans.map((s) => this.bar(s, y, step)), took > 0 && h("text.took", { x: end + 6, y: y + 17 }, span(took)));
  }

  // until returns when a span ends: so far, or for a back-off when the retry is due.
  until(s, step) { return s.to ?? ((s.kind === "retry" && step.due) || api.now()); }

  bar(s, y, step) {
    const from = this.x(s.from), to = this.x(this.until(s, step)), width = Math.max(to - from, s.kind === "run" ? 3 : 0);
    const tone = s.kind !== "run" ? s.kind : s.to === undefined ? "run" : TONES[s.end] ?? "off";
    const shape = s.kind === "run" ? { y: y + 6, height: ROW - 12, rx: 3 } : { y: y + ROW / 2 - 1.5, height: 3 };
    const what = `${WORDS[s.kind]}${s.kind === "run" ? " " + s.attempt : ""}, ${span((s.to ?? api.now()) - s.from)}`;
    return h("rect", { class: `attempt ${tone}`, x: from, width, ...shape }, h("title", what));
  }

  // point shows what the step under the pointer depended on.
  point(id) {
    if (id === this.pointed) return;
    this.pointed = id;
    this.relate();
  }

  relate() {
    const step = this.model.steps.get(this.pointed), place = new Map(this.steps.map((s, i) => [s.id, i]));
    const middle = (s) => HEAD + place.get(s.id) * ROW + ROW / 2;
    const lines = (step ? this.model.parents(step) : []).slice(0, 100).map((p) => {
      const x = this.x(p.spans.at(-1)?.to ?? p.created), to = this.x(step.spans[0]?.from ?? this.range.to), bend = Math.max(to - x, 24) / 2;
      return h("path", { d: `M${x} ${middle(p)}C${x + bend} ${middle(p)} ${to - bend} ${middle(step)} ${to} ${middle(step)}` });
    });
    fill(this.links, lines);
  }
}

const WORDS = { queue: "ready for", run: "attempt", retry: "back-off" };
const TONES = { enqueued_for_orchestration: "good", complete: "good", resolved_manually: "good",
  enqueued_as_error_for_orchestration: "bad", error: "bad" };

// niceStep rounds a length of time up to one that reads well.
function niceStep(ms) {
  const units = [1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
  const power = 10 ** Math.floor(Math.log10(Math.max(ms, 0.001)));
  if (ms <= 5000) return [1, 2, 5, 10].find((f) => f * power >= ms) * power;
  return units.find((u) => u >= ms) ?? Math.ceil(ms / 864e5) * 864e5;
}

function legend() {
  const entry = (tone, words) => h("span", h("i", { class: "swatch " + tone, "aria-hidden": "true" }), words);
  return h("p.legend", entry("good", "succeeded"), entry("bad", "failed"), entry("run", "running"),
    entry("queue", "waits for a slot or a worker"), entry("retry", "back-off"));
}
