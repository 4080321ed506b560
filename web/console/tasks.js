// The list of tasks: filters, counts by state, what each task is about and why it fails, and the first visit.

import * as api from "./api.js";
import { Selection } from "./bulk.js";
import { lookUp } from "./find.js";
import { List } from "./list.js";
import { withoutType, headline } from "./trace.js";
import {
  ago,
  allowed,
  bars,
  button,
  chips,
  clip,
  duration,
  empty,
  ended,
  field,
  fill,
  h,
  instant,
  link,
  number,
  pairs,
  problem,
  select,
  shortId,
  state,
  toast,
  when,
} from "./ui.js";

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

const periods = [
  ["", "Any time"],
  ["15m", "Last 15 minutes"],
  ["1h", "Last hour"],
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
];
const units = { m: 60_000, h: 3_600_000, d: 86_400_000 };

const orders = [
  ["", "Newest first"],
  ["created_at", "Oldest first"],
  ["-updated_at", "Latest change first"],
  ["-completed_at", "Latest end first"],
  ["-priority", "Highest priority first"],
];

export async function show(root, context) {
  await new Tasks(root, context).begin();
}

class Tasks {
  signal;
  root;
  go;
  query;
  remember;
  templates;
  first;
  constructor(root, context) {
    const { query, remember, signal, go, path } = context;
    Object.assign(this, { root, query: new URLSearchParams(query), remember, signal, go, first: path === "/" });
    this.list = new List(context, {
      label: "Tasks",
      kind: "tasks",
      noun: ["task"],
      perPage: 50,
      key: (t) => t.task_uuid,
      read: (count) => this.read(count),
      row: (t) => this.row(t),
      none: () => this.none(),
      columns: () => [
        [this.picked.head(), "pick"],
        "State",
        ["Task", "what"],
        ["Steps", "steps"],
        ["Created", "created"],
        ["Took", "took"],
        ["Tags", "taglist"],
      ],
      concerns: (e) => [e.namespace, ""].includes(this.query.get("namespace") ?? ""),
      shown: (found) => {
        if (found.items.length) this.looked = this.hits = undefined;
        this.picked.draw();
        this.drawChips(found.counts);
      },
    });
    this.picked = new Selection({
      noun: ["task"],
      offers: ["reset", "retry_now", "resolve", "cancel"],
      total: () => this.list.known,
      filter: (name, ids) => (ids ? { task_uuid: ids } : this.filter()),
      changed: () => this.list.load(),
    });
  }

  async begin() {
    this.chips = h("div");
    try {
      await Promise.all([this.list.begin(), this.readTemplates()]);
    } catch (error) {
      if (error.status !== 400) throw error;
      return fill(
        this.root,
        h("h1", "Tasks"),
        problem(error),
        h(
          "div.row",
          button("Clear the filter", () => this.go("/tasks"), "primary"),
        ),
      );
    }
    const group =
      this.query.get("failure_group") &&
      h(
        "div.row.notice",
        "Only tasks that fail now for one cause.",
        link("/failures", "Failures"),
        link("/tasks", "All tasks"),
      );
    fill(
      this.root,
      h("div.row", h("h1", "Tasks"), this.list.total),
      this.filters(),
      group,
      this.chips,
      this.list.element,
      this.picked.bar,
    );
    if (!this.list.items.length) this.list.redraw(); // now that the templates are known
  }

  filters() {
    const q = (name) => this.query.get(name) || "";
    const text = h("input", {
      type: "search",
      value: q("q"),
      "data-search": true,
      autocomplete: "off",
      placeholder: "A name, or an id, a value, an error",
      onkeydown: (e) => e.key === "Enter" && this.openOnly(text),
      oninput: () => {
        clearTimeout(this.typing);
        this.typing = setTimeout(() => this.signal.aborted || this.set("q", text.value.trim()), 200);
      },
    });
    const tag = h("input", {
      value: this.query.getAll("tag").join(", "),
      placeholder: "Tags: eu, urgent",
      autocomplete: "off",
    });
    tag.addEventListener("change", () =>
      this.set(
        "tag",
        tag.value
          .split(",")
          .map((t) => t.trim())
          .filter(Boolean),
      ),
    );
    this.namespace = select([], "", (v) => {
      this.query.delete("name");
      this.set("namespace", v);
      this.offer();
    });
    this.name = select([], "", (v) => this.set("name", v));
    this.offer();
    const sort = select(orders.some(([v]) => v === q("sort")) ? orders : [...orders, q("sort")], q("sort"), (v) =>
      this.set("sort", v),
    );
    const more = button("Filters", () => more.setAttribute("aria-expanded", box.classList.toggle("open")), "quiet", {
      "aria-expanded": "false",
    });
    const box = h(
      "div.filters",
      field("Text", text),
      more,
      field("Namespace", this.namespace),
      field("Template", this.name),
      field("Tags", tag),
      field("Created", this.period()),
      field("Order", sort),
    );
    return box;
  }

  // period makes the choice of a time: a recent period, or what a link gives as created_after and
  // created_before.
  period() {
    const options = [...periods],
      bounds = ["created_after", "created_before"].map((b) => this.query.get(b));
    if (bounds.some(Boolean)) {
      const words = ["after ", "before "];
      options.push([
        "given",
        bounds
          .map((b, i) => b && words[i] + when(b))
          .filter(Boolean)
          .join(", "),
      ]);
    }
    return select(options, bounds.some(Boolean) ? "given" : this.query.get("since") || "", async (value) => {
      for (const bound of ["created_after", "created_before"]) this.query.delete(bound);
      await this.set("since", value);
      if (bounds.some(Boolean)) this.go("/tasks?" + this.query, { replace: true }); // without what the link gave
    });
  }

  async readTemplates() {
    const found = await api.getOptional("/v1/templates", { signal: this.signal }).catch((error) => {
      if (!this.signal.aborted && error.status !== 401) toast(`The templates cannot be read: ${error.message}`, "bad");
    });
    this.templates = found?.templates ?? []; // without permission, the lists offer what the address names
  }

  // offer fills the lists of namespaces, and of the templates in the one that is chosen.
  offer() {
    const at = this.query.get("namespace"),
      of = this.templates.filter((t) => !at || t.namespace === at);
    for (const [list, all, values, chosen] of [
      [this.namespace, "All namespaces", this.templates.map((t) => t.namespace), at],
      [this.name, "All templates", of.map((t) => t.name), this.query.get("name")],
    ]) {
      fill(
        list,
        [["", all], ...[...new Set([...values, chosen ?? []].flat())].sort().map((v) => [v, v])].map(([value, text]) =>
          h("option", { key: value, value }, text),
        ),
      );
      list.value = chosen ?? "";
    }
  }

  // set changes a member of the filter, the address and the list.
  set(name, value) {
    this.query.delete(name);
    for (const v of [value].flat()) if (v) this.query.append(name, v);
    this.remember(this.query);
    this.picked.clear();
    return this.list.restart();
  }

  // openOnly opens the only task that is left, or the only thing that was found.
  async openOnly(text) {
    clearTimeout(this.typing);
    await this.set("q", text.value.trim());
    await this.hits?.ready;
    const links = this.list.place.querySelectorAll(".what a, .hits a");
    if (links.length === 1) links[0].click();
  }

  // asked returns the parameters that select tasks.
  /** @returns {Record<string, any>} */
  asked() {
    const q = Object.fromEntries(
      ["q", "namespace", "name", "status", "failure_group", "created_after", "created_before"].map((n) => [
        n,
        this.query.get(n),
      ]),
    );
    const since = this.query.get("since"),
      [, n, unit] = /^(\d{1,6})([mhd])$/.exec(since) ?? [];
    if (since && !n)
      throw new api.ApiError(400, {
        message: `since must be a number of minutes, hours or days, such as 15m, not "${since}"`,
      });
    if (n) q.created_after = new Date(api.now() - Number(n) * units[unit]).toISOString();
    return { ...q, tag: this.query.getAll("tag") };
  }

  // filter returns the same for an action on all that match. An empty one would be refused.
  filter() {
    const { status, tag, ...rest } = this.asked();
    const f = {
      ...Object.fromEntries(Object.entries(rest).filter(([, v]) => v)),
      ...(status && { status: status.split(",") }),
      ...(tag.length && { tag }),
    };
    return Object.keys(f).length ? f : { created_before: new Date(api.now() + 1000).toISOString() };
  }

  // read reads so many tasks, in pages, with the counts by state.
  async read(count) {
    const items = [];
    let first,
      cursor = "";
    do {
      const page = await api.get(
        "/v1/tasks" +
          api.query({
            ...this.asked(),
            sort: this.query.get("sort"),
            per_page: Math.min(count - items.length, 100),
            counts: cursor ? "" : "true",
            about: "true",
          }) +
          "&cursor=" +
          encodeURIComponent(cursor),
        { signal: this.signal },
      );
      first ??= page.pagination;
      items.push(...page.tasks);
      cursor = page.pagination.next_cursor;
    } while (cursor && items.length < count);
    return { items, more: cursor, total: first.total_count, counts: first.counts };
  }

  none() {
    const q = this.query.get("q");
    if (q && q !== this.looked) this.hits = lookUp(q);
    this.looked = q;
    if (this.query.size)
      return [
        empty(
          "No task matches",
          "No task has all that the filter asks for.",
          button("Clear the filter", () => this.go("/tasks"), "primary"),
        ),
        q && this.hits,
      ];
    return this.first
      ? this.welcome()
      : empty(
          "No task yet",
          "Start one here or over the API, and it appears at once.",
          allowed("tasks:create", "Start a task", () => this.go("/start"), "primary"),
        );
  }

  // welcome says on the first visit what this is, and runs a demo workflow on request.
  welcome() {
    const demo = { namespace: "demo", name: "slow" }; // its steps take two seconds each
    const run = async () => {
      const made = await api
        .post("/v1/tasks", { ...demo, initiator: "console", source_system: "console", reason: "a first look" })
        .catch((error) => toast(error.message, "bad"));
      if (made) this.go("/tasks/" + made.task_uuid);
    };
    return h(
      "section.welcome",
      h("h1", "Welcome to Stepwell"),
      h(
        "p.lead",
        "Stepwell runs workflows: a template names the steps, a task is one run of it. Steps run in order, ",
        "in parallel where they can, and again when they fail. Here you watch tasks live, see why one waits, and " +
          "unblock it.",
      ),
      h(
        "div.row",
        this.templates?.some((t) => t.namespace === demo.namespace && t.name === demo.name)
          ? allowed("tasks:create", "Run a demo workflow", run, "primary")
          : allowed("tasks:create", "Start a task", () => this.go("/start"), "primary"),
        link("/templates", "See what can run", { class: "button quiet" }),
      ),
    );
  }

  // drawChips shows the tasks in each group of states, as buttons that switch the group in the filter.
  drawChips(counts) {
    const chosen = (this.query.get("status") || "").split(",").filter(Boolean);
    fill(
      this.chips,
      chips(
        "State",
        groups.map(([label, tone, states]) => {
          const count = states.reduce((sum, s) => sum + (counts[s] || 0), 0),
            on = states.some((s) => chosen.includes(s));
          return [states, [label, " ", h("b", number(count))], `${tone}${count || on ? "" : " none"}`];
        }),
        (states) => states.some((s) => chosen.includes(s)),
        (states) => {
          const others = chosen.filter((s) => !states.includes(s));
          this.set("status", (others.length < chosen.length ? others : [...others, ...states]).join(","));
        },
      ),
    );
  }

  // row has what a task is about, and the error of the step that failed last, for those who may know it.
  row(t) {
    const over = t.completed_at && ended(t.status),
      { failure: f } = t;
    return [
      this.picked.box(t.task_uuid, `${t.name} ${shortId(t.task_uuid)}`),
      state(t.status),
      [
        link("/tasks/" + t.task_uuid, clip(t.name, "b"), {
          "aria-label": `${t.namespace}/${t.name} ${shortId(t.task_uuid)}`,
        }),
        h("span.soft", `${t.namespace} · ${t.version} · `, h("code", shortId(t.task_uuid))),
        pairs(t.about),
        f &&
          h(
            "span.bad-text.clip",
            { title: f.message },
            `${f.step_name} · ${f.error_type}: ${withoutType(headline(f.message ?? ""), f.error_type)}`,
          ),
      ],
      [
        bars(
          [
            ["good", t.completed_steps],
            ["bad", t.failed_steps],
            ["run", t.in_progress_steps],
          ],
          t.total_steps,
        ),
        h("span.num", `${number(t.completed_steps)} / ${number(t.total_steps)}`),
      ],
      ago(t.created_at),
      over && duration(Math.max(instant(t.completed_at) - instant(t.created_at), 0.5)),
      [
        t.tags.slice(0, 3).map((tag) => h("span.tag", tag)),
        t.tags.length > 3 && h("span.soft", ` +${t.tags.length - 3}`),
      ],
    ];
  }
}
