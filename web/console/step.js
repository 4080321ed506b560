// The card of a step: what it is, why it waits and what helps, each of its attempts, and what people did.

import * as api from "./api.js";
import { againFrom, stepButtons } from "./actions.js";
import { exact, finished, span } from "./model.js";
import { ago, allowed, button, chips, clip, fill, h, look, pair, plural, problem, state } from "./ui.js";
import { headline } from "./trace.js";
import { errorView, jsonTree } from "./values.js";

const KINDS = {
  decision: "Decides which steps are created",
  batchable: "Splits the work into batches",
  batch_worker: "One batch of the work",
  deferred_convergence: "Joins the branches that exist",
};

export const redacted = (text, permission) =>
  h("p.soft.redacted", text + " Showing it needs ", h("code", permission), ".");

export const sentence = (text, capital = true) => (capital ? text.charAt(0).toUpperCase() + text.slice(1) : text) + ".";

// signOf draws the sign of a state.
export const signOf = (name, size = 12) =>
  h(
    "svg",
    { viewBox: "0 0 16 16", width: size, height: size, class: "sign", "aria-hidden": "true" },
    h("path", { d: look(name).sign }),
  );

// StepCard fills a place with the card of a step of a page, and reads what only the card needs.
export class StepCard {
  page;
  place;
  details;
  constructor(page, place) {
    Object.assign(this, { page, place });
  }

  // show shows the chosen step as it is now.
  show(step) {
    const { page } = this,
      { model } = page,
      e = step.because;
    const list = (label, steps) =>
      steps.length > 0 && [
        h("dt", label),
        h(
          "dd",
          steps.slice(0, 8).map((s, i) => [i > 0 && ", ", button(s.name, () => page.choose(s.id), "as-link")]),
          steps.length > 8 && ` and ${steps.length - 8} more`,
        ),
      ];
    if (this.step?.id !== step.id) this.read = this.chosen = undefined;
    this.step = step;
    fill(
      this.place,
      h(
        "section.card.step-card",
        { "aria-label": `Step ${step.name}` },
        h(
          "div.row.title",
          clip(step.name, "h2"),
          button("×", () => page.choose(), "quiet small", { "aria-label": "Close the step" }),
        ),
        h("div", state(step.state)),
        e && h("p", sentence(step.state === "error" ? e.remedy : e.message)),
        e?.actions.length > 0 && h("div.row", stepButtons(e.actions, model.task, step, model.children(step))),
        h(
          "dl.pairs",
          pair("Attempts", `${step.attempts} of ${step.max}`),
          pair("Ran", span(model.took(step))),
          pair("Handler", h("code", step.declared?.handler ?? "")),
          pair("Kind", KINDS[step.declared?.step_type]),
          list("After", model.parents(step)),
          list("Before", model.children(step)),
        ),
        h(
          "div",
          allowed("tasks:create", "Again from here …", () => this.repeat(), "quiet small"),
        ),
        h("div.result", { key: step.id, own: true }),
      ),
    );
    this.details = this.place.querySelector(".result");
    this.showDetails();
    this.load();
  }

  async repeat() {
    const made = await againFrom(this.page.model.task, this.step);
    if (made) this.page.go("/tasks/" + made.task_uuid);
  }

  // load reads the audit, which has the results of all attempts, if something has happened to the step since.
  async load() {
    const { step, page } = this,
      at = `${step.id} ${step.state} ${step.since}`,
      path = `${page.path}/workflow_steps/${step.id}`;
    if (at === this.at || (step.attempts === 0 && !finished(step.state) && step.state !== "error")) return;
    this.at = at;
    try {
      const audit = await page.read(path + "/audit");
      if (this.step.id === step.id) this.read = { audit };
    } catch (error) {
      if (page.signal.aborted) return;
      this.at = undefined;
      if (this.step.id === step.id) this.read = { error };
    }
    if (this.step.id === step.id) this.showDetails();
  }

  showDetails() {
    const { audit = [], error } = this.read ?? {},
      tries = attemptsOf(this.step, audit),
      ended = new Set(tries.map((t) => t.entry));
    const acts = audit.filter((a) => !ended.has(a)),
      given = finished(this.step.state) && acts.find((a) => a.result?.success);
    fill(
      this.details,
      error &&
        (error.status === 403
          ? redacted("The result and the audit are hidden from you.", "steps:read")
          : problem(error, () => this.load())),
      tries.length > 0 && this.attempts(tries),
      given && outcome(given.result, given.audit_uuid),
      acts.length > 0 &&
        h(
          "details.audit",
          { open: true },
          h("summary", `Audit: ${plural(acts.length, "entry", "entries")}`),
          h("ol", acts.slice(0, 50).map(auditLine)),
        ),
    );
  }

  // attempts shows one of the attempts, at first the last one.
  attempts(tries) {
    if (this.details.querySelector(".trace[open]")) this.chosen ??= this.shown; // what is being read stays
    const chosen = tries[this.chosen] ?? tries.at(-1),
      { created } = this.page.model;
    this.shown = tries.indexOf(chosen);
    const shown = tries.map((t) => [
      t.key,
      [signOf(t.state), t.resets ? t.name : t.attempt],
      look(t.state).tone,
      { "aria-label": `${t.name}: ${t.word}`, title: `${t.name} ${t.word}` },
    ]);
    return h(
      "section.attempts",
      h("h3", "Attempts"),
      chips(
        "Attempts",
        shown,
        (key) => key === chosen.key,
        (key) => {
          this.chosen = tries.findIndex((t) => t.key === key);
          this.showDetails();
        },
      ),
      h(
        "div.attempt-card",
        { key: chosen.key },
        h(
          "dl.pairs",
          facts(chosen, created).map(([label, value]) => pair(label, value)),
        ),
        chosen.entry && outcome(chosen.entry.result, chosen.key),
      ),
    );
  }
}

// attemptsOf returns the attempts at a step, the first one first, each with its entry in the audit, if that is known.
export function attemptsOf(step, audit) {
  const ends = new Map(audit.filter((a) => a.result && !a.action).map((a) => [exact(a.recorded_at), a])),
    { spans } = step;
  let inputs,
    before = 0,
    resets = 0;
  return spans.flatMap((s, i) => {
    if (s.kind !== "run") return [];
    if (s.attempt <= before) resets++; // attempts are counted from zero again
    before = s.attempt;
    for (const a of [...audit].reverse()) if (a.inputs && exact(a.recorded_at) <= s.from) ({ inputs } = a);
    const entry = ends.get(s.to),
      final = s.to === undefined ? "in_progress" : entry?.success === false ? "error" : entry ? "complete" : s.end;
    const around = (kind, n) => (spans[n]?.kind === kind ? spans[n] : undefined);
    return [
      {
        ...s,
        resets,
        name: `${resets ? `reset ${resets} · ` : ""}attempt ${s.attempt}`,
        key: `${step.id} ${i} ${s.to ?? ""}`,
        entry,
        inputs,
        state: final,
        word: WORDS[final] ?? look(final).word,
        ready: around("queue", i - 1),
        pause: around("retry", i + 1),
      },
    ];
  });
}

const WORDS = {
  error: "failed",
  enqueued_as_error_for_orchestration: "failed",
  complete: "succeeded",
  enqueued_for_orchestration: "succeeded",
  in_progress: "runs",
};

const length = (s) => s && span((s.to ?? api.now()) - s.from);

// facts returns what is known of an attempt, as pairs of a label and a text.
const facts = (t, created) => [
  ["Started", "+" + span(t.from - created)],
  ["Ready for", length(t.ready)],
  ["Ran", length(t)],
  ["Back-off after", length(t.pause)],
  ["Ended", t.to !== undefined && t.word],
  ["Worker", t.entry?.result?.metadata?.worker_id],
  ["Inputs", t.inputs ? JSON.stringify(t.inputs) : "the context of the task"],
];

// ghostCard is the card of a step that does not exist.
export const ghostCard = (ghost) =>
  h(
    "section.card.step-card",
    h("h2", ghost.name),
    h(
      "p",
      ghost.skipped
        ? "This step was not created: the decisions before it did not choose it."
        : "This step does not exist yet: a decision before it is open.",
    ),
    h("dl.pairs", pair("Handler", h("code", ghost.handler)), pair("After", ghost.dependencies.join(", "))),
  );

// outcome shows the result or the error of an attempt; key tells that it is the same as before.
export const outcome = (r, key) =>
  r.error ? errorView(r.error, key) : r.success && [h("h3", "Result"), jsonTree(r.result, { label: "Result", key })];

const AUDITED = {
  enqueued_for_orchestration: "Attempt succeeded",
  enqueued_as_error_for_orchestration: "Attempt failed",
};
export const DONE = {
  reset_for_retry: "Reset",
  retry_now: "Retried",
  complete_manually: "Completed",
  resolve_manually: "Resolved",
  fail: "Failed",
  cancel: "Cancelled",
  copied: "Copied",
  unanswered: "Not answered in time",
  adjusted: "Adjusted",
  hold: "Held",
  release: "Released",
  run_again: "Run again",
  update_dead_letter: "Noted on a dead letter",
};

// auditLine describes what a person did, or of a result that came too late.
function auditLine(a) {
  const about = [
    a.copied_from && "from task " + a.copied_from.task_uuid,
    a.acted_by && `by ${a.acted_by}: ${a.action_reason}`,
    a.subject && "as " + a.subject,
    a.result?.error && `${a.result.error.error_type}: ${headline(a.result.error.message)}`,
    !a.action && a.result?.metadata.worker_id,
  ].filter(Boolean);
  return h(
    "li",
    { key: a.audit_uuid },
    h(
      "b",
      { class: a.success || a.action ? "good" : "bad" },
      DONE[a.action] ?? AUDITED[a.to_state] ?? look(a.to_state).word,
    ),
    " ",
    ago(a.recorded_at),
    h(
      "span.soft",
      about.map((t) => " · " + t),
    ),
  );
}
