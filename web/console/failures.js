// What is failing, by cause.

import * as api from "./api.js";
import { bulkButton, bulkForm } from "./bulk.js";
import { List } from "./list.js";
import { resultSchema } from "./schema.js";
import { withoutType } from "./trace.js";
import { ago, clip, empty, fill, h, link, number, plural, when } from "./ui.js";

export async function show(root, context) {
  const only = Object.fromEntries(["namespace", "name"].map((n) => [n, context.query.get(n)])),
    lead = h("div");
  const list = new List(context, {
    noun: ["cause"],
    key: (g) => g.group,
    read: async () => {
      const { groups: items, other_groups: other } = await api.get(
        "/v1/analytics/failures" + api.query({ ...only, limit: 200 }),
        { signal: context.signal },
      );
      return { items, other, total: items.length + other.groups };
    },
    concerns: (e) =>
      [e.from_state, e.to_state].some((s) => s === "error" || s === "waiting_for_retry" || s === "blocked_by_failures"),
    shown: ({ items, other }) =>
      fill(
        lead,
        items.length > 0 &&
          h(
            "p.soft.lead",
            h(
              "b",
              plural(
                items.reduce((n, g) => n + g.stuck_tasks, other.stuck_tasks),
                "stuck task",
              ),
            ),
            ". The causes that stop the most tasks come first. A ",
            h("code", "*"),
            " stands for what differs.",
            other.groups > 0 &&
              ` ${plural(other.groups, "more cause")} with ${plural(other.stuck_tasks, "stuck task")}.`,
          ),
      ),
    draw: (groups) =>
      h(
        "ol.causes",
        groups.map((g) => cause(g, () => list.load())),
      ),
    none: () => empty("Nothing is failing", "Steps appear here, by cause, from a failed attempt until they are done."),
  });
  await list.begin();
  fill(root, h("div.row", h("h1", "Failures"), list.total), lead, list.element);
}

// cause makes the entry of a group: what failed, for how many, since when, and the actions on all.
function cause(g, changed) {
  const filter = { failure_group: g.group },
    open = (name, more, schema) => () =>
      bulkForm(name, { ...filter, ...more }, { schema, about: `All that fail as “${titleOf(g)}”.`, changed });
  return h(
    "li.card.cause",
    { key: g.group, class: g.gone ? "card cause gone" : "card cause" },
    h(
      "div.cause-text",
      h("h2.clip", { title: titleOf(g) }, title(g)),
      h(
        "p.soft",
        h("span.mono", clip(g.namespace_name + "/" + g.task_name)),
        " · ",
        link(`/tasks/${g.sample_task_uuid}`, "Latest sample"),
        " · ",
        link("/tasks" + api.query({ failure_group: g.group }), "Its tasks"),
      ),
    ),
    counts(g),
    course(g),
    h(
      "div.row",
      g.stuck_tasks > 0 && bulkButton("reset", g.stuck_tasks, open("reset"), "primary small"),
      g.retrying_tasks > 0 && bulkButton("retry_now", g.retrying_tasks, open("retry_now"), "primary small"),
      g.stuck_tasks > 0 && [
        bulkButton("complete", 0, async () =>
          open("complete", { step: g.step_name }, await resultSchema({ task_uuid: g.sample_task_uuid }, g.step_name))(),
        ),
        bulkButton("resolve", 0, open("resolve")),
      ],
      bulkButton("cancel", 0, open("cancel")),
    ),
  );
}

// messageOf returns the message without the type with which that of an exception begins, perhaps after its package.
const messageOf = (g) => (g.message_redacted ? "the message needs steps:read" : withoutType(g.message, g.error_type));

const titleOf = (g) => `${g.step_name} · ${g.error_type}: ${messageOf(g)}`;

const title = (g) => [g.step_name, " · ", g.error_type, ": ", h("span.cause-message", messageOf(g))];

const counts = (g) =>
  h(
    "p.cause-count",
    h("b", { class: g.stuck_tasks > 0 && "bad-text" }, number(g.stuck_tasks || g.retrying_tasks)),
    " ",
    g.stuck_tasks ? "stuck" : "retrying",
    g.stuck_tasks > 0 && g.retrying_tasks > 0 && h("span.soft", `, ${number(g.retrying_tasks)} retrying`),
  );

// course draws when the steps of a group failed, from the first failure to now.
function course({ course: parts, first_failure_at: first, last_failure_at: last }) {
  const most = Math.max(...parts),
    width = 4;
  return h(
    "div.course",
    h(
      "svg.bars",
      {
        viewBox: `0 0 ${parts.length * width} 24`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `Failures since ${when(first)}, the latest ${when(last)}`,
      },
      parts.map((n, i) =>
        h("rect.bad", {
          x: i * width,
          y: 24 - (n ? Math.max((n / most) * 24, 2) : 0.5),
          width: width - 1,
          height: n ? Math.max((n / most) * 24, 2) : 0.5,
        }),
      ),
    ),
    h("p.soft", "first ", ago(first), " · last ", ago(last)),
  );
}
