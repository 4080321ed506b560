// The steps that wait for people, each with a form for its result.

import { stepButtons, stepForm } from "./actions.js";
import * as api from "./api.js";
import { Selection } from "./bulk.js";
import { live } from "./live.js";
import { fill } from "./patch.js";
import { actForm, ago, button, clip, empty, h, link, plural, problem, shortId, toast, when } from "./ui.js";
import { jsonTree } from "./values.js";

const perPage = 100;

export async function show(root, { signal, renew }) {
  const list = new Waits(signal);
  await list.read();
  fill(root, h("div.row", h("h1", "Waits for me"), list.total), list.place, h("div.row.center", list.more),
    list.picked.bar);
  const soon = live(signal, (e) => e.type === "step" && [e.from_state, e.to_state].some((s) => s === "enqueued"),
    () => list.read());
  list.changed = soon;
  renew(soon);
}

class Waits {
  changed; limit; signal; cards;
  constructor(signal) {
    Object.assign(this, { signal, limit: perPage, cards: new Map() });
    this.total = h("span.soft", { role: "status" });
    this.place = h("div.waits");
    this.more = button("Show more", () => { this.limit += perPage; this.changed(); }, "quiet", { hidden: true });
    this.picked = new Selection({ noun: ["step"], offers: ["complete", "resolve"],
      total: () => (this.more.hidden ? this.steps.length : Infinity), // how many more there are is not known
      filter: (name, ids) => this.filterOf(ids), changed: () => this.changed(),
      schema: () => this.chosen(null)[0].result_schema });
    this.steps = [];
  }

  async read() {
    const steps = await api.several("/v1/steps", { for_person: true, sort: "answer_due_at" }, this.limit + 1, 500,
      this.signal);
    this.more.hidden = steps.length <= this.limit;
    this.steps = steps.slice(0, this.limit);
    this.draw();
  }

  // draw shows a card for each step. A card that was written in stays when its step does not wait any more.
  draw() {
    this.total.textContent = `${plural(this.steps.length, "step")}${this.more.hidden ? "" : " or more"}`;
    const waiting = new Set(this.steps.map((s) => s.step_uuid));
    for (const s of this.steps) if (!this.cards.has(s.step_uuid)) this.cards.set(s.step_uuid, new WaitCard(s, this));
    for (const [id, card] of this.cards) if (!waiting.has(id) && !card.outlives()) this.cards.delete(id);
    for (const id of this.picked.ids) if (!waiting.has(id)) this.picked.ids.delete(id);
    const over = [...this.cards.keys()].filter((id) => !waiting.has(id));
    const shown = [...over, ...waiting].map((id) => this.cards.get(id).element);
    fill(this.place, shown.length ? shown : empty("Nothing waits for you",
      "A step appears here when a person must complete it: its callable has no handler, or is one of console.people."));
    this.picked.draw();
  }

  // chosen returns the steps of these ids, or all that are chosen.
  chosen(ids) { return this.steps.filter((s) => (ids ? ids.includes(s.step_uuid) : this.picked.has(s.step_uuid))); }

  // filterOf selects steps of one template step, since a result is for one kind.
  filterOf(ids) {
    const steps = this.chosen(ids), { namespace, task_name: name, task_version: version, name: step } = steps[0];
    const kinds = new Set(steps.map((s) => [s.namespace, s.task_name, s.task_version, s.name].join("/")));
    if (kinds.size === 1) return { ...(ids ? { task_uuid: [...new Set(steps.map((s) => s.task_uuid))] }
      : { namespace, name, version }), step, step_status: ["enqueued"] };
    toast(`Choose steps of one kind: these are ${[...kinds].join(", ")}.`, "bad");
    return null;
  }
}

// WaitCard is one step: what it is about, and once it is opened, the form.
class WaitCard {
  step; list;
  constructor(step, list) {
    Object.assign(this, { step, list, sent: false });
    const about = pairs(step.about);
    this.body = h("div.form");
    this.details = h("details", { ontoggle: () => this.open() },
      h("summary", clip(step.name, "strong"), clip(`${step.namespace}/${step.task_name}`, "span.soft"),
      h("code.soft", shortId(step.task_uuid)),
      about.length > 0 && h("dl.about-pairs", about), h("span.spread"),
        h("span.soft", "waits ", ago(step.waiting_since, true),
          step.answer_due_at && ", until " + when(step.answer_due_at))), this.body);
    this.element = h("div.card.wait-card", { key: step.step_uuid, own: true },
      list.picked.box(step.step_uuid, `${step.name} ${shortId(step.task_uuid)}`), this.details);
  }

  // outlives reports whether the card stays without its step, because something was written in it.
  outlives() {
    if (this.sent || !this.typed || !this.details.open) return false;
    this.form.send.disabled = true;
    fill(this.form.place, h("p.bad-text", "This step no longer waits: somebody else has acted. ",
      link("/tasks/" + this.step.task_uuid, "See the task")));
    return true;
  }

  open() {
    if (this.form) return;
    const { step } = this;
    const t = { task_uuid: step.task_uuid }, s = { id: step.step_uuid, name: step.name, attempts: step.attempts,
      max: step.max_attempts };
    this.form = actForm({ ...stepForm("complete_manually", t, s, { schema: step.result_schema,
      reason: "Decided in the console" }), needs: "steps:resolve", done: () => {
      this.sent = true;
      this.list.changed();
    } });
    this.form.addEventListener("input", () => { this.typed = true; });
    fill(this.body, h("p.soft", link("/tasks/" + step.task_uuid, "Task " + shortId(step.task_uuid)),
      ` · ${step.callable} · ${step.attempts} of ${step.max_attempts} attempts used`), this.before(), this.form,
    h("div.row", stepButtons(["fail", "resolve_manually", "cancel"], t, s, undefined, "quiet")));
  }

  // before makes the fold with the results of the steps before.
  before() {
    const path = "/v1/tasks/" + this.step.task_uuid, list = h("div.form");
    const read = async () => {
      if (list.firstChild) return;
      try {
        const done = (await api.get(path + "/workflow_steps")).filter((s) => s.results?.success).slice(-20);
        fill(list, done.map((s) => h("div", { key: s.name }, h("strong", s.name),
          jsonTree(s.results.result, { label: s.name, key: s.name }))), !done.length
          && h("p.soft", "No step before has a result."));
      } catch (e) {
        fill(list, problem(e, read));
      }
    };
    return h("details", { ontoggle: read }, h("summary", "Results of the steps before"), list);
  }
}

const pairs = (values) => Object.entries(values ?? {}).map(([name, v]) =>
  [h("dt", name), clip(typeof v === "string" ? v : JSON.stringify(v), "dd")]);
