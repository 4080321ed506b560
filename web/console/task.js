// The page of a task: why it is stuck and what would help, its graph, timeline, steps, events
// and data. Events keep it current.

import * as api from "./api.js";
import { cancelTask, causes, stepButtons } from "./actions.js";
import { Graph } from "./graph.js";
import { TaskModel, exact, finished, span } from "./model.js";
import { criticalPath } from "./slow.js";
import { StepCard, ghostCard, outcome, pair, redacted, sentence, signOf } from "./step.js";
import { EventList, StepList } from "./steps.js";
import { Timeline } from "./timeline.js";
import { ago, allowed, button, copyButton, ended, fill, h, link, look, number, plural, problem, say, state, tabs,
  templatePath, toast, when } from "./ui.js";
import { jsonTree } from "./values.js";

const WIDE = 1000; // of a graph that takes the whole width, so that it can be read
const PAUSE = 80; // milliseconds in which events are collected before they are shown
const phone = matchMedia("(max-width: 46rem)");

export async function show(root, context) {
  await new TaskPage(root, context).open();
}

// TaskPage has what is known of the task (model, why, dlq), what the person chose (state: the id of a step and the
// name of a tab), and the parts that show it.
class TaskPage {
  id; signal; path; queue; title; root; wanted; state; remember;
  constructor(root, { params, query, go, signal, title, keys, remember, renew }) {
    Object.assign(this, { root, go, signal, title, remember, queue: [], state: { tab: query.get("tab") },
      wanted: query.get("step"),
      id: params.task_uuid, path: "/v1/tasks/" + params.task_uuid });
    this.flushSoon = api.reader(signal, () => this.flush(), PAUSE);
    this.refresh = api.reader(signal, () => this.askWhy(), 250);
    this.reload = api.reader(signal, () => this.readAgain(), 250);
    renew(() => this.reload());
    keys({ s: ["Steps", () => this.tabs.show("Steps")], t: ["Timeline", () => this.tabs.show("Timeline")],
      e: ["Events", () => this.tabs.show("Events")], f: ["Fit the graph", () => this.graph.fit()] });
  }

  // open shows the task, and follows the events after those that it knows.
  async open() {
    await this.load();
    if (this.signal.aborted) return;
    this.build();
    const stop = api.events({ task_uuid: this.id, after: this.model.seq }, (e) => this.event(e), (now) => {
      if (now === "gap" || (now === "poll" && !ended(this.model.task.status))) this.reload();
      else if (now === "open") this.refresh();
    });
    this.signal.addEventListener("abort", stop);
    const tick = setInterval(() => this.beat(), 500);
    this.signal.addEventListener("abort", () => {
      clearInterval(tick);
      this.graph.destroy();
      this.timeline?.destroy();
    });
  }

  async load() {
    const { path } = this;
    const [task, summary, { transitions }, why] = await Promise.all(["", "/summary", "/transitions",
      "/explain"].map((rest) => this.read(path + rest)));
    this.dlq = summary.dlq;
    this.model = new TaskModel(task, summary.template.steps, transitions);
    this.explain(why);
  }

  // read reads something of the task; if the service is too busy, it asks again.
  async read(path, tries = 5) {
    try {
      return await api.get(path, { signal: this.signal });
    } catch (e) {
      if (tries === 0 || this.signal.aborted || (e.status !== 503 && e.status !== 429)) throw e;
      await new Promise((done) => { setTimeout(done, 500); });
      return this.read(path, tries - 1);
    }
  }

  async readAgain() {
    await this.load();
    if (this.signal.aborted) return;
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
    if (this.graph) this.flushSoon();
  }

  // flush shows the events that have come.
  flush() {
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

  // askWhy asks why the task is not finished.
  async askWhy() {
    await api.readClock();
    this.explain(await this.read(this.path + "/explain"));
    this.showWhy();
    this.showStep();
    this.beat();
  }

  // beat shows how time passes for the steps that run or wait for a retry.
  beat() {
    if (document.hidden) return;
    const moving = [];
    for (const s of this.model.steps.values()) {
      if (["in_progress", "waiting_for_retry", "enqueued"].includes(s.state)) moving.push(s);
      if (moving.length > 200) break;
    }
    for (const s of moving) this.graph.update(this.model.node(s));
    this.steps?.update(...moving);
    if (moving.length || !ended(this.model.task.status)) this.timeline?.draw();
  }

  // The page.

  build() {
    const { task } = this.model;
    this.title(`${task.namespace}/${task.name}`);
    this.head = h("header.task-head");
    this.cause = h("section.explain.card", { "aria-label": "Why the task is where it is" });
    const picture = h("div");
    this.graph = new Graph(picture, { label: "Graph of the steps. Arrow keys follow the edges, Enter shows the step.",
      onSelect: (id, members) => this.choose(members ? members[0].id : id),
        onOpen: (id) => { this.choose(id); this.aside.focus(); } });
    this.about = h("div");
    this.card = new StepCard(this, h("div"));
    this.aside = h("aside.task-aside", { tabindex: "-1", "aria-label": "Details" }, this.card.place, this.about);
    this.tabs = this.makeTabs();
    this.body = h("div.task-body", h("section.picture", { "aria-label": "Graph" }, picture),
      h("div.task-main", this.tabs), this.aside);
    this.root.replaceChildren(this.head, this.cause, this.body);
    this.redraw();
    const start = this.wanted && this.model.byName(this.wanted);
    if (start) this.choose(start.id);
    this.flushSoon();
  }

  makeTabs() {
    const choose = (id) => this.choose(id);
    const parts = {
      Timeline: () => {
        const box = h("div");
        this.timeline = new Timeline(box, this.model, choose);
        this.compareTime();
        return box;
      },
      Steps: () => (this.steps = new StepList(this, choose)).root,
      Events: () => (this.events = new EventList(this, choose)).root,
      Data: () => (this.data = h("div.data")),
    };
    const first = phone.matches ? "Steps" : "Timeline";
    return tabs("Views of the task", parts, parts[this.state.tab] ? this.state.tab : first, (name) => {
      this.state.tab = name === first && !this.state.tab ? null : name;
      if (this.tabs) this.keepAddress();
      this.timeline?.draw();
      this.events?.draw();
      if (name === "Data") this.showData();
    });
  }

  // compareTime shows the median of the template beside this run.
  async compareTime() {
    const { namespace, name, version } = this.model.task;
    const found = await api.getOptional("/v1/analytics/history" + api.query({ hours: 168, namespace, name, version }),
      { signal: this.signal }).catch(() => null);
    const of = found?.templates.find((t) => t.version === version && t.completed_tasks);
    this.timeline.median = of && span(of.p50_duration_seconds * 1000);
    this.timeline.draw();
  }

  keepAddress() {
    const step = this.model.steps.get(this.state.step)?.name, { tab } = this.state;
    this.remember(new URLSearchParams({ ...(tab && { tab }), ...(step && { step }) }));
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
    for (const step of changed) this.graph.update(this.model.node(step));
    this.steps?.update(...changed);
    this.showRest(changed);
  }

  showRest(changed) {
    this.showHead();
    this.showWhy();
    this.timeline?.draw();
    this.events?.draw();
    this.steps?.count();
    this.graph.mark(criticalPath(this.model).map((step) => step.id));
    if (!changed || changed.has(this.model.steps.get(this.state.step))) this.showStep();
    fill(this.about, this.facts());
    if (changed && this.data && ended(this.model.task.status)) this.showData();
  }

  showHead() {
    const { task } = this.model, [done, all] = this.model.progress(), over = ended(task.status);
    if (task.status !== this.said && this.said) say(`The task is now ${look(task.status).word}`);
    this.said = task.status;
    const took = task.completed_at && span(exact(task.completed_at) - this.model.created);
    fill(this.head,
      h("div.row", h("h1.clip", { title: `${task.namespace}/${task.name}` },
        h("span.soft", task.namespace + "/"), task.name), state(task.status),
        h("span.spread"), api.can("tasks:create")
          && link("/start?from=" + task.task_uuid, "Start again …", { class: "button quiet small" }),
        !over && allowed("tasks:cancel", "Cancel the task …", () => cancelTask(task, all - this.finishedSteps()),
          "quiet small")),
      h("p.facts.soft", link("/templates/" + templatePath(task), "version " + task.version),
        h("span", "created ", ago(task.created_at)),
        took && h("span", "took ", took), h("span", `${number(done)} of ${plural(all, "step")} done`),
        this.dlq.in_dlq && link("/dlq", "in the dead letter queue")),
      this.progressBar());
  }

  finishedSteps() {
    let n = 0;
    for (const s of this.model.steps.values()) n += Number(finished(s.state));
    return n;
  }

  progressBar() {
    const counts = new Map();
    for (const s of this.model.steps.values()) {
      const { tone } = look(s.state);
      counts.set(tone, (counts.get(tone) ?? 0) + 1);
    }
    const shares = ["good", "run", "wait", "bad", "off", "idle"].filter((tone) => counts.has(tone));
    const bar = h("div.progress", { "aria-hidden": "true", key: [...counts].join() },
      shares.map((tone) => h("span", { class: tone })));
    shares.forEach((tone, i) => { bar.children[i].style.flexGrow = counts.get(tone); });
    return bar;
  }

  // Why, and what would help.

  showWhy() {
    const { task } = this.model, helpful = this.why.steps.filter((e) => e.actions.length
      && this.model.steps.has(e.step_uuid));
    const listed = causes(helpful).slice(0, 3), more = helpful.length - listed.length;
    if (this.why.status !== task.status) return; // the answer that fits is on its way
    const calm = !listed.length, like = calm || look(task.status).tone === "bad" ? task.status : "enqueued";
    this.cause.className = `explain card ${look(like).tone}${calm ? " calm" : ""}`;
    fill(this.cause, h("p.lead", signOf(like, 20), h("span", sentence(this.why.message))),
      listed.map((e) => this.helpFor(e, listed.length > 1)),
        (this.why.undelivered_events ?? []).map((u) => this.undelivered(u)),
      more > 0 && h("p.soft", `${plural(more, "more step")} can be acted on: choose ${more > 1 ? "one" : "it"} in ` +
        `the graph or the list.`));
  }

  helpFor(e, named) {
    const step = this.model.steps.get(e.step_uuid);
    return h("div.help-row", { key: step.id },
      named && h("p", button(e.name, () => this.choose(step.id, true), "as-link"), ": ", sentence(e.message, false)),
      h("div.row", stepButtons(e.actions, this.model.task, step, this.model.children(step))));
  }

  undelivered(u) {
    const send = async () => {
      try {
        const { problem: why } = await api.post(`/v1/events/deliveries/${encodeURIComponent(u.delivery)}/resend`);
        toast(why ? `Not delivered: ${why}` : "The event is delivered.", why ? "bad" : "good");
        this.refresh();
      } catch (e) {
        toast(e.message, "bad");
      }
    };
    return h("div.help-row", { key: u.delivery },
      h("p", `Event ${u.type} of ${u.step_name} did not reach ${u.subscriber}` + (u.problem ? `: ${u.problem}` : "")),
      h("div.row", allowed("dlq:update", "Send again", send, "quiet small")));
  }

  // One step.

  // choose shows a step everywhere, or none.
  choose(id, focus = false) {
    if (id && !this.model.steps.has(id) && !id.startsWith("ghost")) return;
    const before = this.model.steps.get(this.state.step);
    this.state.step = id;
    this.graph.select(id, true);
    this.timeline?.select(id);
    this.steps?.update(before, this.model.steps.get(id));
    this.events?.draw();
    this.keepAddress();
    this.showStep();
    if (id && (phone.matches || focus)) this.aside.scrollIntoView({ block: "nearest" });
  }

  showStep() {
    const id = this.state.step, step = this.model.steps.get(id),
      ghost = !step && id && this.model.ghosts().find((g) => "ghost " + g.name === id);
    if (step) this.card.show(step);
    else fill(this.card.place, ghost && ghostCard(ghost));
  }

  // facts makes the card about the task.
  facts() {
    const { task } = this.model, id = (value) => value
      && h("span.id", h("code", { title: value }, value.length > 24 ? `${value.slice(0, 8)}…${value.slice(-12)}`
      : value),
      copyButton(() => value, "as-copy"));
    return h("section.card", { "aria-label": "About the task" }, h("h2", "Task"), h("dl.pairs",
      pair("Id", id(task.task_uuid)), pair("Created", when(task.created_at)),
        pair("Ended", task.completed_at && when(task.completed_at)),
      pair("Cancelled", this.model.history.find((t) => t.reason && !t.step_uuid)?.reason),
        pair("By", `${task.initiator} from ${task.source_system}`), pair("Reason", task.reason),
      pair("Again of", task.again_of && link("/tasks/" + task.again_of.task_uuid, task.again_of.task_uuid)),
        pair("Priority", task.priority || ""),
      pair("Tags", task.tags.length > 0 && h("span.chips", task.tags.map((t) => h("span.tag", t)))),
      pair("Correlation", id(task.correlation_id)), pair("Parent", id(task.parent_correlation_id))));
  }

  async showData() {
    const { task } = this.model, last = [...this.model.steps.values()].filter((s) => !this.model.children(s).length)
      .slice(0, 20), results = h("div", { key: "results" });
    if (!this.data.firstChild) fill(this.data, h("section", h("h2", "Context"), task.context_redacted
      ? redacted("The context is hidden from you.", "tasks:context_read")
        : jsonTree(task.context, { label: "Context" })),
    h("section", h("h2", "Results of the last steps"), results));
    const views = await Promise.allSettled(last.map((s) => this.read(`${this.path}/workflow_steps/${s.id}`)));
    const shown = (v, id) => {
      if (v.reason?.status === 403 || v.value?.results_redacted) return redacted("The result is hidden from you.",
        "steps:read");
      return v.reason ? problem(v.reason) : v.value.results ? outcome(v.value.results, id + v.value.updated_at)
        : h("p.soft", "Not finished yet.");
    };
    if (!this.signal.aborted) fill(this.data.lastChild.lastChild,
      views.map((v, i) => h("div.last", { key: last[i].id }, h("h3", last[i].name), shown(v, last[i].id))));
  }
}
