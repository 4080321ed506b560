// The page of a task: why it is stuck and what would help, its graph, timeline, steps, events
// and data. Events keep it current.

import * as api from "./api.js";
import { againFrom, cancelTask, causes, stepButtons } from "./actions.js";
import { Graph } from "./graph.js";
import { TaskModel, exact, finished, span } from "./model.js";
import { Timeline } from "./timeline.js";
import { ago, allowed, button, copyButton, ended, h, link, look, number, plural, problem, say, state, tabs, templatePath, toast, when } from "./ui.js";
import { jsonTree } from "./values.js";

const CHUNK = 200; // rows of a list that are shown at a time
const WIDE = 1000; // of a graph that takes the whole width, so that it can be read
const PAUSE = 80; // milliseconds in which events are collected before they are shown

export async function show(root, context) {
  await new TaskPage(root, context).open();
}

class TaskPage {
  constructor(root, { params, query, go, signal, title, keys, remember }) {
    Object.assign(this, { root, go, signal, title, remember, queue: [], id: params.task_uuid, path: "/v1/tasks/" + params.task_uuid });
    this.phone = matchMedia("(max-width: 46rem)");
    this.phone.addEventListener("change", () => this.graph && this.build(), { signal });
    this.wanted = { step: query.get("step"), tab: query.get("tab") };
    keys({ s: ["Steps", () => this.tabs.show("Steps")], t: ["Timeline", () => this.tabs.show("Timeline")],
      e: ["Events", () => this.tabs.show("Events")], f: ["Fit the graph", () => this.graph.fit()] });
  }

  // open loads the task once its events are followed, so that none is missed.
  async open() {
    await new Promise((done) => {
      if (document.hidden) done();
      const stop = api.events({ task_uuid: this.id }, (e) => this.event(e), (now) => {
        done();
        if (this.model && (/gap|open/.test(now) || (now === "poll" && !ended(this.model.task.status)))) this.reload();
      });
      this.signal.addEventListener("abort", () => { stop(); done(); });
    });
    if (this.signal.aborted) return;
    await this.load();
    if (this.signal.aborted) return;
    this.build();
    this.tick = setInterval(() => this.beat(), 500);
    this.signal.addEventListener("abort", () => this.close());
  }

  close() {
    clearInterval(this.tick);
    this.graph.destroy();
    this.timeline?.destroy();
  }

  async load() {
    const read = (rest) => this.read(rest);
    const [task, summary, { transitions }, why] = await Promise.all([read(""), read("/summary"), read("/transitions"), read("/explain")]);
    this.dlq = summary.dlq;
    this.model = new TaskModel(task, summary.template.steps, transitions);
    this.explain(why);
  }

  // read reads something of the task; if the service is too busy, it asks again.
  async read(rest, tries = 5) {
    try {
      return await api.get(this.path + rest, { signal: this.signal });
    } catch (e) {
      if (tries === 0 || this.signal.aborted || (e.status !== 503 && e.status !== 429)) throw e;
      await new Promise((done) => { setTimeout(done, 500); });
      return this.read(rest, tries - 1);
    }
  }

  async reload() {
    try {
      await this.load();
    } catch (e) {
      if (!this.signal.aborted && e.status !== 0) this.root.prepend(problem(e));
      return;
    }
    if (this.timeline) this.timeline.model = this.model;
    this.redraw();
    this.flush();
  }

  explain(answer) {
    this.why = answer;
    this.model.explain(answer);
  }

  // Events.

  event(e) {
    this.queue.push(e);
    if (this.graph) this.flushing ??= setTimeout(() => this.flush(), PAUSE);
  }

  // flush shows the events that have come.
  flush() {
    this.flushing = undefined;
    if (this.signal.aborted) return;
    const changed = new Set(), events = this.queue.splice(0);
    let grown = false, known = true;
    for (const e of events) {
      const what = this.model.apply(e);
      if (!what) continue;
      known = false;
      if (what.step) changed.add(what.step);
      grown ||= what.grown || what.task || finished(what.step?.state);
    }
    if (known) return;
    if (this.model.task.status === "cancelled") return this.reload(); // for the reason, which is not in the event
    if (grown && this.shape() !== this.drawn) this.redraw();
    else this.patch(changed);
    this.refresh();
  }

  // shape identifies the steps that exist and the fate of those that do not.
  shape() {
    return this.model.steps.size + this.model.ghosts().map((g) => g.name + g.skipped).join();
  }

  // refresh asks why the task is not finished, at most once at a time and not too often.
  async refresh() {
    if (this.asking) return void (this.again = true);
    this.asking = true;
    const began = performance.now();
    try {
      await api.readClock();
      this.explain(await api.get(this.path + "/explain", { signal: this.signal }));
    } catch (e) {
      if (this.signal.aborted) return;
    }
    this.showWhy();
    this.beat();
    setTimeout(() => {
      this.asking = false;
      if (this.again && !this.signal.aborted) this.refresh();
      this.again = false;
    }, Math.max(250, 3 * (performance.now() - began)));
  }

  // beat shows how time passes for the steps that run or wait for a retry.
  beat() {
    if (document.hidden) return;
    const moving = [];
    for (const s of this.model.steps.values()) {
      if (["in_progress", "waiting_for_retry", "enqueued"].includes(s.state)) moving.push(s);
      if (moving.length > 200) break;
    }
    for (const s of moving) {
      this.graph.update(this.model.node(s));
      this.steps?.update(s);
    }
    if (moving.length || !ended(this.model.task.status)) this.timeline?.draw();
  }

  // The page.

  build() {
    const { task } = this.model, narrow = (this.narrow = this.phone.matches);
    this.graph?.destroy();
    this.timeline?.destroy();
    this.timeline = this.steps = this.events = this.results = this.whyShown = undefined;
    this.title(`${task.namespace}/${task.name}`);
    this.head = h("header.task-head");
    this.cause = h("section.explain.card", { "aria-label": "Why the task is where it is" });
    const picture = h("div");
    this.graph = new Graph(picture, { label: "Graph of the steps. Arrow keys follow the edges, Enter shows the step.",
      onSelect: (id, members) => this.choose(members ? members[0].id : id), onOpen: (id) => { this.choose(id); this.aside.focus(); } });
    this.aside = h("aside.task-aside", { tabindex: "-1", "aria-label": "Details" });
    this.tabs = this.makeTabs();
    const graph = h("section.picture", { "aria-label": "Graph" }, picture);
    const main = h("div.task-main", narrow ? [this.tabs, this.aside, graph] : this.tabs);
    this.body = h("div.task-body", narrow ? main : [graph, main, this.aside]);
    this.root.replaceChildren(this.head, this.cause, this.body);
    const start = this.model.steps.get(this.chosen) ?? (this.wanted.step && this.model.byName(this.wanted.step));
    this.redraw();
    if (start) this.choose(start.id);
    this.flush();
  }

  makeTabs() {
    const choose = (id) => this.choose(id);
    const parts = {
      Timeline: () => {
        const box = h("div");
        this.timeline = new Timeline(box, this.model, choose);
        return box;
      },
      Steps: () => (this.steps = new StepList(this, choose)).root,
      Events: () => (this.events = new EventList(this, choose)).root,
      Data: () => this.data(),
    };
    const order = this.narrow ? ["Steps", "Timeline", "Events", "Data"] : Object.keys(parts);
    const first = order.includes(this.wanted.tab) ? this.wanted.tab : order[0];
    return tabs("Views of the task", Object.fromEntries(order.map((n) => [n, parts[n]])), first, (name) => {
      this.tab = name;
      if (this.graph) this.keepAddress();
      this.timeline?.draw();
      this.events?.draw();
    });
  }

  keepAddress() {
    const step = this.model.steps.get(this.chosen)?.name;
    const first = this.narrow ? "Steps" : "Timeline";
    this.remember(new URLSearchParams({ ...(this.tab && this.tab !== first && { tab: this.tab }), ...(step && { step }) }));
  }

  redraw() {
    const { nodes, edges } = this.model.graph();
    this.drawn = this.shape();
    this.graph.set(nodes, edges);
    this.body.classList.toggle("wide", this.graph.shape.width > WIDE);
    this.steps?.draw();
    this.showRest();
  }

  // patch shows changed steps and leaves the others alone.
  patch(changed) {
    for (const step of changed) {
      this.graph.update(this.model.node(step));
      this.steps?.update(step);
    }
    this.showRest(changed);
  }

  showRest(changed) {
    this.showHead();
    this.showWhy();
    this.timeline?.draw();
    this.events?.draw();
    this.steps?.count();
    const chosen = this.model.steps.get(this.chosen);
    if (!changed || changed.has(chosen)) this.showStep();
    if (changed && this.tab === "Data" && ended(this.model.task.status)) this.results?.();
  }

  showHead() {
    const { task } = this.model, [done, all] = this.model.progress(), over = ended(task.status);
    if (task.status !== this.said && this.said) say(`The task is now ${look(task.status).word}`);
    this.said = task.status;
    const took = task.completed_at && span(exact(task.completed_at) - this.model.created);
    this.head.replaceChildren(
      h("div.row", h("h1", h("span.soft", task.namespace + "/"), task.name), state(task.status),
        h("span.spread"), link("/start?from=" + task.task_uuid, "Start again …", { class: "button quiet small" }),
        !over && allowed("tasks:cancel", "Cancel the task …", () => cancelTask(task, all - this.finishedSteps()), "quiet small")),
      h("p.facts.soft", link("/templates/" + templatePath(task), "version " + task.version), h("span", "created ", ago(task.created_at)),
        took && h("span", "took ", took), h("span", `${number(done)} of ${plural(all, "step")} done`),
        this.dlq.in_dlq && link("/dlq", "in the dead letter queue")),
      this.progressBar());
  }

  finishedSteps() {
    let n = 0;
    for (const s of this.model.steps.values()) n += finished(s.state);
    return n;
  }

  progressBar() {
    const counts = new Map();
    for (const s of this.model.steps.values()) {
      const { tone } = look(s.state);
      counts.set(tone, (counts.get(tone) ?? 0) + 1);
    }
    return h("div.progress", { "aria-hidden": "true" }, ["good", "run", "wait", "bad", "off", "idle"].filter((tone) => counts.has(tone)).map((tone) => {
      const part = h("span", { class: tone });
      part.style.flexGrow = counts.get(tone);
      return part;
    }));
  }

  // Why, and what would help.

  showWhy() {
    const { task } = this.model, helpful = this.why.steps.filter((e) => e.actions.length && this.model.steps.has(e.step_uuid));
    const listed = causes(helpful).slice(0, 3), more = helpful.length - listed.length;
    const stale = this.why.status !== task.status; // the answer that fits is on its way
    const key = JSON.stringify([this.why, task.status, listed.map((e) => e.message)]);
    if (stale || key === this.whyShown) return;
    this.whyShown = key;
    const calm = !listed.length, like = calm || look(task.status).tone === "bad" ? task.status : "enqueued";
    this.cause.className = `explain card ${look(like).tone}${calm ? " calm" : ""}`;
    this.cause.replaceChildren(h("p.lead", sign(like), h("span", sentence(this.why.message))),
      ...listed.map((e) => this.helpFor(e, listed.length > 1 || task.status === "blocked_by_failures")),
      ...(this.why.undelivered_events ?? []).map((u) => this.undelivered(u)),
      more > 0 ? h("p.soft", `${plural(more, "more step")} can be acted on: choose ${more > 1 ? "one" : "it"} in the graph or the list.`) : "");
  }

  helpFor(e, named) {
    const step = this.model.steps.get(e.step_uuid);
    return h("div.help-row", named && h("p", button(e.name, () => this.choose(step.id, true), "as-link"), ": ", sentence(e.message, false)),
      h("div.row", stepButtons(e.actions, this.model.task, step, this.model.children(step))));
  }

  undelivered(u) {
    const send = async () => {
      try {
        const { problem: why } = await api.post(`/v1/events/deliveries/${encodeURIComponent(u.delivery)}/resend`);
        toast(why ? `Not delivered: ${why}` : "The event is delivered.", why ? "bad" : "good");
        this.refresh();
      } catch (e) {
        this.cause.append(problem(e));
      }
    };
    return h("div.help-row", h("p", `Event ${u.type} of ${u.step_name} did not reach ${u.subscriber}` + (u.problem ? `: ${u.problem}` : "")),
      h("div.row", allowed("dlq:update", "Send again", send, "quiet small")));
  }

  // One step.

  // choose shows a step everywhere.
  choose(id, focus = false) {
    if (!this.model.steps.has(id) && !id.startsWith("ghost")) return;
    this.chosen = id;
    this.graph.select(id, true);
    this.timeline?.select(id);
    this.steps?.select(id);
    this.events?.draw();
    this.keepAddress();
    this.showStep();
    if (this.narrow || focus) this.aside.scrollIntoView({ block: "nearest" });
  }

  showStep() {
    const step = this.model.steps.get(this.chosen);
    if (!step) {
      const ghost = this.chosen && this.model.ghosts().find((g) => "ghost " + g.name === this.chosen);
      return this.aside.replaceChildren(...[ghost && ghostCard(ghost), this.facts()].filter(Boolean));
    }
    const e = step.because, result = h("div.result");
    const close = button("×", () => { this.chosen = undefined; this.keepAddress(); this.showStep(); }, "quiet small", { "aria-label": "Close the step" });
    const list = (label, steps) => steps.length > 0 && [h("dt", label), h("dd", steps.slice(0, 8).map((s, i) =>
      [i > 0 && ", ", button(s.name, () => this.choose(s.id), "as-link")]), steps.length > 8 && ` and ${steps.length - 8} more`)];
    const card = h("section.card.step-card", { "aria-label": `Step ${step.name}` },
      h("div.row", h("h2", step.name), state(step.state), close),
      e && h("p", sentence(e.message)),
      e?.actions.length > 0 && h("div.row", stepButtons(e.actions, this.model.task, step, this.model.children(step))),
      h("dl.pairs", pair("Attempts", `${step.attempts} of ${step.max}`), pair("Ran", span(this.model.took(step))),
        pair("Handler", h("code", step.declared?.handler ?? "")), kindPair(step), list("After", this.model.parents(step)), list("Before", this.model.children(step))),
      h("div", !api.service.far && allowed("tasks:create", "Again from here …", () => this.repeat(step), "quiet small")), result);
    this.aside.replaceChildren(card, this.facts());
    this.showResult(step, result);
  }

  async repeat(step) {
    const made = await againFrom(this.model.task, step);
    if (made) this.go("/tasks/" + made.task_uuid);
  }

  async showResult(step, place) {
    const path = `${this.path}/workflow_steps/${step.id}`, old = this.result?.id === step.id && this.result;
    if (old) place.replaceChildren(...old.parts);
    if (step.attempts === 0 && !finished(step.state) && step.state !== "error") return;
    try {
      const [view, audit] = await Promise.all([api.get(path, { signal: this.signal }), api.get(path + "/audit", { signal: this.signal })]);
      this.result = { id: step.id, parts: [...outcome(view), auditList(audit)] };
    } catch (e) {
      if (this.signal.aborted) return;
      const hidden = e.status === 403;
      this.result = { id: step.id, parts: [hidden ? redacted("The result and the audit are hidden from you.", "steps:read") : problem(e)] };
    }
    if (this.chosen === step.id) place.replaceChildren(...this.result.parts);
  }

  // facts makes the card about the task.
  facts() {
    const { task } = this.model, id = (value) => value && h("span.id", h("code", { title: value }, value.length > 24 ? `${value.slice(0, 8)}…${value.slice(-12)}` : value),
      copyButton(() => value, "as-copy"));
    return h("section.card", { "aria-label": "About the task" }, h("h2", "Task"), h("dl.pairs",
      pair("Id", id(task.task_uuid)), pair("Created", when(task.created_at)), pair("Ended", task.completed_at && when(task.completed_at)), pair("Cancelled", this.model.history.find((t) => t.reason)?.reason),
      pair("By", `${task.initiator} from ${task.source_system}`), pair("Reason", task.reason), pair("Again of", task.again_of && link("/tasks/" + task.again_of.task_uuid, task.again_of.task_uuid)), pair("Priority", task.priority || ""),
      pair("Tags", task.tags.length > 0 && h("span.chips", task.tags.map((t) => h("span.tag", t)))),
      pair("Correlation", id(task.correlation_id)), pair("Parent", id(task.parent_correlation_id))));
  }

  data() {
    const { task } = this.model, results = h("div");
    this.results = async () => {
      const last = [...this.model.steps.values()].filter((s) => !this.model.children(s).length).slice(0, 20);
      const views = await Promise.allSettled(last.map((s) => api.get(`${this.path}/workflow_steps/${s.id}`, { signal: this.signal })));
      if (!this.signal.aborted) results.replaceChildren(...views.map((v, i) => h("div.last", h("h3", last[i].name),
        v.status === "fulfilled" ? outcome(v.value, "Not finished yet.") : v.reason.status === 403
          ? redacted("The result is hidden from you.", "steps:read") : problem(v.reason))));
    };
    this.results();
    return h("div.data", h("section", h("h2", "Context"), task.context_redacted
      ? redacted("The context is hidden from you.", "tasks:context_read") : jsonTree(task.context, { label: "Context" })),
    h("section", h("h2", "Results of the last steps"), results));
  }
}

const pair = (label, value) => value && [h("dt", label), h("dd", value)];

const kinds = { decision: "Decides which steps are created", batchable: "Splits the work into batches",
  batch_worker: "One batch of the work", deferred_convergence: "Joins the branches that exist" };

const kindPair = (step) => pair("Kind", kinds[step.declared?.step_type]);

const redacted = (text, permission) => h("p.soft.redacted", text + " Showing it needs ", h("code", permission), ".");

const sign = (name) => h("svg", { viewBox: "0 0 16 16", width: 20, height: 20, class: "sign", "aria-hidden": "true" }, h("path", { d: look(name).sign }));

const sentence = (text, capital = true) => (capital ? text.charAt(0).toUpperCase() + text.slice(1) : text) + ".";

function ghostCard(ghost) {
  return h("section.card.step-card", h("h2", ghost.name), h("p", ghost.skipped
    ? "This step was not created: the decisions before it did not choose it." : "This step does not exist yet: a decision before it is open."),
  h("dl.pairs", pair("Handler", h("code", ghost.handler)), pair("After", ghost.dependencies.join(", "))));
}

function outcome(view, none = "") {
  const r = view.results;
  if (view.results_redacted) return [redacted("The result is hidden from you.", "steps:read")];
  if (!r) return none ? [h("p.soft", none)] : [];
  const error = r.error && h("div.problem", h("strong", r.error.error_type), h("p", r.error.message),
    h("p.soft", [r.error.status_code && `status ${r.error.status_code}`, r.error.retryable ? "may be retried" : "permanent"].filter(Boolean).join(" · ")));
  const extra = r.error && Object.keys(r.error.context ?? {}).length > 0 && jsonTree(r.error.context, { label: "Context of the error" });
  return [error, extra, r.success && h("h3", "Result"), r.success && jsonTree(r.result, { label: "Result" })].filter(Boolean);
}

const AUDITED = { enqueued_for_orchestration: "Attempt succeeded", enqueued_as_error_for_orchestration: "Attempt failed" };
const DONE = { reset_for_retry: "Reset", retry_now: "Retried", complete_manually: "Completed", resolve_manually: "Resolved", fail: "Failed", cancel: "Cancelled", copied: "Copied" };

// auditList shows the attempts at a step and what people did, the newest first.
function auditList(audit) {
  if (!audit.length) return "";
  const line = (a) => {
    const about = [a.copied_from && "from task " + a.copied_from.task_uuid, a.acted_by && `by ${a.acted_by}: ${a.action_reason}`, a.subject && "as " + a.subject, a.result?.error?.error_type,
      !a.action && a.result?.metadata.worker_id].filter(Boolean);
    return h("li", h("b", { class: a.success || a.action ? "good" : "bad" }, DONE[a.action] ?? AUDITED[a.to_state] ?? look(a.to_state).word),
      " ", ago(a.recorded_at), h("span.soft", about.map((t) => " · " + t)));
  };
  return h("details.audit", { open: true }, h("summary", `Audit: ${plural(audit.length, "entry", "entries")}`), h("ol", audit.slice(0, 50).map(line)));
}

// StepList is the list of steps: what the graph shows, as a table.
class StepList {
  constructor(page, choose) {
    Object.assign(this, { page, choose, shown: CHUNK, text: "", only: "", rows: new Map() });
    this.body = h("tbody");
    this.chips = h("div.chips");
    this.foot = h("div.row.center");
    const search = h("input", { type: "search", placeholder: "Find a step", "aria-label": "Find a step", "data-search": true,
      oninput: () => { this.text = search.value.toLowerCase(); this.draw(); } });
    const heads = ["State", "Step", "Attempts", "Time", "After"].map((c) => h("th", { scope: "col" }, c));
    this.root = h("div.step-list", h("div.row.filter", search, this.chips),
      h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Steps" },
        h("table", h("caption.hidden", "Steps of the task, in the order of their creation"), h("thead", h("tr", heads)), this.body)), this.foot);
    this.draw();
  }

  // count shows how many steps are in each state, as buttons that choose these.
  count() {
    const words = new Map();
    for (const s of this.page.model.steps.values()) {
      const { word, tone } = look(s.state);
      words.set(word, { tone, n: (words.get(word)?.n ?? 0) + 1 });
    }
    const key = JSON.stringify([...words, this.only]);
    if (key === this.counted) return;
    this.counted = key;
    const choose = (word) => { this.only = this.only === word ? "" : word; this.draw(); };
    this.chips.replaceChildren(...(words.size > 1 || this.only ? [...words].map(([word, { tone, n }]) =>
      button([word, " ", h("b", number(n))], () => choose(word), "chip " + tone, { "aria-pressed": String(this.only === word) })) : []));
  }

  draw() {
    const { model } = this.page, all = [...model.steps.values()];
    this.count();
    const fits = all.filter((s) => s.name.toLowerCase().includes(this.text) && (!this.only || look(s.state).word === this.only));
    this.rows = new Map(fits.slice(0, this.shown).map((s) => [s.id, this.row(s)]));
    const ghosts = this.text || this.only || fits.length > this.shown ? [] : model.ghosts().map((g) => h("tr.soft",
      h("td", g.skipped ? "Not taken" : "Not decided yet"), h("td", g.name), h("td.tries"), h("td"), h("td.after", g.dependencies.join(", "))));
    this.body.replaceChildren(...this.rows.values(), ...ghosts);
    const left = fits.length - this.shown;
    this.foot.replaceChildren(left > 0 ? button(`Show ${number(Math.min(left, CHUNK))} of ${number(left)} more`, () => { this.shown += CHUNK; this.draw(); }, "quiet small") : "");
  }

  row(s) {
    const { model } = this.page, parents = model.parents(s), after = parents.slice(0, 3).map((p) => p.name).join(", ");
    const name = button(s.name, () => this.choose(s.id), "as-link", { "aria-pressed": String(s.id === this.page.chosen) });
    return h("tr", { class: s.id === this.page.chosen ? "chosen" : "" }, h("td", state(s.state)), h("td", name),
      h("td.tries", s.attempts ? `${s.attempts}/${s.max}` : "–"), h("td.took", this.time(s)),
      h("td.after.soft", after + (parents.length > 3 ? ` and ${parents.length - 3} more` : "")));
  }

  time(s) {
    if (s.state === "waiting_for_retry") return "retry " + this.page.model.countdown(s);
    return s.spans.some((x) => x.kind === "run") ? span(this.page.model.took(s)) : "–";
  }

  // update shows one changed step. A row that the focus is in keeps it.
  update(s) {
    const old = this.rows.get(s.id);
    if (!old) return;
    const fresh = this.row(s), focused = old.contains(document.activeElement);
    this.rows.set(s.id, fresh);
    old.replaceWith(fresh);
    if (focused) fresh.querySelector("button").focus();
  }

  select(id) {
    const s = this.page.model.steps.get(id), before = this.page.model.steps.get(this.marked);
    this.marked = id;
    for (const step of [before, s]) if (step) this.update(step);
  }
}

// EventList shows the transitions, the newest first.
class EventList {
  constructor(page, choose) {
    Object.assign(this, { page, choose, shown: CHUNK, body: h("ol.events"), foot: h("div.row.center") });
    this.one = h("input", { type: "checkbox", onchange: () => this.draw(true) });
    this.which = h("label.which", this.one, " Only the chosen step");
    this.root = h("div", this.which, this.body, this.foot);
    this.draw(true);
  }

  draw() {
    const { model, chosen, tab } = this.page;
    if (tab && tab !== "Events") return;
    this.which.hidden = !chosen;
    const all = this.one.checked && chosen ? model.history.filter((t) => t.step_uuid === chosen) : model.history;
    const key = `${all.length} ${all.at(-1)?.sequence} ${this.shown}`;
    if (key === this.key) return;
    this.key = key;
    this.body.replaceChildren(...all.slice(-this.shown).reverse().map((t) => this.line(t)));
    this.foot.replaceChildren(all.length > this.shown ? button(`Show ${CHUNK} more`, () => { this.shown += CHUNK; this.draw(); }, "quiet small") : "");
  }

  line(t) {
    const at = exact(t.recorded_at) - this.page.model.created;
    return h("li", h("span.at", { title: t.recorded_at }, "+" + span(at)),
      t.step_uuid ? button(t.step_name, () => this.choose(t.step_uuid), "as-link") : h("b", "task"),
      h("span.soft", t.from_state ? `${t.from_state} →` : "created as"), state(t.to_state), t.attempt > 0 && h("span.soft", `attempt ${t.attempt}`), t.reason && h("span.soft", t.reason));
  }
}
