// The steps that wait for people, each with a form for its result.

import { actAs, actor, stepButtons } from "./actions.js";
import * as api from "./api.js";
import { Selection } from "./bulk.js";
import { live } from "./live.js";
import { fill } from "./patch.js";
import { SchemaForm, formable, pathOf } from "./schema.js";
import { ago, allowed, button, clip, empty, field, h, link, plural, problem, readJSON, shortId, toast,
  when, wrong } from "./ui.js";

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
    const about = Object.entries(step.about ?? {}).map(([name, v]) =>
      [h("dt", name), clip(typeof v === "string" ? v : JSON.stringify(v), "dd")]);
    this.body = h("div.form");
    this.details = h("details", { ontoggle: () => this.open() },
      h("summary", clip(step.name, "strong"), clip(`${step.namespace}/${step.task_name}`, "span.soft"),
      about.length > 0 && h("dl.about-pairs", about), h("span.spread"),
        h("span.soft", "waits ", ago(step.waiting_since, true),
          step.answer_due_at && ", until " + when(step.answer_due_at))), this.body);
    this.element = h("div.card.wait-card", { key: step.step_uuid, own: true },
      list.picked.box(step.step_uuid, `${step.name} ${shortId(step.task_uuid)}`), this.details);
  }

  // outlives reports whether the card stays without its step, because something was written in it.
  outlives() {
    if (this.sent || !this.typed || !this.details.open) return false;
    this.send.disabled = true;
    fill(this.place, h("p.bad-text", "This step no longer waits: somebody else has acted. ",
      link("/tasks/" + this.step.task_uuid, "See the task")));
    return true;
  }

  open() {
    if (this.place) return;
    const { step } = this, schema = step.result_schema;
    this.form = formable(schema) && new SchemaForm(schema);
    this.text = h("textarea", { spellcheck: "false", value: "{}" });
    this.reason = h("input", { value: "Decided in the console" });
    this.by = h("input", { required: true, value: actor });
    this.place = h("div", { role: "alert" });
    this.send = allowed("steps:resolve", "Complete the step", null, "primary", { type: "submit" });
    this.send = [this.send].flat()[0];
    const write = h("form.form", { novalidate: true, oninput: () => { this.typed = true; },
      onsubmit: (e) => { e.preventDefault(); this.complete(); } },
      this.form ? this.form.element : field("Result", this.text, "Any JSON: the template has no schema for it."),
      h("div.form.grid", field("Reason", this.reason), field("Your name", this.by)), this.place,
        h("div.row", this.send));
    fill(this.body, h("p.soft", link("/tasks/" + step.task_uuid, "Task " + shortId(step.task_uuid)),
      ` · ${step.callable} · ${step.attempts} of ${step.max_attempts} attempts used`),
      write, h("div.row", stepButtons(["fail", "resolve_manually", "cancel"], { task_uuid: step.task_uuid },
        { id: step.step_uuid, name: step.name, attempts: step.attempts, max: step.max_attempts }, [], "quiet")));
  }

  async complete() {
    const result = this.form ? this.form.value() : readJSON(this.text);
    if (this.form ? !this.form.check() : result === undefined) return;
    if (!this.by.value.trim()) return wrong(this.by, "This is required.");
    actAs(this.by.value);
    this.send.disabled = true;
    try {
      await api.patch(`/v1/tasks/${this.step.task_uuid}/workflow_steps/${this.step.step_uuid}`,
        { action_type: "complete_manually",
        completion_data: { result: result ?? null }, reason: this.reason.value, completed_by: this.by.value });
      this.sent = true;
      toast(`Done: complete ${this.step.name}`);
      this.list.changed();
    } catch (e) {
      this.send.disabled = false;
      this.refused(e);
    }
  }

  // refused shows an error at the fields that it names, and the rest below the form.
  refused(error) {
    const other = error.details?.filter(({ field: name, message }) => {
      const path = pathOf(name ?? ""), at = path.indexOf("result");
      return !(this.form && at >= 0 && this.form.wrong(path.slice(at + 1), message));
    });
    fill(this.place, (!error.details?.length || other.length > 0) && problem(error));
    this.element.querySelector("[aria-invalid]")?.focus();
  }
}
