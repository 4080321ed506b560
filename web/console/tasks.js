// The list of tasks: filters, counts by state, and rows that follow the event stream. New tasks
// do not move what is being read.

import * as api from "./api.js";
import { Selection } from "./bulk.js";
import { lookUp } from "./find.js";
import { ago, allowed, button, clip, confirmForm, duration, empty, ended, field, fill, h, instant, link, number,
  patch, plural,
  problem, select, shortId, state, toast, when } from "./ui.js";

// groups are the chips: label, tone and states.
/** @type {[string, string, string[]][]} */
const groups = [
  ["Pending", "idle", ["pending"]],
  ["In progress", "run", ["initializing", "enqueuing_steps", "steps_in_process", "evaluating_results"]],
  ["Waiting", "wait", ["waiting_for_dependencies", "waiting_for_retry"]],
  ["Blocked", "bad", ["blocked_by_failures"]],
  ["Failed", "bad", ["error"]],
  ["Complete", "good", ["complete"]],
  ["Resolved", "good", ["resolved_manually"]],
  ["Cancelled", "off", ["cancelled"]],
];

const periods = [["", "Any time"], ["15m", "Last 15 minutes"], ["1h", "Last hour"], ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"]];
const units = { m: 60_000, h: 3_600_000, d: 86_400_000 };

const orders = [["", "Newest first"], ["created_at", "Oldest first"], ["-updated_at", "Latest change first"],
  ["-completed_at", "Latest end first"], ["-priority", "Highest priority first"]];

const perPage = 50; // tasks read at a time
const mostRows = 500; // above it, new tasks wait to be asked for
const mostArrivals = 20; // that are inserted at once
const pause = 1000; // between two readings of the list, in milliseconds

export async function show(root, context) {
  const list = new TaskList(root, context);
  if (context.path === "/" && !context.query.size && (await list.isEmpty())) {
    const { welcome } = await import("./welcome.js");
    return welcome(root, context, list);
  }
  await list.begin();
}

class TaskList {
  signal; kept; root; go; renew; keys; query; remember;
  constructor(root, { query, remember, signal, keys, go, renew, kept }) {
    Object.assign(this, { root, query: new URLSearchParams(query), remember, signal, keys, go, renew, kept });
    this.soon = api.reader(this.signal, () => this.refresh(), pause);
    this.turn = 0; // counts the filters
    this.rows = new Map(); // {task, element} by UUID, in the order of the table
    this.dirty = new Set(); // UUIDs of rows that events have changed
    this.next = null; // cursor of the next page
    this.picked = new Selection({ noun: ["task"], offers: ["reset", "retry_now", "resolve", "cancel"],
      total: () => this.known,
      filter: (name, ids) => (ids ? { task_uuid: ids } : this.filter()), changed: () => this.soon() });
  }

  async isEmpty() {
    return (await api.get("/v1/tasks?per_page=1", { signal: this.signal })).pagination.total_count === 0;
  }

  async begin() {
    this.signal.addEventListener("abort", () => this.stop?.());
    let page;
    try {
      const left = /\/tasks\/(.+)/.exec(this.kept.focus)?.[
        1]; // new ones may have pushed it below the rows that were loaded
      page = await this.read(Math.max(this.kept.rows ?? 0, perPage), left);
    } catch (error) {
      if (error.status !== 400) throw error;
      return fill(this.root, h("h1", "Tasks"), problem(error),
        h("div.row", button("Clear the filter", () => this.go("/tasks"), "primary")));
    }
    this.draw();
    this.showPage(page);
    this.renew(() => { this.fillTemplates(); this.reload(); });
    this.keys({ j: ["Next task", () => this.move(1)], k: ["Previous task", () => this.move(-1)],
      n: ["Show new tasks", () => this.arrivals.hidden || this.load()] });
    this.follow();
  }

  // draw makes the page without its tasks.
  draw() {
    this.chips = h("div.chips", { role: "group", "aria-label": "State" });
    this.arrivals = button("", () => this.load(), "primary small arrivals", { hidden: true, "aria-live": "polite" });
    this.body = h("tbody");
    this.place = h("div");
    this.more = button("Show more", () => this.loadMore(), "quiet", { hidden: true });
    this.total = h("span.soft", { role: "status" });
    const group = this.query.get("failure_group") && h("div.row.notice", "Only tasks that fail now for one cause.",
      link("/failures", "Failures"), link("/tasks", "All tasks"));
    fill(this.root, h("div.row", h("h1", "Tasks"), this.total), this.filters(), group, this.chips, this.place,
      h("div.row.center", this.more),
      this.picked.bar, this.arrivals);
    this.table = h("div.scroll", { role: "region", "aria-label": "Tasks", tabindex: 0 },
      h("table.tasks", h("caption.hidden", "Tasks"),
        h("thead", h("tr", h("th.pick", { scope: "col" }, this.picked.head()),
        ["State", "Task", "Steps", "Created", "Took", "Tags"].map((c) => h("th", { scope: "col" }, c)))), this.body));
  }

  filters() {
    const q = (name) => this.query.get(name) || "";
    const text = h("input", { type: "search", value: q("q"), placeholder: "Search", "data-search": true,
      autocomplete: "off" });
    text.addEventListener("input", () => this.later(() => this.set("q", text.value.trim())));
    const tag = h("input", { value: this.query.getAll("tag").join(", "), placeholder: "Tags: eu, urgent",
      autocomplete: "off" });
    tag.addEventListener("change", () => this.set("tag", tag.value.split(",").map((t) => t.trim()).filter(Boolean)));
    this.namespace = select([], "", (v) => { this.set("name", ""); this.set("namespace", v); this.fillNames(); });
    this.name = select([], "", (v) => this.set("name", v));
    this.fillTemplates();
    const sort = select(orders.some(([v]) => v === q("sort")) ? orders : [...orders, q("sort")], q("sort"),
      (v) => this.set("sort", v));
    const more = button("Filters", () => more.setAttribute("aria-expanded", box.classList.toggle("open")), "quiet",
      { "aria-expanded": "false" });
    this.created = this.period();
    const box = h("div.filters", field("Text", text), more, field("Namespace", this.namespace),
      field("Template", this.name),
      field("Tags", tag), field("Created", this.created), field("Order", sort));
    return box;
  }

  // period makes the choice of a time: a recent period, or what a link gives as created_after and
  // created_before.
  period() {
    const options = [...periods], bounds = ["created_after", "created_before"].map((b) => this.query.get(b));
    if (bounds.some(Boolean)) {
      const words = ["after ", "before "];
      options.push(["given", bounds.map((b, i) => b && words[i] + when(b)).filter(Boolean).join(", ")]);
    }
    options.push(["between", "Between …"]);
    return select(options, bounds.some(Boolean) ? "given" : this.query.get("since") || "", async (value) => {
      if (value === "given") return;
      const given = value === "between" ? await this.askPeriod() : {};
      if (given) {
        this.query.delete("created_after");
        this.query.delete("created_before");
        for (const [name, at] of Object.entries(given)) this.query.set(name, at);
        this.set("since", value === "between" ? "" : value);
      }
      const fresh = this.period();
      fill(this.created, [...fresh.children]);
      this.created.value = fresh.value;
    });
  }

  // askPeriod asks for two times, and resolves to the parameters or undefined.
  async askPeriod() {
    const from = h("input", { type: "datetime-local" }), to = h("input", { type: "datetime-local" });
    const iso = (input) => input.value && new Date(input.value).toISOString();
    return confirmForm({ heading: "Created between", about: "Leave one empty for an open period.", action: "Show",
      fields: [field("From", from), field("To", to)],
      submit: () => Object.fromEntries([["created_after", iso(from)],
        ["created_before", iso(to)]].filter((p) => p[1])) });
  }

  async fillTemplates() {
    try {
      this.templates = (await api.getOptional("/v1/templates", { signal: this.signal }))?.templates;
    } catch (error) {
      if (this.signal.aborted || error.status === 401) return; // of which the list of tasks tells
      toast(`The templates cannot be read: ${error.message}`, "bad");
    }
    this.templates ??= []; // without permission, the lists offer what the address names
    this.offerAll();
  }

  offerAll() {
    const namespaces = new Set(this.templates.map((t) => t.namespace));
    this.offer(this.namespace, "All namespaces", namespaces, this.query.get("namespace"));
    this.fillNames();
  }

  fillNames() {
    const chosen = this.query.get("namespace");
    this.offer(this.name, "All templates",
      new Set(this.templates.filter((t) => !chosen || t.namespace === chosen).map((t) => t.name)),
      this.query.get("name"));
  }

  offer(list, all, values, chosen) {
    if (chosen) values.add(chosen);
    fill(list, [["", all], ...[...values].sort().map((v) => [v, v])].map(([v, text]) => h("option",
      { key: v, value: v }, text)));
    list.value = chosen || "";
  }

  // later calls f once the person stops typing.
  later(f) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => { if (!this.signal.aborted) f(); }, 200);
  }

  // set changes a member of the filter, the address and the list.
  set(name, value) {
    this.query.delete(name);
    for (const v of [value].flat()) if (v) this.query.append(name, v);
    this.remember(this.query);
    this.picked.clear();
    this.load();
    if (name === "namespace") this.follow();
  }

  // asked returns the parameters that select tasks.
  /** @returns {Record<string, any>} */
  asked() {
    const q = Object.fromEntries(["q", "namespace", "name", "status", "failure_group", "created_after",
      "created_before"].map((n) => [n, this.query.get(n)]));
    const since = this.query.get("since"), [, n, unit] = /^(\d{1,6})([mhd])$/.exec(since) ?? [];
    if (since && !n) throw new api.ApiError(400,
      { message: `since must be a number of minutes, hours or days, such as 15m, not "${since}"` });
    if (n) q.created_after = new Date(api.now() - Number(n) * units[unit]).toISOString();
    return { ...q, tag: this.query.getAll("tag") };
  }

  // filter returns the same for an action on all that match. An empty one would be refused.
  filter() {
    const { status, tag, ...rest } = this.asked();
    const f = { ...Object.fromEntries(Object.entries(rest).filter(([, v]) => v)),
      ...(status && { status: status.split(",") }), ...(tag.length && { tag }) };
    return Object.keys(f).length ? f : { created_before: new Date(api.now() + 1000).toISOString() };
  }

  // path returns the path of a page of the list.
  path(cursor, count) {
    const text = api.query({ ...this.asked(), sort: this.query.get("sort"), per_page: count,
      counts: cursor ? "" : "true" });
    return `/v1/tasks${text}&cursor=${encodeURIComponent(cursor)}`;
  }

  // load reads the first page and shows it in place of what is shown.
  async load() {
    const turn = ++this.turn;
    try {
      const page = await this.read(perPage);
      if (turn !== this.turn) return; // the filter was changed meanwhile
      this.showPage(page);
    } catch (error) {
      if (this.signal.aborted || turn !== this.turn) return;
      if (error.status === 401) return this.reload(); // which says so beside the list
      fill(this.place, problem(error, () => this.load()));
      this.more.hidden = true;
    }
  }

  // read reads the list from its start until there are as many tasks as wanted, and the one that was left.
  async read(wanted, left) {
    const whole = await api.get(this.path("", Math.min(wanted, 100)), { signal: this.signal });
    const short = () => whole.tasks.length < wanted
      || (left && whole.tasks.length < mostRows && !whole.tasks.some((t) => t.task_uuid === left));
    while (whole.pagination.next_cursor && short()) {
      const { tasks, pagination } = await api.get(this.path(whole.pagination.next_cursor, 100),
        { signal: this.signal });
      whole.tasks.push(...tasks);
      whole.pagination.next_cursor = pagination.next_cursor;
    }
    return whole;
  }

  // showPage shows the first page in place of what is shown.
  showPage(page) {
    const before = this.rows;
    this.rows = new Map();
    this.dirty.clear();
    this.stale = false;
    this.arrivals.hidden = true;
    fill(this.body, page.tasks.map((t) => this.add(t, before.get(t.task_uuid))));
    this.next = page.pagination.next_cursor;
    this.kept.rows = this.rows.size;
    this.drawTotals(page.pagination);
    fill(this.place, page.tasks.length ? this.table : this.nothing());
  }

  async loadMore() {
    this.more.disabled = true;
    try {
      const page = await api.get(this.path(this.next, perPage), { signal: this.signal });
      const fresh = page.tasks.filter((t) => !this.rows.has(t.task_uuid));
      this.body.append(...fresh.map((t) => this.add(t)));
      this.next = page.pagination.next_cursor;
      this.kept.rows = this.rows.size;
      if ([this.more, document.body].includes(document.activeElement)) this.body.querySelector(
        `[data-id="${fresh[0]?.task_uuid}"] a`)?.focus();
    } catch (error) {
      if (!this.signal.aborted) this.place.append(problem(error));
    }
    this.more.disabled = false;
    this.more.hidden = !this.next;
  }

  drawTotals(pagination) {
    this.known = pagination.total_count;
    this.total.textContent = plural(pagination.total_count, "task");
    this.more.hidden = !this.next;
    this.picked.draw();
    if (pagination.counts) this.drawChips(pagination.counts);
  }

  nothing() {
    if (!this.query.size) {
      return empty("No task yet", "Start one here or over the API, and it appears at once.",
        allowed("tasks:create", "Start a task", () => this.go("/start"), "primary"));
    }
    const q = this.query.get("q");
    return [empty("No task matches", "No task has all that the filter asks for.",
      button("Clear the filter", () => this.go("/tasks"), "primary")), q && lookUp(q)];
  }

  // drawChips shows the tasks in each group of states, as buttons that switch the group in the filter.
  drawChips(counts) {
    const chosen = (this.query.get("status") || "").split(",").filter(Boolean);
    fill(this.chips, groups.map(([label, tone, states]) => {
      const count = states.reduce((sum, s) => sum + (counts[s] || 0), 0), on = states.some((s) => chosen.includes(s));
      const others = chosen.filter((s) => !states.includes(s));
      return button([label, " ", h("b", number(count))],
        () => this.set("status", (on ? others : [...others, ...states]).join(",")),
        `chip ${tone}${count || on ? "" : " none"}`, { key: label, "aria-pressed": String(on) });
    }));
  }

  // Rows.

  // add adds the row of a task, or shows the task in the row that it has.
  add(t, row = { element: this.row(t) }) {
    if (row.task) patch(row.element, this.row(t));
    this.rows.set(t.task_uuid, Object.assign(row, { task: t }));
    return row.element;
  }

  row(t) {
    const name = link("/tasks/" + t.task_uuid, clip(t.name, "b"),
      { "aria-label": `${t.namespace}/${t.name} ${shortId(t.task_uuid)}` });
    const over = t.completed_at && ended(t.status);
    return h("tr", { key: t.task_uuid, "data-id": t.task_uuid },
      h("td.pick", this.picked.box(t.task_uuid, `${t.name} ${shortId(t.task_uuid)}`)), h("td", state(t.status)),
      h("td.what", name, h("span.soft", `${t.namespace} · ${t.version} · `, h("code", shortId(t.task_uuid)))),
      h("td.steps", progress(t)), h("td.created", ago(t.created_at)),
      h("td.took", over && duration(Math.max(instant(t.completed_at) - instant(t.created_at), 0.5))),
      h("td.taglist", t.tags.slice(0, 3).map((tag) => h("span.tag", tag)),
        t.tags.length > 3 && h("span.soft", ` +${t.tags.length - 3}`)));
  }

  move(step) {
    const links = [...this.body.querySelectorAll(".what a")];
    const i = links.findIndex((a) => a.closest("tr").contains(document.activeElement));
    links[Math.min(Math.max(i + step, 0), links.length - 1)]?.focus();
  }

  // Events.

  follow() {
    this.stop?.();
    let begun = false;
    this.stop = api.events({ namespace: this.query.get("namespace") }, (e) => this.happened(e), (name) => {
      if (name === "gap" || (name === "open" && begun)) this.reload();
      else if (/open|poll/.test(name)) this.soon(); // what happened since the page was read
      begun = true;
    });
  }

  happened(event) {
    const row = this.rows.get(event.task_uuid);
    if (row) {
      this.dirty.add(event.task_uuid);
      if (event.type === "task") row.state = event.to_state;
    }
    if (row || event.type === "task") this.soon();
  }

  // reload reads all rows again soon: events are missing.
  reload() {
    this.stale = true;
    this.soon();
  }

  async refresh() {
    const dirty = this.dirty, turn = this.turn, current = () => turn === this.turn && !this.signal.aborted;
    this.dirty = new Set();
    try {
      if (!this.stale) return await this.update(dirty, current);
      const page = await this.read(Math.max(this.rows.size, perPage));
      if (current()) this.showPage(page);
    } catch (error) {
      this.dirty = this.dirty.union(dirty);
      throw error;
    }
  }

  // update shows the first page again, and dirty rows further on, while the list is still the current one.
  async update(dirty, current) {
    const states = new Map([...this.rows].map(([id, r]) => [id, r.state]));
    let cursor = "", first;
    do {
      const page = await api.get(this.path(cursor, first ? 100 : perPage), { signal: this.signal });
      if (!current()) return;
      first ||= page;
      for (const t of page.tasks) {
        dirty.delete(t.task_uuid);
        const row = this.rows.get(t.task_uuid);
        if (row && changed(row.task, t)) this.add(t, row);
      }
      cursor = page.pagination.next_cursor;
    } while (cursor && [...dirty].some((id) => this.rows.has(id)) && this.rows.size > perPage);
    for (const id of dirty) this.changeState(this.rows.get(id), states.get(id)); // they do not match any more
    this.drawTotals(first.pagination);
    if (this.query.get("sort")) this.reorder(first);
    else this.arrive(first);
  }

  // reorder shows the first page in its new order, or offers to if something is being read.
  reorder(page) {
    const shown = [...this.rows.keys()].slice(0, page.tasks.length);
    if (shown.join() === page.tasks.map((t) => t.task_uuid).join()) return;
    if (!this.isRead() && this.rows.size <= perPage) return this.showPage(page);
    this.arrivals.textContent = "Show the current order";
    this.arrivals.hidden = false;
  }

  changeState(row, name) {
    if (row && name && name !== row.task.status) this.add({ ...row.task, status: name }, row);
  }

  // arrive inserts new tasks at the top, or offers them if something is being read.
  arrive(page) {
    const fresh = page.tasks.filter((t) => !this.rows.has(t.task_uuid) && this.isNewer(t));
    if (!fresh.length) return;
    if (this.isRead() || fresh.length > mostArrivals || this.rows.size + fresh.length > mostRows) {
      const many = fresh.length === page.tasks.length && this.rows.size > 0;
      this.arrivals.textContent = many ? `More than ${perPage} new tasks` : plural(fresh.length, "new task");
      this.arrivals.hidden = false;
      return;
    }
    if (this.rows.size === 0) fill(this.place, this.table);
    const before = [...this.rows];
    this.rows.clear();
    const elements = fresh.map((t) => this.add(t));
    for (const [id, row] of before) this.rows.set(id, row);
    this.kept.rows = this.rows.size;
    for (const e of elements) e.classList.add("fresh");
    this.body.prepend(...elements);
  }

  isNewer(task) {
    const [first] = this.rows.values();
    return !first || task.created_at >= first.task.created_at;
  }

  // isRead reports whether the person is among the rows: with the pointer, the focus, or further
  // down the page.
  isRead() {
    return scrollY > 60 || this.table.matches(":hover") || this.table.contains(document.activeElement)
      || document.getSelection()?.type === "Range";
  }
}

const changed = (a, b) => a.updated_at !== b.updated_at || a.status !== b.status
  || a.completed_steps !== b.completed_steps ||
  a.total_steps !== b.total_steps || a.in_progress_steps !== b.in_progress_steps || a.failed_steps !== b.failed_steps;

// progress makes the bar of a task's steps, with the numbers beside it.
function progress(t) {
  const part = (n) => (t.total_steps ? (100 * n) / t.total_steps : 0);
  const parts = [["good", t.completed_steps], ["bad", t.failed_steps], ["run", t.in_progress_steps]];
  let x = 0;
  const bars = parts.map(([tone, n]) => {
    const bar = h("rect", { class: tone, x, width: part(n), height: 6 });
    x += part(n);
    return bar;
  });
  return [h("svg.bars", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("rect.base", { width: 100, height: 6 }), bars),
      h("span.num", `${number(t.completed_steps)} / ${number(t.total_steps)}`)];
}
