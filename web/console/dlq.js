// Dead letters, and what helps.

import { actor, cancelTask, causes, stepButtons } from "./actions.js";
import * as api from "./api.js";
import { Selection, bulkForm } from "./bulk.js";
import { top } from "./failures.js";
import { live } from "./live.js";
import { actForm, ago, allowed, button, clip, dialog, empty, field, fill, h, link, loading, number, plural, problem,
  select, shortId, state, table, toast } from "./ui.js";
import { headline } from "./trace.js";
import { errorText, jsonTree } from "./values.js";

const statuses = { Pending: "To investigate", ManuallyResolved: "Resolved", PermanentlyFailed: "Failed for good",
  Cancelled: "Cancelled" };

// words writes a name such as MaxRetriesExceeded or max_retries as words.
const words = (name) => {
  const text = String(name).replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();
  return text.charAt(0).toUpperCase() + text.slice(1);
};

export async function show(root, context) {
  await new Letters(root, context).open();
}

const perPage = 100;

class Letters {
  root; signal; renew; remember;
  constructor(root, { query, remember, signal, renew }) {
    Object.assign(this, { root, remember, signal, renew, status: statuses[query.get("status")] ? query.get("status")
      : "Pending" });
    this.queue = h("div.view");
    this.over = h("span");
    this.limit = perPage;
    this.entries = [];
    this.picked = new Selection({ noun: ["dead letter"], offers: ["reset", "resolve", "cancel", "close"],
      total: () => this.pending,
      filter: (name, ids) => this.filterOf(name, ids), changed: () => this.reload() });
    this.chips = h("div.chips", { role: "group", "aria-label": "Investigation" });
  }

  async open() {
    await this.load();
    fill(this.root, h("div.row", h("h1", "Dead letters"), this.chips, this.over),
      h("p.soft.lead", "Tasks that are stuck until a person acts. Find the cause, act on the task, and record " +
        "the outcome."), top(this.signal), this.queue, this.picked.bar);
    this.follow();
  }

  // follow reads again when a task was blocked or is no longer, or events were missed.
  follow() {
    this.renew(live(this.signal, (e) => e.type === "task" && (this.tasks.has(e.task_uuid)
      || ["blocked_by_failures", "error"].some((s) => s === e.from_state || s === e.to_state)), () => this.load()));
  }

  async reload() {
    try {
      await this.load();
    } catch (e) {
      if (!this.signal.aborted) fill(this.queue, problem(e));
    }
  }

  async load() {
    const { status } = this;
    const list = status === "Pending" ? ["/investigation-queue", { over: false }] : ["", { resolution_status: status }];
    const [entries, stats] = await Promise.all([
      api.several("/v1/dlq" + list[0], list[1], this.limit + 1, 1000, this.signal),
      api.getOptional("/v1/dlq/stats", { signal: this.signal })]);
    if (this.signal.aborted || status !== this.status) return;
    this.more = entries.length > this.limit;
    this.entries = entries.slice(0, this.limit);
    this.showChips(stats);
    this.tasks = new Set(entries.map((t) => t.task_uuid));
    this.showQueue(this.entries);
    this.picked.draw();
  }

  // filterOf returns what selects these entries or all, or their tasks.
  filterOf(name, ids) {
    if (!ids) return name === "close" ? { over: false } : { dead_letter: true };
    const chosen = this.entries.filter((e) => ids.includes(e.dlq_entry_uuid));
    return { task_uuid: [...new Set(chosen.map((e) => e.task_uuid))] };
  }

  showChips(stats) {
    const members = { Pending: "pending", ManuallyResolved: "manually_resolved",
      PermanentlyFailed: "permanent_failures", Cancelled: "cancelled" };
    fill(this.chips, Object.entries(statuses).map(([status, label]) => button([label, stats &&
      h("b", number(stats.reduce((n, s) => n + s[members[status]] - (status === "Pending" && (s.pending_over ?? 0)),
        0)))], () => this.choose(status), "chip", { key: status, "aria-pressed": String(status === this.status) })));
    const over = stats?.reduce((n, s) => n + s.pending_over, 0);
    this.pending = stats?.reduce((n, s) => n + s.pending - s.pending_over, 0) ?? 0;
    fill(this.over, over > 0 && allowed("dlq:update", `Close ${number(over)} that are over …`,
      () => bulkForm("close", { over: true },
      { about: "Of these, the tasks have completed or were cancelled since.", changed: () => this.reload() }),
        "quiet small", { key: "close" }));
  }

  async choose(status) {
    this.status = status;
    this.limit = perPage;
    this.picked.clear();
    this.remember(status === "Pending" ? "" : "status=" + status);
    await this.reload();
  }

  showQueue(entries) {
    const pending = this.status === "Pending";
    if (!entries.length) {
      return fill(this.queue, pending ? empty("Nothing needs you",
        "A task appears here when a step has failed for good, or when it is stale and its template sends it here.")
        : empty("No such entry", `No investigation ended as “${statuses[this.status].toLowerCase()}”.`));
    }
    const columns = pending ? [[this.picked.head(), "pick"], "Task", ["Why", "wide-cell"], "Now", "Since",
       ["", "num"]] : ["Task", "Why", ["Notes", "wide-cell"], "By", "Ended", ["", "num"]];
    const cells = (e) => (pending ? this.pendingRow(e) : this.endedRow(e));
    fill(this.queue, table("Dead letters", columns, entries.map((e) => ({ key: e.dlq_entry_uuid, cells: cells(e) })),
      { key: this.status }),
      this.more && h("div.row.center", button("Show more", () => { this.limit += perPage; this.reload(); })));
  }

  opener(e) {
    return button("Investigate", () => investigate(e.task_uuid, e.dlq_entry_uuid, () => this.reload()), "quiet small",
      { "aria-label": "Investigate " + shortId(e.task_uuid) });
  }

  pendingRow(e) {
    return [this.picked.box(e.dlq_entry_uuid, shortId(e.task_uuid)), task(e, e.namespace_name), reason(e),
      state(e.current_state), ago(e.dlq_timestamp), this.opener(e)];
  }

  endedRow(e) {
    return [task({ ...e, task_name: e.task_snapshot.task_name }, e.task_snapshot.namespace), reason(e),
      e.resolution_notes || "–", e.resolved_by || "–", ago(e.resolution_timestamp), this.opener(e)];
  }

}

const task = (e, namespace) => h("div", link("/tasks/" + e.task_uuid, clip(`${namespace}/${e.task_name}`)), " ",
  h("span.soft.mono", shortId(e.task_uuid)));

const reason = ({ error: e, dlq_reason }) => (e
  ? clip(`${e.step_name}: ${headline(e.message || e.error_type)}`) : words(dlq_reason));

// investigate opens a dialog about an entry: what failed and what helps. What is typed into the form stays.
async function investigate(id, entryId, changed) {
  const body = h("div.view", loading()), box = dialog("Investigate", body);
  let rest;
  box.classList.add("wide");
  const again = async () => { changed(); if (box.open) await show(); };
  const show = async () => {
    try {
      const [found, why, summary] = await Promise.all([api.get("/v1/dlq/task/" + id),
        api.getOptional(`/v1/tasks/${id}/explain`), api.getOptional(`/v1/tasks/${id}/summary`)]);
      const entry = found.entries?.find((e) => e.dlq_entry_uuid === entryId) || found;
      rest ||= [h("details", h("summary", "The task as it was then"),
        jsonTree(entry.task_snapshot, { label: "Snapshot" })), note(entry, again)];
      fill(body, sections(entry, why, summary, again), rest);
    } catch (e) {
      fill(body, problem(e));
    }
  };
  await show();
}

function sections(entry, why, summary, again) {
  const snapshot = entry.task_snapshot;
  const acts = why && help(why, summary, again);
  return [h("div.row", task({ ...entry, task_name: snapshot.task_name }, snapshot.namespace), why && state(why.status),
    h("span.soft", words(entry.dlq_reason), ", ", ago(entry.dlq_timestamp))),
    failures(snapshot, acts?.querySelector(".help-row")), acts];
}

// failures shows the errors of the steps, unless what helps says the same: of a stack trace, that has the first line.
function failures(snapshot, told) {
  const failed = (snapshot.steps ?? []).filter((s) => s.error && !(told && !s.error.message?.includes("\n")));
  return failed.length > 0 && h("div.problem",
    failed.map((s) => [h("p", h("strong", s.name), ` failed after ${plural(s.attempts, "attempt")} `,
    s.error.error_type && h("span.soft", s.error.error_type)), s.error.message ? errorText(s.error.message, s.name)
      : h("i", "the message is hidden from you")]));
}

const mostSteps = 5; // that are offered at once

// help offers what can be done about the task now.
function help(why, summary, changed) {
  const t = { task_uuid: why.task_uuid }, declared = summary?.template.steps || [];
  const steps = causes(why.steps), more = steps.length - mostSteps;
  const acts = steps.slice(0, mostSteps).map((s) => h("div.help-row", { key: s.step_uuid },
    h("p", h("strong", s.name), ": ", s.message, "."),
    h("div.row", stepButtons(s.actions, t, { id: s.step_uuid, name: s.name, attempts: s.attempt, max: s.max_attempts },
      declared.filter((d) => d.dependencies.includes(s.name))))));
  if (more > 0) acts.push(h("p.soft", `${plural(more, "more step")} can be acted on in the page of the task.`));
  if (why.steps.length) acts.push(h("div",
    allowed("tasks:cancel", "Cancel the task …", () => cancelTask(t, why.steps.length), "quiet small")));
  const after = () => document.querySelector("dialog.dialog:last-of-type")?.addEventListener("close", changed,
    { once: true });
  return h("section.view", { "aria-label": "What helps", onclick: after },
    h("h3", acts.length ? "What helps" : "The task is over"), acts);
}

// note is the form about the investigation.
function note(entry, changed) {
  const status = select(Object.entries(statuses), entry.resolution_status),
    by = h("input", { value: entry.resolved_by || actor() });
  const notes = h("textarea", { rows: 4, class: "prose", value: entry.resolution_notes || "",
    placeholder: "What was the cause, and what did you do?" });
  const path = "/v1/dlq/entry/" + entry.dlq_entry_uuid;
  const body = () => ({ resolution_status: status.value, ...(notes.value && { resolution_notes: notes.value }),
    ...(by.value && { resolved_by: by.value }) });
  return actForm({ action: "Save", needs: "dlq:update", done: changed,
    fields: [h("h3", "Investigation"), h("div.form.grid", field("State", status), field("Your name", by)),
      field("Notes", notes)],
    commands: () => [["curl", api.curl("PATCH", path, body())], ["Command line", api.cli("dlq", "update",
      entry.dlq_entry_uuid, "--status", status.value, ...(notes.value ? ["--notes", notes.value] : []),
      ...(by.value ? ["--by", by.value] : []))]],
    submit: async () => {
      await api.patch(path, body());
      toast("The investigation is recorded.");
    } });
}
