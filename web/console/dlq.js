// Dead letters: tasks that are stuck until a person acts, and what came of the investigations.

import { actAs, actor } from "./actions.js";
import * as api from "./api.js";
import { Selection, bulkForm } from "./bulk.js";
import { List, rowsOf } from "./list.js";
import {
  ago,
  allowed,
  chips,
  clip,
  confirmForm,
  empty,
  field,
  fill,
  h,
  link,
  number,
  plural,
  select,
  shortId,
  state,
  toast,
} from "./ui.js";
import { headline, withoutType } from "./trace.js";
import { errorText, jsonTree } from "./values.js";

// statuses are those of investigations: what they are called, and the member of the statistics.
/** @type {Record<string, [string, string]>} */
const statuses = {
  Pending: ["To investigate", "pending"],
  ManuallyResolved: ["Resolved", "manually_resolved"],
  PermanentlyFailed: ["Failed for good", "permanent_failures"],
  Cancelled: ["Cancelled", "cancelled"],
};

// words writes a name such as MaxRetriesExceeded or max_retries as words.
const words = (name) => {
  const text = String(name)
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .replaceAll("_", " ")
    .toLowerCase();
  return text.charAt(0).toUpperCase() + text.slice(1);
};

export async function show(root, context) {
  const { query, remember, signal } = context,
    head = h("span.row"),
    over = h("span");
  let status = statuses[query.get("status")] ? query.get("status") : "Pending";
  const pending = () => status === "Pending";
  const choose = (chosen) => {
    status = chosen;
    picked.clear();
    remember(pending() ? "" : "status=" + status);
    list.restart();
  };
  const list = new List(context, {
    label: "Dead letters",
    key: (e) => e.dlq_entry_uuid,
    read: async (count) => {
      const read = pending()
        ? rowsOf("/v1/dlq/investigation-queue", () => ({ over: false }), signal)
        : rowsOf("/v1/dlq", () => ({ resolution_status: status }), signal);
      const [found, stats] = await Promise.all([read(count), api.getOptional("/v1/dlq/stats", { signal })]);
      const counts = stats && ((name) => stats.reduce((n, s) => n + s[name], 0));
      return { ...found, counts, total: pending() && counts ? counts("pending") - counts("pending_over") : undefined };
    },
    concerns: (e) =>
      e.type === "task" &&
      (["blocked_by_failures", "error"].some((s) => s === e.from_state || s === e.to_state) ||
        list.items.some((l) => l.task_uuid === e.task_uuid)),
    shown: ({ counts }) => {
      picked.draw();
      fill(
        head,
        chips(
          "Investigation",
          Object.entries(statuses).map(([name, [label, member]]) => [
            name,
            [label, counts && h("b", number(counts(member) - (name === "Pending" ? counts("pending_over") : 0)))],
          ]),
          (s) => s === status,
          choose,
        ),
      );
      fill(
        over,
        counts?.("pending_over") > 0 &&
          allowed(
            "dlq:update",
            `Close ${number(counts("pending_over"))} that are over …`,
            () =>
              bulkForm(
                "close",
                { over: true },
                { about: "Of these, the tasks have completed or were cancelled since.", changed: () => list.load() },
              ),
            "quiet small",
            { key: "close" },
          ),
      );
    },
    columns: () =>
      pending()
        ? [[picked.head(), "pick"], "Task", ["Why", "wide-cell"], "Now", "Since", ["", "num"]]
        : ["Task", "Why", ["Notes", "wide-cell"], "By", "Ended", ["", "num"]],
    row: (e) => [
      ...(pending()
        ? [
            picked.box(e.dlq_entry_uuid, shortId(e.task_uuid)),
            task(e, e),
            reason(e),
            state(e.current_state),
            ago(e.dlq_timestamp),
          ]
        : [
            task(e, e.task_snapshot),
            reason(e),
            e.resolution_notes || "–",
            e.resolved_by || "–",
            ago(e.resolution_timestamp),
          ]),
      allowed("dlq:read", "Investigate", () => investigate(e, () => list.load()), "quiet small", {
        "aria-label": "Investigate " + shortId(e.task_uuid),
      }),
    ],
    none: () =>
      pending()
        ? empty(
            "Nothing needs you",
            "A task appears here when a step has failed for good, or when it is stale and its template sends it here.",
          )
        : empty("No such entry", `No investigation ended as “${statuses[status][0].toLowerCase()}”.`),
  });
  // Of all that match, or of the chosen ones, the tasks.
  const picked = new Selection({
    noun: ["dead letter"],
    offers: ["reset", "resolve", "cancel", "close"],
    total: () => list.known,
    changed: () => list.load(),
    filter: (name, ids) =>
      ids
        ? { task_uuid: [...new Set(list.items.filter((e) => ids.includes(e.dlq_entry_uuid)).map((e) => e.task_uuid))] }
        : name === "close"
          ? { over: false }
          : { dead_letter: true },
  });
  await list.begin();
  fill(
    root,
    h("div.row", h("h1", "Dead letters"), head, over),
    h("p.soft.lead", "Tasks that are stuck until a person acts. Act on the task, and record the outcome."),
    list.element,
    picked.bar,
  );
}

const task = (e, { namespace_name: queued, namespace = queued, task_name: name }) =>
  h("div", link("/tasks/" + e.task_uuid, clip(`${namespace}/${name}`)), " ", h("span.soft.mono", shortId(e.task_uuid)));

const reason = ({ error: e, dlq_reason }) =>
  e ? clip(`${e.step_name}: ${withoutType(headline(e.message || e.error_type), e.error_type)}`) : words(dlq_reason);

// investigate opens the form about an investigation, with what failed.
async function investigate({ task_uuid: id, dlq_entry_uuid: entryId }, changed) {
  const found = await api.get("/v1/dlq/task/" + id).catch((e) => toast(e.message, "bad"));
  if (!found) return;
  const entry = found.entries?.find((e) => e.dlq_entry_uuid === entryId) ?? found,
    snapshot = entry.task_snapshot;
  const status = select(
      Object.entries(statuses).map(([name, [label]]) => [name, label]),
      entry.resolution_status,
    ),
    by = h("input", { value: entry.resolved_by || actor() });
  const notes = h("textarea", {
    rows: 4,
    class: "prose",
    value: entry.resolution_notes || "",
    placeholder: "What was the cause, and what did you do?",
  });
  const path = "/v1/dlq/entry/" + entryId;
  const body = () => ({
    resolution_status: status.value,
    ...(notes.value && { resolution_notes: notes.value }),
    ...(by.value && { resolved_by: by.value }),
  });
  const done = await confirmForm({
    heading: "Investigate",
    action: "Save",
    needs: "dlq:update",
    fields: [
      h(
        "div.row",
        task(entry, snapshot),
        h("span.soft", words(entry.dlq_reason), ", ", ago(entry.dlq_timestamp)),
        link("/tasks/" + id, "Act on the task", { class: "button quiet small" }),
      ),
      (snapshot.steps ?? []).some((s) => s.error) &&
        h(
          "div.problem",
          snapshot.steps
            .filter((s) => s.error)
            .map((s) => [
              h(
                "p",
                h("strong", s.name),
                ` failed after ${plural(s.attempts, "attempt")} `,
                h("span.soft", s.error.error_type),
              ),
              s.error.message ? errorText(s.error.message, s.name) : h("i", "the message is hidden from you"),
            ]),
        ),
      h("details", h("summary", "The task as it was then"), jsonTree(snapshot, { label: "Snapshot" })),
      h("div.form.grid", field("State", status), field("Your name", by)),
      field("Notes", notes),
    ],
    commands: () => [
      ["curl", api.curl("PATCH", path, body())],
      [
        "Command line",
        api.cli(
          "dlq",
          "update",
          entryId,
          "--status",
          status.value,
          ...(notes.value ? ["--notes", notes.value] : []),
          ...(by.value ? ["--by", by.value] : []),
        ),
      ],
    ],
    submit: async () => {
      actAs(by.value);
      await api.patch(path, body());
      toast("The investigation is recorded.");
      return true;
    },
  });
  if (done) changed();
}
