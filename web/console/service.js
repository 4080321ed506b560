// The service itself: health, version, what the caller may do, deliveries of events to subscribers, the effective
// configuration. The page of a subscriber has its deliveries.

import * as api from "./api.js";
import { Selection } from "./bulk.js";
import { List } from "./list.js";
import { jsonTree } from "./values.js";
import {
  ago,
  chips,
  chooseTimes,
  empty,
  field,
  fill,
  h,
  link,
  number,
  pair,
  problem,
  select,
  shortId,
  table,
  timeForms,
  times,
  when,
} from "./ui.js";

export async function show(root, context) {
  const { signal, params, title } = context,
    { list, head, picked } = deliveries(context);
  if (params.name) {
    title(params.name);
    await list.begin();
    return fill(
      root,
      h("h1.clip", { title: params.name }, h("span.soft", "Subscriber "), params.name),
      head,
      list.element,
      picked.bar,
    );
  }
  const health = h("section.view", { "aria-label": "Health" });
  const fillHealth = () => reading(health, signal, "/health/detailed", healthOf);
  const choice = select(
    Object.entries(timeForms).map(([name, { label }]) => [name, label]),
    times(),
    (name) => {
      chooseTimes(name);
      fillHealth();
      list.redraw();
    },
  );
  const begun = list.begin().catch((e) => fill(list.place, problem(e)));
  fill(
    root,
    h(
      "div.row",
      h("h1", "Service"),
      h("a.button.quiet.small", { href: api.root + "/api-docs/ui" }, "API"),
      field("Times", choice),
    ),
    health,
    caller(signal),
    head,
    list.element,
    picked.bar,
    configuration(signal),
  );
  await Promise.all([fillHealth(), begun]);
  api.each(5000, signal, fillHealth);
}

// reading fills a place with what make() makes of an answer, or with the problem.
async function reading(place, signal, path, make) {
  try {
    fill(place, make(await api.get(path, { signal })));
  } catch (e) {
    if (!signal.aborted)
      fill(
        place,
        problem(e, () => reading(place, signal, path, make)),
      );
  }
}

const tones = { healthy: "good", degraded: "wait", unhealthy: "bad" };

function healthOf({ status, checks, info, timestamp }) {
  return [
    h("div.row", h("h2", "Health"), h("span", { class: "state " + (tones[status] ?? "idle") }, status)),
    h("p.soft", `Version ${info.version} · ${info.environment} · ${info.operational_state} · it is ${when(timestamp)}`),
    table(
      "Checks",
      ["Check", "State", ["Message", "wide-cell"]],
      Object.entries(checks).map(([name, c]) => ({
        key: name,
        cells: [
          name.replaceAll("_", " "),
          h("span", { class: "state " + (tones[c.status] ?? "idle") }, c.status),
          c.message,
        ],
      })),
    ),
  ];
}

// caller shows who the person is to the service, and what they may do.
function caller(signal) {
  const place = h("section.view", { "aria-label": "My permissions" });
  reading(place, signal, "/v1/auth/permissions", (me) => [
    h("h2", "My permissions"),
    h(
      "p.soft",
      me.method === "none"
        ? "Authentication is off: anyone can do everything."
        : [
            "You are ",
            h("b", me.subject ?? "anonymous"),
            `, by ${{ jwt: "a token", api_key: "an API key", forward: "another service" }[me.method]}`,
            me.expires_at && [", until ", when(me.expires_at)],
            ".",
          ],
    ),
    h(
      "p.chips",
      me.permissions.map((p) => h("span.tag", p)),
    ),
  ]);
  return place;
}

function configuration(signal) {
  const place = h("div"),
    details = h(
      "details.view",
      {
        ontoggle: () =>
          details.open &&
          reading(place, signal, "/config", (c) => jsonTree(c.config, { open: 1, label: "Configuration" })),
      },
      h("summary", h("strong", "Effective configuration")),
      h("p.soft", "Without secrets. Served if config_endpoint_enabled is set; requires system:config_read."),
      place,
    );
  return details;
}

// deliveries makes the list of the deliveries of domain events to subscribers, or to the one of the page, under a head
// with what is known of these.
function deliveries(context) {
  const { query, remember, signal, params } = context,
    head = h("section.view"),
    { name } = params;
  let status = query.get("deliveries") ?? "dead",
    anybody = false;
  const choose = (chosen) => {
    status = chosen;
    picked.clear();
    remember(status === "dead" ? "" : "deliveries=" + status);
    list.restart();
  };
  const list = new List(context, {
    label: "Deliveries",
    noun: ["delivery", "deliveries"],
    perPage: 50,
    key: (d) => d.id,
    read: async (count) => {
      const {
        deliveries: items,
        total_count: total,
        subscribers,
      } = await api.get(
        "/v1/events/deliveries" + api.query({ subscriber: name, status, limit: Math.min(count, 1000) }),
        { signal },
      );
      if (name && !subscribers.length) throw new api.ApiError(404, { message: `no subscriber ${name} is configured` });
      return { items, total, more: items.length < Math.min(total, 1000), subscribers };
    },
    shown: ({ subscribers }) => {
      const sum = (of) => subscribers.reduce((n, s) => n + s[of], 0);
      picked.draw();
      anybody = subscribers.length > 0;
      fill(
        head,
        h("h2", "Deliveries"),
        !subscribers.length
          ? h("p.soft", "No subscriber is configured: events go to those who follow the stream.")
          : [
              subscribersOf(subscribers, name),
              h(
                "div.row",
                chips(
                  "Status",
                  [
                    ["dead", "Given up"],
                    ["pending", "Pending"],
                    ["delivered", "Delivered"],
                  ].map(([of, label]) => [of, [label, " ", h("b", number(sum(of)))]]),
                  (of) => of === status,
                  choose,
                ),
                list.total,
              ),
            ],
      );
    },
    columns: () => [
      [picked.head(), "pick"],
      "Event",
      "Subscriber",
      "Task",
      ["Attempts", "num"],
      ["Problem", "wide-cell"],
      "When",
    ],
    row: (d) => [
      picked.box(d.id, d.type + " " + shortId(d.task_uuid)),
      h("strong", d.type),
      d.subscriber,
      link("/tasks/" + d.task_uuid, h("code", shortId(d.task_uuid))),
      number(d.attempts),
      d.problem ?? "–",
      ago(d.timestamp),
    ],
    none: () => anybody && empty("No delivery", ""),
  });
  const picked = new Selection({
    noun: ["delivery", "deliveries"],
    offers: ["resend"],
    total: () => list.known,
    changed: () => list.load(),
    filter: (_, ids) => ({ status, ...(name && { subscriber: name }), ...(ids && { delivery: ids }) }),
  });
  return { list, head, picked };
}

// subscribersOf shows what is known of subscribers in a table, or of one, whose URL has no secrets.
function subscribersOf(list, one) {
  const error = (s) => [
    s.last_error ?? s.newest_problem?.problem ?? "–",
    " ",
    s.last_error_at && h("span.soft", ago(s.last_error_at)),
  ];
  return one
    ? list.map((s) =>
        h(
          "dl.pairs",
          pair("URL", h("code", s.url)),
          pair("Last success", ago(s.last_success_at)),
          pair("Last error", error(s)),
          pair("Oldest pending", ago(s.oldest_pending_at)),
        ),
      )
    : table(
        "Subscribers",
        [
          "Subscriber",
          ["Pending", "num"],
          ["Given up", "num"],
          "Oldest pending",
          "Last success",
          ["Last error", "wide-cell"],
        ],
        list.map((s) => ({
          key: s.name,
          cells: [
            [link("/subscribers/" + encodeURIComponent(s.name), s.name, { class: "strong" }), h("p.about.soft", s.url)],
            number(s.pending),
            number(s.dead),
            ago(s.oldest_pending_at),
            ago(s.last_success_at),
            error(s),
          ],
        })),
      );
}
