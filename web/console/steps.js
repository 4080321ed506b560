// What the graph and the timeline show, as lists: the steps, and what happened to them.

import { exact, span } from "./model.js";
import { button, clip, fill, h, look, number, patch, state, when } from "./ui.js";

const CHUNK = 200; // rows of a list that are shown at a time

// StepList is the list of steps: what the graph shows, as a table.
export class StepList {
  words; page; shown; choose;
  constructor(page, choose) {
    Object.assign(this, { page, choose, shown: CHUNK, text: "", only: "", words: new Map() });
    this.body = h("tbody");
    this.chips = h("div.chips");
    this.foot = h("div.row.center");
    const search = h("input", { type: "search", placeholder: "Find a step", "aria-label": "Find a step",
      "data-search": true,
      oninput: () => { this.text = search.value.toLowerCase(); this.draw(); } });
    const heads = ["State", "Step", "Attempts", "Time", "After"].map((c) => h("th", { scope: "col" }, c));
    this.root = h("div.step-list", h("div.row.filter", search, this.chips),
      h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Steps" },
        h("table", h("caption.hidden", "Steps of the task, in the order of their creation"), h("thead", h("tr", heads)),
          this.body)), this.foot);
    this.draw();
  }

  // count shows how many steps are in each state, as buttons that choose these. None goes while the page is open.
  count() {
    const { words } = this;
    for (const w of words.values()) w.n = 0;
    for (const s of this.page.model.steps.values()) {
      const { word, tone } = look(s.state);
      words.set(word, { tone, n: (words.get(word)?.n ?? 0) + 1 });
    }
    const choose = (word) => { this.only = this.only === word ? "" : word; this.draw(); };
    fill(this.chips, (words.size > 1 || this.only) && [...words].map(([word, { tone, n }]) =>
      button([word, " ", h("b", number(n))], () => choose(word), "chip " + tone,
        { "aria-pressed": String(this.only === word), key: word })));
  }

  draw() {
    const { model } = this.page, all = [...model.steps.values()];
    this.count();
    const fits = all.filter((s) => s.name.toLowerCase().includes(this.text)
      && (!this.only || look(s.state).word === this.only));
    const ghosts = this.text || this.only || fits.length > this.shown ? []
      : model.ghosts().map((g) => h("tr.soft", { key: g.name },
      h("td", g.skipped ? "Not taken" : "Not decided yet"), h("td.step", g.name), h("td.tries"), h("td"),
        h("td.after", g.dependencies.join(", "))));
    fill(this.body, fits.slice(0, this.shown).map((s) => this.row(s)), ghosts);
    const left = fits.length - this.shown, more = () => { this.shown += CHUNK; this.draw(); };
    fill(this.foot, left > 0 && button(`Show ${number(Math.min(left, CHUNK))} of ${number(left)} more`, more,
      "quiet small"));
  }

  row(s) {
    const { model } = this.page, parents = model.parents(s), after = parents.slice(0, 3).map((p) => p.name).join(", ");
    const chosen = s.id === this.page.state.step;
    const name = button(clip(s.name), () => this.choose(s.id), "as-link",
      { key: "name", "aria-pressed": String(chosen) });
    return h("tr", { class: chosen ? "chosen" : "", key: s.id, "data-id": s.id }, h("td", state(s.state)),
      h("td.step", name),
      h("td.tries", s.attempts > 0 && `${s.attempts}/${s.max}`), h("td.took", this.time(s)),
      h("td.after.soft", after + (parents.length > 3 ? ` and ${parents.length - 3} more` : "")));
  }

  time(s) {
    if (s.state === "waiting_for_retry") return "retry " + this.page.model.countdown(s);
    return s.spans.some((x) => x.kind === "run") && span(this.page.model.took(s));
  }

  // update shows changed steps.
  update(...steps) {
    for (const s of steps) {
      const row = s && this.body.querySelector(`[data-id="${s.id}"]`);
      if (row) patch(row, this.row(s));
    }
  }
}

// EventList shows the transitions, the newest first.
export class EventList {
  body; foot; page; shown; lines; choose;
  constructor(page, choose) {
    Object.assign(this, { page, choose, shown: CHUNK, lines: [], body: h("ol.events"), foot: h("div.row.center") });
    this.one = h("input", { type: "checkbox", onchange: () => this.draw() });
    this.which = h("label.which", this.one, " Only the chosen step");
    this.root = h("div", this.which, this.body, this.foot);
    this.draw();
  }

  draw() {
    const { model, state: { step, tab } } = this.page;
    if (tab && tab !== "Events") return;
    this.which.hidden = !step;
    const all = [...model.history.entries()].filter(([, t]) => !this.one.checked || !step || t.step_uuid === step);
    fill(this.body, all.slice(-this.shown).reverse().map(([i, t]) => (this.lines[i] ??= this.line(t, i))));
    const more = () => { this.shown += CHUNK; this.draw(); };
    fill(this.foot, all.length > this.shown && button(`Show ${CHUNK} more`, more, "quiet small"));
  }

  line(t, key) {
    const at = exact(t.recorded_at) - this.page.model.created;
    return h("li", { key }, h("span.at", { title: when(t.recorded_at) }, "+" + span(at)),
      t.step_uuid ? button(clip(t.step_name), () => this.choose(t.step_uuid), "as-link", { key: "name" })
        : h("b", "task"),
      h("span.soft", t.from_state ? `${look(t.from_state).word} →` : "created as"), state(t.to_state),
      (t.reason || t.attempt > 0) && h("span.soft", t.reason || `attempt ${t.attempt}`));
  }
}
