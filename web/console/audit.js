// What operators did: who, when, what, why, to how many, and what became of it.

import * as api from "./api.js";
import { verdict } from "./bulk.js";
import { List, rowsOf } from "./list.js";
import { DONE } from "./step.js";
import { ago, button, clip, empty, field, fill, h, link, plural, problem, select, shortId } from "./ui.js";

const hours = { "": "Any time", 1: "Last hour", 24: "Last 24 hours", 168: "Last 7 days" };

export async function show(root, context) {
  const { query, remember, signal } = context;
  const asked = { hours: hours[query.get("hours")] ? query.get("hours") : "", actor: query.get("actor") ?? "" };
  const list = new List(context, {
    label: "What operators did",
    noun: ["act"],
    key: (a) => a.acted_at + a.sample_task_uuid,
    read: rowsOf(
      "/v1/audit",
      () => ({ actor: asked.actor, since: asked.hours && new Date(api.now() - asked.hours * 3_600_000).toISOString() }),
      signal,
    ),
    columns: () => ["When", "Who", ["What", "wide-cell"], ["Why", "wide-cell"], ["How many", "wide-cell"]],
    row,
    none: () => empty("Nothing was done", "What operators do to the tasks that are kept appears here."),
  });
  const set = (name, value) => {
    asked[name] = value;
    remember(api.query(asked));
    list.restart();
  };
  const actor = h("input", {
    type: "search",
    value: asked.actor,
    "data-search": true,
    autocomplete: "off",
    onchange: () => set("actor", actor.value.trim()),
  });
  await list.begin();
  fill(
    root,
    h("div.row", h("h1", "Audit"), list.total),
    h(
      "div.form.grid",
      field("Who", actor),
      field(
        "When",
        select(Object.entries(hours), asked.hours, (v) => set("hours", v)),
      ),
    ),
    list.element,
  );
}

const row = (a) => [
  ago(a.acted_at),
  [
    h("strong", clip(a.acted_by ?? a.subject ?? "–")),
    a.subject && a.acted_by !== a.subject && h("p.about.soft", "as ", clip(a.subject)),
  ],
  [
    h("strong", DONE[a.action] ?? a.action),
    h("p.about.soft", clip(`${a.namespace_name}/${a.task_name}`), a.step_name && [" · ", clip(a.step_name)]),
  ],
  a.reason || "–",
  amount(a),
];

// amount says how many an act changed, and for one on many, once it is asked for, what became of them.
function amount(a) {
  const many = a.steps ? plural(a.steps, "step") : plural(a.tasks, "task"),
    id = a.sample_task_uuid;
  if (a.steps <= 1 && a.tasks === 1) return link("/tasks/" + id, h("code", shortId(id)));
  return [
    many,
    " ",
    a.request_id &&
      a.steps > 0 &&
      button(
        "What became of them",
        ({ currentTarget: b }) => {
          const place = b.nextElementSibling;
          verdict(place, [a.request_id], (DONE[a.action] ?? a.action).toLowerCase()).catch((e) =>
            fill(place, problem(e)),
          );
        },
        "quiet small",
      ),
    h("p.about", { own: true }),
  ];
}
