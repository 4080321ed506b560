// What is failing, by cause: the page, and its top for other pages.

import * as api from "./api.js";
import { bulkButton, bulkForm } from "./bulk.js";
import { live } from "./live.js";
import { fill } from "./patch.js";
import { resultSchema } from "./schema.js";
import { withoutType } from "./trace.js";
import { ago, clip, empty, h, link, number, plural, since, when } from "./ui.js";

// concerns reports whether an event may change the causes.
const concerns = (e) => [e.from_state, e.to_state].some((s) => s === "error" || s === "waiting_for_retry"
  || s === "blocked_by_failures");

export async function show(root, { signal, query, renew }) {
  const only = Object.fromEntries(["namespace", "name"].map((n) => [n, query.get(n)]));
  const place = h("div.view");
  let soon;
  const read = async () => fill(place, page(await api.get("/v1/analytics/failures" + api.query({ ...only,
    limit: 200 }), { signal }), () => soon()));
  await read();
  fill(root, h("h1", "Failures"), place);
  soon = live(signal, concerns, read, { namespace: only.namespace });
  renew(soon);
}

function page({ groups, other_groups: other }, changed) {
  if (!groups.length) return [empty("Nothing is failing",
    "Steps appear here, by cause, from a failed attempt until they are done.")];
  const stuck = groups.reduce((n, g) => n + g.stuck_tasks, other.stuck_tasks);
  return [h("p.soft.lead", { key: "lead" }, `${plural(groups.length + other.groups, "cause")}, `,
    h("b", plural(stuck, "stuck task")),
    ". Those that stop the most tasks come first. A ", h("code", "*"), " stands for what differs."),
  h("ol.causes", groups.map((g) => cause(g, changed))),
  other.groups > 0
    && h("p.soft", `${plural(other.groups, "more cause")} with ${plural(other.stuck_tasks, "stuck task")}.`)];
}

// cause makes the entry of a group: what failed, for how many, since when, and the actions on all.
function cause(g, changed) {
  const filter = { failure_group: g.group }, open = (name, more, schema) => () =>
    bulkForm(name, { ...filter, ...more }, { schema, about: `All that fail as “${titleOf(g)}”.`, changed });
  return h("li.card.cause", { key: g.group },
    h("div.cause-text", h("h2.clip", { title: titleOf(g) }, title(g)),
      h("p.soft", h("span.mono", clip(g.namespace_name + "/" + g.task_name)), " · ",
      link(`/tasks/${g.sample_task_uuid}`, "Latest sample"), " · ",
        link("/tasks" + api.query({ failure_group: g.group }), "Its tasks"))),
    counts(g), course(g),
    h("div.row", g.stuck_tasks > 0 && bulkButton("reset", g.stuck_tasks, open("reset"), "primary small"),
      g.retrying_tasks > 0 && bulkButton("retry_now", g.retrying_tasks, open("retry_now"), "primary small"),
      g.stuck_tasks > 0 && [bulkButton("complete", 0, async () => open("complete", { step: g.step_name },
        await resultSchema({ task_uuid: g.sample_task_uuid }, g.step_name))()),
        bulkButton("resolve", 0, open("resolve"))],
      bulkButton("cancel", 0, open("cancel"))));
}

// messageOf returns the message without the type with which that of an exception begins, perhaps after its package.
const messageOf = (g) => (g.message_redacted ? "the message needs steps:read" : withoutType(g.message, g.error_type));

const titleOf = (g) => `${g.step_name} · ${g.error_type}: ${messageOf(g)}`;

const title = (g) => [g.step_name, " · ", g.error_type, ": ", h("span.cause-message", messageOf(g))];

const counts = (g) => h("p.cause-count", h("b", { class: g.stuck_tasks > 0 && "bad-text" },
  number(g.stuck_tasks || g.retrying_tasks)), " ",
  g.stuck_tasks ? "stuck" : "retrying", g.stuck_tasks > 0 && g.retrying_tasks > 0
    && h("span.soft", `, ${number(g.retrying_tasks)} retrying`));

// course draws when the steps of a group failed, from the first failure to now.
function course({ course: parts, first_failure_at: first, last_failure_at: last }) {
  const most = Math.max(...parts), width = 4;
  return h("div.course", h("svg.bars", { viewBox: `0 0 ${parts.length * width} 24`, preserveAspectRatio: "none",
    role: "img",
    "aria-label": `Failures since ${when(first)}, the latest ${when(last)}` },
  parts.map((n, i) => h("rect.bad", { x: i * width, y: 24 - (n ? Math.max((n / most) * 24, 2) : 0.5), width: width - 1,
    height: n ? Math.max((n / most) * 24, 2) : 0.5 }))),
  h("p.soft", "since ", since(first), " · last ", ago(last)));
}

// top makes what fails most, for other pages: nothing while nothing fails, or the caller may not know.
export function top(signal, limit = 3) {
  const place = h("section.card.top", { "aria-label": "What is failing", hidden: true });
  const read = async () => {
    const { groups, other_groups: other } = await api.getOptional("/v1/analytics/failures" + api.query({ limit }),
      { signal }) ?? { groups: [] };
    place.hidden = !groups.length;
    if (groups.length) fill(place, h("div.row", h("h2", "What is failing"),
      link("/failures", plural(groups.length + other.groups, "cause"))),
      h("ul.plain", groups.map((g) => h("li", { key: g.group },
        link("/failures", title(g), { class: "clip", title: titleOf(g) }), " ", counts(g),
        h("span.soft", "since ", since(g.first_failure_at))))));
  };
  live(signal, concerns, read)();
  return place;
}
