// The steps that wait for people, each with a form for its result.

import { stepButtons, stepForm } from "./actions.js";
import * as api from "./api.js";
import { Selection } from "./bulk.js";
import { List, rowsOf } from "./list.js";
import { actForm, ago, clip, empty, fill, h, link, pairs, problem, shortId, toast, when } from "./ui.js";
import { jsonTree } from "./values.js";

export async function show(root, context) {
  const cards = new Map(),
    read = rowsOf("/v1/steps", () => ({ for_person: true, sort: "answer_due_at" }), context.signal, 500),
    list = new List(context, {
      noun: ["step"],
      key: (s) => s.step_uuid,
      read,
      concerns: (e) => e.type === "step" && [e.from_state, e.to_state].includes("enqueued"),
      // A card that was written in stays when its step does not wait any more.
      keeps: (s) => cards.get(s.step_uuid)?.isWritten(),
      shown: ({ items }) => {
        const waiting = new Set(items.map((s) => s.step_uuid));
        for (const id of picked.ids) if (!waiting.has(id)) picked.ids.delete(id);
        for (const id of cards.keys()) if (!list.items.some((s) => s.step_uuid === id)) cards.delete(id);
        picked.draw();
      },
      // The cards stay in their place, with the focus and what is typed, as long as they are put nowhere else.
      draw: (steps) =>
        steps.map((s) => {
          if (!cards.has(s.step_uuid)) cards.set(s.step_uuid, new WaitCard(s, picked, () => list.load()));
          return cards.get(s.step_uuid).show(s.gone);
        }),
      none: () =>
        empty(
          "Nothing waits for you",
          "A step appears here when a person must complete it: its callable has " +
            "no handler, or is one of console.people.",
        ),
    });
  const chosen = (ids) =>
    list.items.filter((s) => !s.gone && (ids ? ids.includes(s.step_uuid) : picked.has(s.step_uuid)));
  const picked = new Selection({
    noun: ["step"],
    offers: ["complete", "resolve"],
    total: () => list.known,
    filter: async (name, ids) => filterOf(ids, ids ? chosen(ids) : (await read(Infinity)).items),
    changed: () => list.load(),
    schema: () => chosen(null)[0].result_schema,
  });
  list.place.className = "waits";
  await list.begin();
  fill(root, h("div.row", h("h1", "Waits for me"), list.total), list.element, picked.bar);
}

// filterOf selects steps of one template step, since a result is for one kind.
function filterOf(ids, steps) {
  const { namespace, task_name: name, task_version: version, name: step } = steps[0];
  const kinds = new Set(steps.map((s) => [s.namespace, s.task_name, s.task_version, s.name].join("/")));
  if (kinds.size === 1)
    return {
      ...(ids ? { task_uuid: [...new Set(steps.map((s) => s.task_uuid))] } : { namespace, name, version }),
      step,
      step_status: ["enqueued"],
    };
  toast(`Choose steps of one kind: these are ${[...kinds].join(", ")}.`, "bad");
  return null;
}

// WaitCard is one step: what it is about, and once it is opened, the form.
class WaitCard {
  step;
  changed;
  sent;
  constructor(step, picked, changed) {
    Object.assign(this, { step, changed, sent: false });
    this.body = h("div.form");
    this.details = h(
      "details",
      { ontoggle: () => this.open() },
      h(
        "summary",
        clip(step.name, "strong"),
        clip(`${step.namespace}/${step.task_name}`, "span.soft"),
        h("code.soft", shortId(step.task_uuid)),
        pairs(step.about),
        h("span.spread"),
        h(
          "span.soft",
          "waits ",
          ago(step.waiting_since, true),
          step.answer_due_at && ", until " + when(step.answer_due_at),
        ),
      ),
      this.body,
    );
    this.element = h(
      "div.card.wait-card",
      { key: step.step_uuid, own: true },
      picked.box(step.step_uuid, `${step.name} ${shortId(step.task_uuid)}`),
      this.details,
    );
  }

  // isWritten reports whether something was written that was not sent.
  isWritten() {
    return !this.sent && this.typed && this.details.open;
  }

  // show returns the card. That of a step which is gone says so.
  show(gone) {
    if (gone && this.form && !this.sent) {
      this.form.send.disabled = true;
      fill(
        this.form.place,
        h(
          "p.bad-text",
          "This step no longer waits: somebody else has acted. ",
          link("/tasks/" + this.step.task_uuid, "See the task"),
        ),
      );
    }
    return this.element;
  }

  open() {
    if (this.form) return;
    const { step } = this;
    const t = { task_uuid: step.task_uuid },
      s = { id: step.step_uuid, name: step.name, attempts: step.attempts, max: step.max_attempts };
    this.form = actForm({
      ...stepForm("complete_manually", t, s, { schema: step.result_schema, reason: "Decided in the console" }),
      needs: "steps:resolve",
      done: () => {
        this.sent = true;
        this.changed();
      },
    });
    this.form.addEventListener("input", () => {
      this.typed = true;
    });
    fill(
      this.body,
      h(
        "p.soft",
        link("/tasks/" + step.task_uuid, "Task " + shortId(step.task_uuid)),
        ` · ${step.callable} · ${step.attempts} of ${step.max_attempts} attempts used`,
      ),
      this.before(),
      this.form,
      h("div.row", stepButtons(["fail", "resolve_manually", "cancel"], t, s, undefined, "quiet")),
    );
  }

  // before makes the fold with the results of the steps before.
  before() {
    const path = "/v1/tasks/" + this.step.task_uuid,
      list = h("div.form");
    const read = async () => {
      if (list.firstChild) return;
      try {
        const done = (await api.get(path + "/workflow_steps")).filter((s) => s.results?.success).slice(-20);
        fill(
          list,
          done.map((s) =>
            h("div", { key: s.name }, h("strong", s.name), jsonTree(s.results.result, { label: s.name, key: s.name })),
          ),
          !done.length && h("p.soft", "No step before has a result."),
        );
      } catch (e) {
        fill(list, problem(e, read));
      }
    };
    return h("details", { ontoggle: read }, h("summary", "Results of the steps before"), list);
  }
}
