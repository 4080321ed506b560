// The service itself: health, version, what the caller may do, deliveries of events, the effective configuration.

import * as api from "./api.js";
import { Selection } from "./bulk.js";
import { live } from "./live.js";
import { fill } from "./patch.js";
import { jsonTree } from "./values.js";
import { ago, button, chooseTimes, empty, field, h, link, number, plural, problem, select, shortId, table,
  timeForms,
  times, when } from "./ui.js";

const perPage = 50;

export async function show(root, { signal, query, remember }) {
  const health = h("section.view", { "aria-label": "Health" }), deliveries = new Deliveries(signal, query, remember);
  const fillHealth = () => reading(health, signal, "/health/detailed", healthOf);
  const choice = select(Object.entries(timeForms).map(([name, { label }]) => [name, label]), times(), (name) => {
    chooseTimes(name);
    fillHealth();
    deliveries.read();
  });
  fill(root, h("div.row", h("h1", "Service"), h("a.button.quiet.small", { href: api.root + "/api-docs/ui" }, "API"),
    field("Times", choice)), health, caller(signal), deliveries.element, configuration(signal));
  await Promise.all([fillHealth(), deliveries.read()]);
  const again = setInterval(() => { if (!document.hidden) fillHealth(); }, 5000);
  signal.addEventListener("abort", () => clearInterval(again));
  live(signal, () => true, () => deliveries.read());
}

// reading fills a place with what make() makes of an answer, or with the problem.
async function reading(place, signal, path, make) {
  try {
    fill(place, make(await api.get(path, { signal })));
  } catch (e) {
    if (!signal.aborted) fill(place, problem(e, () => reading(place, signal, path, make)));
  }
}

const tones = { healthy: "good", degraded: "wait", unhealthy: "bad" };

function healthOf({ status, checks, info, timestamp }) {
  return [h("div.row", h("h2", "Health"), h("span", { class: "state " + (tones[status] ?? "idle") }, status)),
    h("p.soft",
      `Version ${info.version} · ${info.environment} · ${info.operational_state} · it is ${when(timestamp)}`),
    table("Checks", ["Check", "State", ["Message", "wide-cell"]],
      Object.entries(checks).map(([name, c]) => ({ key: name, cells: [
      name.replaceAll("_", " "), h("span", { class: "state " + (tones[c.status] ?? "idle") }, c.status),
        c.message] })))];
}

// caller shows who the person is to the service, and what they may do.
function caller(signal) {
  const place = h("section.view", { "aria-label": "My permissions" });
  reading(place, signal, "/v1/auth/permissions", (me) => [h("h2", "My permissions"),
    h("p.soft", me.method === "none" ? "Authentication is off: anyone can do everything."
      : ["You are ", h("b", me.subject ?? "anonymous"),
      `, by ${{ jwt: "a token", api_key: "an API key", forward: "another service" }[me.method]}`,
        me.expires_at && [", until ", when(me.expires_at)], "."]),
    h("p.chips", me.permissions.map((p) => h("span.tag", p)))]);
  return place;
}

function configuration(signal) {
  const place = h("div"), details = h("details.view", { ontoggle: () => details.open
    && reading(place, signal, "/config", (c) => jsonTree(c.config, { open: 1, label: "Configuration" })) },
    h("summary", h("strong", "Effective configuration")),
      h("p.soft", "Without secrets. Served if config_endpoint_enabled is set; requires system:config_read."), place);
  return details;
}

// Deliveries are those of domain events to subscribers.
class Deliveries {
  total; list; signal; remember;
  constructor(signal, query, remember) {
    Object.assign(this, { signal, remember, status: query.get("deliveries") ?? "dead", limit: perPage, total: 0 });
    this.element = h("section.view");
    this.picked = new Selection({ noun: ["delivery", "deliveries"], offers: ["resend"], total: () => this.total,
      changed: () => this.read(),
      filter: (name, ids) => ({ status: this.status, ...(ids && { delivery: ids }) }) });
  }

  async read() {
    const path = "/v1/events/deliveries" + api.query({ status: this.status, limit: this.limit });
    await reading(this.element, this.signal, path, ({ deliveries, total_count: total, subscribers }) => {
      Object.assign(this, { list: deliveries, total });
      this.picked.draw();
      return this.contents(deliveries, subscribers);
    });
  }

  contents(list, subscribers) {
    const sum = (name) => subscribers.reduce((n, s) => n + s[name], 0);
    if (!subscribers.length) return [h("h2", "Deliveries"),
      h("p.soft", "No subscriber is configured: events go to those who follow the stream.")];
    const chips = ["dead", "pending", "delivered"].map((status) =>
      button([{ dead: "Given up", pending: "Pending", delivered: "Delivered" }[status], " ",
      h("b", number(sum(status)))],
      () => this.choose(status), "chip", { key: status, "aria-pressed": String(status === this.status) }));
    return [h("div.row", h("h2", "Deliveries"), h("div.chips", { role: "group", "aria-label": "Status" }, chips)),
      table("Subscribers", ["Subscriber", ["Pending", "num"], ["Given up", "num"], "Oldest pending",
        "Last success", ["Last error", "wide-cell"]], subscribers.map((s) => ({ key: s.name, cells: [
        [h("strong", s.name), h("p.about.soft", s.url)], number(s.pending), number(s.dead), ago(s.oldest_pending_at),
        ago(s.last_success_at), [s.last_error ?? s.newest_problem?.problem ?? "–", " ",
          s.last_error_at && h("span.soft", ago(s.last_error_at))]] }))),
      list.length ? table("Deliveries", [[this.picked.head(), "pick"], "Event", "Subscriber", "Task",
        ["Attempts", "num"], ["Problem", "wide-cell"], "When"], list.map((d) => ({ key: d.id, cells: [
        this.picked.box(d.id, d.type + " " + shortId(d.task_uuid)), h("strong", d.type), d.subscriber,
          link("/tasks/" + d.task_uuid, h("code", shortId(d.task_uuid))),
        number(d.attempts), d.problem ?? "–", ago(d.timestamp)] }))) : empty("No delivery", ""),
      this.total > this.limit && h("div.row.center", button("Show more",
        () => { this.limit = Math.min(this.limit * 2, 1000); this.read(); })),
      list.length > 0 && h("p.soft", `${plural(this.total, "delivery", "deliveries")}.`), this.picked.bar];
  }

  choose(status) {
    this.status = status;
    this.picked.clear();
    this.remember(status === "dead" ? "" : "deliveries=" + status);
    return this.read();
  }
}
