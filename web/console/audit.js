// What operators did: who, when, what, why, to how many, and what became of it.

import * as api from "./api.js";
import { verdict } from "./bulk.js";
import { DONE } from "./step.js";
import { ago, button, clip, empty, field, fill, h, link, plural, problem, select, shortId, table } from "./ui.js";

const perPage = 100;
const hours = { "": "Any time", 1: "Last hour", 24: "Last 24 hours", 168: "Last 7 days" };

export async function show(root, { query, remember, signal, renew }) {
  const place = h("div.view"), asked = { hours: hours[query.get("hours")] ? query.get("hours") : "",
    actor: query.get("actor") ?? "" };
  let limit = perPage;
  const read = async () => {
    const since = asked.hours && new Date(api.now() - asked.hours * 3_600_000).toISOString();
    const acts = await api.several("/v1/audit", { since, actor: asked.actor }, limit + 1, 1000, signal);
    fill(place, acts.length ? table("What operators did", ["When", "Who", "What", ["Why", "wide-cell"],
      ["How many", "wide-cell"]], acts.slice(0, limit).map(row)) : empty("Nothing was done",
      "What operators do to the tasks that are kept appears here."),
    acts.length > limit && h("div.row.center", button("Show more", () => { limit += perPage; soon(); })));
  };
  const soon = api.reader(signal, read, 0);
  const set = (name, value) => {
    asked[name] = value;
    remember(api.query(asked));
    soon();
  };
  const actor = h("input", { type: "search", value: asked.actor, "data-search": true, autocomplete: "off",
    onchange: () => set("actor", actor.value.trim()) });
  await read();
  fill(root, h("h1", "Audit"), h("div.form.grid", field("Who", actor),
    field("When", select(Object.entries(hours), asked.hours, (v) => set("hours", v)))), place);
  renew(soon);
}

const row = (a) => ({ key: a.acted_at + a.sample_task_uuid, cells: [ago(a.acted_at),
  [h("strong", clip(a.acted_by ?? a.subject ?? "–")), a.subject && a.acted_by !== a.subject
    && h("p.about.soft", "as ", clip(a.subject))],
  [h("strong", DONE[a.action] ?? a.action), h("p.about.soft", clip(`${a.namespace_name}/${a.task_name}`),
    a.step_name && [" · ", clip(a.step_name)])], a.reason || "–", amount(a)] });

// amount says how many an act changed, and for one on many, once it is asked for, what became of them.
function amount(a) {
  const many = a.steps ? plural(a.steps, "step") : plural(a.tasks, "task"), place = h("p.about", { own: true }),
    id = a.sample_task_uuid;
  if (a.steps <= 1 && a.tasks === 1) return link("/tasks/" + id, h("code", shortId(id)));
  return [many, " ", a.request_id && a.steps > 0 && button("What became of them", () =>
    verdict(place, [a.request_id], (DONE[a.action] ?? a.action).toLowerCase()).catch((e) => fill(place, problem(e))),
  "quiet small"), place];
}
