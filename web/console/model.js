// The steps of a task as its page shows them, kept up to date by events.
// Nothing here touches the page.

import * as api from "./api.js";
import { duration, look } from "./ui.js";

const over = new Set(["complete", "cancelled", "resolved_manually"]);

// finished reports whether a step in this state is over, however it ended.
export const finished = (state) => over.has(state);

// exact returns the milliseconds of a time, with its microseconds as a fraction.
export function exact(text) {
  const fraction = /\.(\d+)/.exec(text)?.[1] ?? "";
  return Date.parse(text.slice(0, 19) + "Z") + Number("0." + (fraction || "0")) * 1000;
}

// span returns a length of time, exact below 10 ms.
export function span(ms) {
  if (ms < 0.9995) return Math.round(Math.max(ms, 0) * 1000) + " µs";
  return ms < 10 ? `${Number(ms.toFixed(1))} ms` : duration(ms);
}

// TaskModel has the task, its steps by id, and what they are made from.
//
// A step is {id, name, state, since, attempts, max, declared, spans, due, because}: declared is the step
// of the template, because its explanation, and spans are [{kind: "queue", "run", "retry" or "people", from, to,
// attempt, end}] in milliseconds. A span that continues has no to, and end is the state that ended it.
export class TaskModel {
  history;
  task;
  steps;
  constructor(task, template, transitions) {
    Object.assign(this, { task, template, steps: new Map(), history: [], seq: 0 });
    this.declared = new Map(template.map((d) => [d.name, { ...d, steps: [], children: [] }]));
    for (const d of this.declared.values()) for (const p of d.dependencies) this.declared.get(p)?.children.push(d.name);
    const limits = new Map(task.steps.map((s) => [s.workflow_step_uuid, s]));
    for (const t of transitions) this.take(t, limits.get(t.step_uuid));
    this.created = exact(task.created_at);
    this.n = Infinity; // all of the last record is known
  }

  // apply takes over an event. It returns what changed: {step, grown} or {task}, or null if it was known.
  apply(event) {
    if (event.seq < this.seq || (event.seq === this.seq && event.n <= this.n)) return null;
    this.n = event.n;
    return this.take({ ...event, sequence: event.seq, step_uuid: event.step_uuid ?? null });
  }

  take(t, limits) {
    this.history.push(t);
    this.seq = t.sequence;
    const at = exact(t.recorded_at);
    if (!t.step_uuid) {
      this.task.status = t.to_state;
      this.task.updated_at = t.recorded_at;
      this.task.completed_at = ["complete", "error", "cancelled", "resolved_manually"].includes(t.to_state)
        ? t.recorded_at
        : null;
      return { task: true };
    }
    const grown = !this.steps.has(t.step_uuid);
    const step = this.steps.get(t.step_uuid) ?? this.create(t, at, limits);
    this.move(step, t, at);
    return { step, grown };
  }

  create(t, at, limits) {
    const declared = this.declared.get(t.step_name) ?? this.declared.get(t.step_name.replace(/_\d+$/, ""));
    const step = {
      id: t.step_uuid,
      name: t.step_name,
      created: at,
      spans: [],
      attempts: 0,
      declared,
      max: limits?.max_attempts ?? declared?.max_attempts ?? 1,
    };
    this.steps.set(step.id, step);
    declared?.steps.push(step);
    return step;
  }

  // move takes a step to another state and notes the time in the one before.
  move(step, t, at) {
    const was = step.spans.at(-1),
      open = was?.to === undefined ? was : undefined;
    if (open) Object.assign(open, { to: at, end: t.to_state });
    if (open?.kind === "run" && open.from === at && !t.to_state.startsWith("enqueued")) {
      step.spans.pop(); // nothing ran: a person ended the step, which had waited for that
      if (step.spans.at(-1)?.kind === "queue") step.spans.at(-1).kind = "people";
    }
    const kind = { enqueued: "queue", in_progress: "run", waiting_for_retry: "retry", error: "people" }[t.to_state];
    if (kind) step.spans.push({ kind, from: at, attempt: t.attempt || step.attempts + 1 });
    if (t.to_state === "in_progress") step.attempts = t.attempt ?? step.attempts + 1;
    if (t.from_state === "error" && t.to_state === "pending") step.attempts = 0;
    step.state = t.to_state;
    step.since = at;
    step.due = undefined;
  }

  explain(answer) {
    for (const step of this.steps.values()) step.because = undefined;
    for (const e of answer.steps) {
      const step = this.steps.get(e.step_uuid);
      if (!step) continue;
      step.because = e;
      if (step.state === "waiting_for_retry" && e.due_at) step.due = exact(e.due_at);
    }
  }

  // byName returns the step with a name.
  byName(name) {
    for (const step of this.steps.values()) if (step.name === name) return step;
    return undefined;
  }

  // ghosts returns the declared steps that do not exist; skipped ones never will.
  ghosts() {
    const skipped = new Map(),
      ended = over.has(this.task.status) || this.task.status === "error";
    const gone = (name) => {
      const d = this.declared.get(name);
      if (!d || d.steps.length) return false;
      if (!skipped.has(name)) skipped.set(name, false).set(name, ended || this.hopeless(d, gone));
      return skipped.get(name);
    };
    return [...this.declared.values()].filter((d) => !d.steps.length).map((d) => ({ ...d, skipped: gone(d.name) }));
  }

  hopeless(d, gone) {
    const makers = d.dependencies.filter((p) => this.makes(this.declared.get(p), d));
    const closed = (p) =>
      gone(p) || (this.declared.get(p).steps.length > 0 && this.declared.get(p).steps.every((s) => over.has(s.state)));
    if (d.step_type === "deferred_convergence") return d.dependencies.length > 0 && d.dependencies.every(gone);
    return makers.length ? makers.every(closed) : d.dependencies.some(gone);
  }

  makes(parent, d) {
    return parent?.step_type === "decision" || (parent?.step_type === "batchable" && d.step_type === "batch_worker");
  }

  // graph returns the nodes and edges to draw.
  graph() {
    const ghosts = this.ghosts(),
      names = new Map(ghosts.map((g) => [g.name, [ghostNode(g)]]));
    for (const d of this.declared.values()) if (d.steps.length) names.set(d.name, d.steps);
    const nodes = [
      ...[...this.steps.values()].map((s) => this.node(s)),
      ...[...names.values()].flat().filter((n) => n.ghost),
    ];
    const edges = [];
    for (const [name, children] of names) {
      for (const p of this.declared.get(name).dependencies) edges.push(...between(names.get(p) ?? [], children));
    }
    return { nodes, edges };
  }

  // node describes a step for the graph.
  node(step) {
    const d = step.declared,
      kind = KINDS[d?.step_type],
      tries = step.attempts > 1 || step.state === "error" ? `${step.attempts}/${step.max}` : "";
    return {
      id: step.id,
      name: step.name,
      ...look(step.state),
      ...(step.state === "waiting_for_retry" && { word: "Retry" }),
      detail: this.detail(step),
      note: [kind, tries].filter(Boolean).join(" "),
      group: kind === "batch" ? "batch " + d.name : undefined,
      groupName: d?.name,
    };
  }

  // detail says in a few words how far a step is.
  detail(step) {
    switch (step.state) {
      case "in_progress":
        return span(Math.max(0, api.now() - step.since));
      case "waiting_for_retry":
        return this.countdown(step);
      case "enqueued":
        return (
          { outside_actor: "outside actor", not_listening: "no handler listens", slot: "needs a slot" }[
            step.because?.cause
          ] ?? ""
        );
      case "error":
      case "complete":
        return step.spans.some((s) => s.kind === "run") ? span(this.took(step)) : "";
    }
    return "";
  }

  countdown({ due }) {
    const left = due - api.now();
    return left > 0 ? "in " + duration(Math.ceil(left / 1000 - 0.05) * 1000) : due ? "due" : "";
  }

  // end returns when the task ended, or now.
  end() {
    return this.task.completed_at ? exact(this.task.completed_at) : api.now();
  }

  // kindOf returns the kind of a span of a step; a step that no handler here takes waits for people.
  kindOf(s, step) {
    return s.kind === "queue" && s.to === undefined && step.because?.cause === "outside_actor" ? "people" : s.kind;
  }

  // took returns how long the attempts of a step have run, in milliseconds.
  took(step, now = this.end()) {
    return step.spans.filter((s) => s.kind === "run").reduce((sum, s) => sum + (s.to ?? now) - s.from, 0);
  }

  // parents returns the steps that a step depends on and that exist.
  parents(step) {
    return (step.declared?.dependencies ?? []).flatMap((p) => this.declared.get(p)?.steps ?? []);
  }

  // children returns the steps that depend on a step and exist.
  children(step) {
    return (step.declared?.children ?? []).flatMap((c) => this.declared.get(c)?.steps ?? []);
  }
}

// KINDS holds the short names of the kinds of steps that are not plain.
export const KINDS = {
  decision: "decision",
  batchable: "splits",
  batch_worker: "batch",
  deferred_convergence: "joins",
};

function ghostNode(d) {
  return {
    id: "ghost " + d.name,
    name: d.name,
    ...look(d.skipped ? "cancelled" : "pending"),
    tone: "off",
    ghost: true,
    word: d.skipped ? "Not taken" : "Not decided yet",
    detail: "",
    note: KINDS[d.step_type],
  };
}

// between returns the edges from each parent to each child. Of two large sets, it returns as many as
// keep their order.
function between(parents, children) {
  const pairs = [];
  if (parents.length * children.length <= 64 || parents.length === 1 || children.length === 1) {
    for (const p of parents) for (const c of children) pairs.push([p.id, c.id]);
    return pairs;
  }
  for (const p of parents) pairs.push([p.id, children[0].id]);
  for (const c of children.slice(1)) pairs.push([parents[0].id, c.id]);
  return pairs;
}
