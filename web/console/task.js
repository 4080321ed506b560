// The page of a task: why it is stuck and what would help, its graph, timeline, steps, events
// and data. Events keep it current.

import * as api from "./api.js";
import { cancelTask, causes, stepButtons } from "./actions.js";
import { Graph } from "./graph.js";
import { TaskModel, exact, finished, span } from "./model.js";
import { criticalPath } from "./slow.js";
import { StepCard, ghostCard, outcome, redacted, sentence, signOf } from "./step.js";
import { EventList, StepList } from "./steps.js";
import { Timeline } from "./timeline.js";
import {
  ago,
  allowed,
  bars,
  button,
  copyButton,
  ended,
  fill,
  h,
  link,
  look,
  number,
  pair,
  plural,
  problem,
  state,
  tabs,
  templatePath,
  toast,
  when,
} from "./ui.js";
import { jsonTree } from "./values.js";

const WIDE = 1000; // of a graph that takes the whole width, so that it can be read
const PAUSE = 80; // milliseconds in which events are collected before they are shown
const phone = matchMedia("(max-width: 46rem)");

export async function show(root, context) {
  await new TaskPage(root, context).open();
}

// TaskPage has what is known of the task (model, why, dlq), what the person chose (state: the id of a step and the
// name of a tab), and draw, which shows all of that.
class TaskPage {
  id;
  signal;
  path;
  queue;
  title;
  root;
  wanted;
  state;
  remember;
  marked;
  constructor(root, { params, query, go, signal, title, keys, remember, renew }) {
    Object.assign(this, {
      root,
      go,
      signal,
      title,
      remember,
      queue: [],
      state: { tab: query.get("tab") },
      wanted: query.get("step"),
      id: params.task_uuid,
      path: "/v1/tasks/" + params.task_uuid,
    });
    this.flushSoon = api.reader(signal, () => this.flush(), PAUSE);
    this.refresh = api.reader(signal, () => this.askWhy(), 250);
    this.reload = api.reader(signal, () => this.readAgain(), 250);
    renew(() => this.reload());
    keys({
      s: ["Steps", () => this.tabs.show("Steps")],
      t: ["Timeline", () => this.tabs.show("Timeline")],
      e: ["Events", () => this.tabs.show("Events")],
      f: ["Fit the graph", () => this.graph.fit()],
    });
  }

  // open shows the task, and follows the events after those that it knows.
  async open() {
    await this.load();
    if (this.signal.aborted) return;
    this.build();
    const stop = api.events(
      { task_uuid: this.id, after: this.model.seq },
      (e) => this.event(e),
      (now) => {
        if (now === "gap" || (now === "poll" && !ended(this.model.task.status))) this.reload();
        else if (now === "open") this.refresh();
      },
    );
    api.each(500, this.signal, () => this.beat());
    this.signal.addEventListener("abort", () => {
      stop();
      this.graph.destroy();
      this.views.Timeline?.destroy();
    });
  }

  async load() {
    const { path } = this;
    const [task, summary, { transitions }, why] = await Promise.all(
      ["", "/summary", "/transitions", "/explain"].map((rest) => this.read(path + rest)),
    );
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
      await new Promise((done) => {
        setTimeout(done, 500);
      });
      return this.read(path, tries - 1);
    }
  }

  async readAgain() {
    await this.load();
    if (this.signal.aborted) return;
    this.drawn = undefined;
    this.draw();
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
    const changed = new Set(),
      events = this.queue.splice(0);
    let known = true;
    for (const e of events) {
      const what = this.model.apply(e);
      if (!what) continue;
      known = false;
      if (what.step) changed.add(what.step);
    }
    if (known) return;
    if (this.model.task.status === "cancelled") return this.reload(); // for the reason, which is not in the event
    this.draw(changed);
    this.refresh();
  }

  // shape identifies the steps that exist and the fate of those that do not.
  shape() {
    return (
      this.model.steps.size +
      this.model
        .ghosts()
        .map((g) => g.name + g.skipped)
        .join()
    );
  }

  // askWhy asks why the task is not finished.
  async askWhy() {
    await api.readClock();
    if (this.model.task.status === "blocked_by_failures") this.dlq = (await this.read(this.path + "/summary")).dlq;
    this.explain(await this.read(this.path + "/explain"));
    this.draw(this.moving());
  }

  // beat shows how time passes for the steps that run or wait.
  beat() {
    if (!ended(this.model.task.status)) this.draw(this.moving());
  }

  moving() {
    return [...this.model.steps.values()]
      .filter((s) => ["in_progress", "waiting_for_retry", "enqueued"].includes(s.state))
      .slice(0, 200);
  }

  // The page.

  build() {
    const { task } = this.model;
    this.title(`${task.namespace}/${task.name}`);
    this.head = h("header.task-head");
    this.cause = h("section.explain.card", { "aria-label": "Why the task is where it is" });
    const picture = h("div");
    this.graph = new Graph(picture, {
      label: "Graph of the steps. Arrow keys follow the edges, Enter shows the step.",
      onSelect: (id, members) => this.choose(members ? members[0].id : id),
      onOpen: (id) => {
        this.choose(id);
        this.aside.focus();
      },
    });
    this.about = h("div");
    this.card = new StepCard(this, h("div"));
    this.aside = h("aside.task-aside", { tabindex: "-1", "aria-label": "Details" }, this.card.place, this.about);
    this.views = {};
    this.tabs = this.makeTabs();
    this.body = h(
      "div.task-body",
      h("section.picture", { "aria-label": "Graph" }, picture),
      h("div.task-main", this.tabs),
      this.aside,
    );
    this.root.replaceChildren(this.head, this.cause, this.body);
    this.draw();
    const start = this.wanted && this.model.byName(this.wanted);
    if (start) this.choose(start.id);
    this.flushSoon();
  }

  // makeTabs makes the views of the task. Each has a root and draw(), and is drawn while it is shown.
  makeTabs() {
    const choose = (id) => this.choose(id),
      data = h("div.data");
    const make = {
      Timeline: () => new Timeline(h("div"), this, choose),
      Steps: () => new StepList(this, choose),
      Events: () => new EventList(this, choose),
      Data: () => ({ root: data, draw: () => this.showData(data) }),
    };
    const first = phone.matches ? "Steps" : "Timeline",
      { tab } = this.state;
    const parts = Object.fromEntries(
      Object.keys(make).map((name) => [name, () => (this.views[name] = make[name]()).root]),
    );
    return tabs("Views of the task", parts, parts[tab] ? tab : first, (name) => {
      this.state.tab = name === first && !this.state.tab ? null : name;
      this.view = this.views[name];
      this.view.draw();
      if (this.tabs) this.keepAddress();
    });
  }

  keepAddress() {
    const step = this.model.steps.get(this.state.step)?.name,
      { tab } = this.state;
    this.remember(new URLSearchParams({ ...(tab && { tab }), ...(step && { step }) }));
  }

  // draw shows the task as it is now: of the graph, the steps that changed, or all if others exist than before.
  /** @param {Iterable<any>} changed */
  draw(changed = []) {
    const shape = this.shape(),
      { step } = this.state;
    if (shape !== this.drawn) {
      const { nodes, edges } = this.model.graph();
      this.graph.set(nodes, edges);
      this.body.classList.toggle("wide", this.graph.shape.width > WIDE);
    } else for (const s of changed) this.graph.update(this.model.node(s));
    this.graph.mark(criticalPath(this.model).map((s) => s.id));
    if (shape !== this.drawn || step !== this.marked) this.graph.select(step, true);
    [this.drawn, this.marked] = [shape, step];
    this.showHead();
    this.showWhy();
    this.showStep();
    fill(this.about, this.facts());
    this.view.draw();
  }

  showHead() {
    const { task } = this.model,
      all = this.model.steps.size,
      over = ended(task.status);
    const steps = [...this.model.steps.values()];
    const took = task.completed_at && span(exact(task.completed_at) - this.model.created);
    fill(
      this.head,
      h(
        "div.row",
        h("h1.clip", { title: `${task.namespace}/${task.name}` }, h("span.soft", task.namespace + "/"), task.name),
        h("span", { role: "status" }, state(task.status)),
        h("span.spread"),
        api.can("tasks:create") &&
          link("/start?from=" + task.task_uuid, "Start again …", { class: "button quiet small" }),
        !over &&
          allowed(
            "tasks:cancel",
            "Cancel the task …",
            () => cancelTask(task, steps.filter((s) => !finished(s.state)).length),
            "quiet small",
          ),
      ),
      h(
        "p.facts.soft",
        link("/templates/" + templatePath(task), "version " + task.version),
        h("span", "created ", ago(task.created_at)),
        took && h("span", "took ", took),
        h(
          "span",
          `${number(
            steps.filter((s) => ["complete", "resolved_manually"].includes(s.state)).length,
          )} of ${plural(all, "step")} done`,
        ),
        this.dlq.in_dlq && link("/dlq", "in the dead letter queue"),
      ),
      bars(
        ["good", "run", "wait", "bad", "off"].map((tone) => [
          tone,
          steps.filter((s) => look(s.state).tone === tone).length,
        ]),
        all,
      ),
    );
  }

  // Why, and what would help.

  showWhy() {
    const { task } = this.model,
      helpful = this.why.steps.filter((e) => e.actions.length && this.model.steps.has(e.step_uuid));
    const listed = causes(helpful).slice(0, 3),
      more = helpful.length - listed.length;
    if (this.why.status !== task.status) return; // the answer that fits is on its way
    const calm = !listed.length,
      like = calm || look(task.status).tone === "bad" ? task.status : "enqueued";
    this.cause.className = "explain card " + look(like).tone;
    fill(
      this.cause,
      h("p.lead", signOf(like, 20), h("span", sentence(this.why.message))),
      listed.map((e) => this.helpFor(e, listed.length > 1)),
      (this.why.undelivered_events ?? []).map((u) => this.undelivered(u)),
      more > 0 &&
        h(
          "p.soft",
          `${plural(more, "more step")} can be acted on: choose ${more > 1 ? "one" : "it"} in ` +
            `the graph or the list.`,
        ),
    );
  }

  helpFor(e, named) {
    const step = this.model.steps.get(e.step_uuid);
    return h(
      "div.help-row",
      { key: step.id },
      named &&
        h(
          "p",
          button(e.name, () => this.choose(step.id, true), "as-link"),
          !this.why.message.includes(e.message) && `: ${sentence(e.message, false)}`,
        ),
      h("div.row", stepButtons(e.actions, this.model.task, step, this.model.children(step))),
    );
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
    return h(
      "div.help-row",
      { key: u.delivery },
      h("p", `Event ${u.type} of ${u.step_name} did not reach ${u.subscriber}` + (u.problem ? `: ${u.problem}` : "")),
      h("div.row", allowed("dlq:update", "Send again", send, "quiet small")),
    );
  }

  // One step.

  // choose shows a step everywhere, or none.
  choose(id, focus = false) {
    if (id && !this.model.steps.has(id) && !id.startsWith("ghost")) return;
    this.state.step = id;
    this.draw();
    this.views.Timeline?.reveal(id);
    this.keepAddress();
    if (id && (phone.matches || focus)) this.aside.scrollIntoView({ block: "nearest" });
  }

  showStep() {
    const id = this.state.step,
      step = this.model.steps.get(id),
      ghost = !step && id && this.model.ghosts().find((g) => "ghost " + g.name === id);
    if (step) this.card.show(step);
    else fill(this.card.place, ghost && ghostCard(ghost));
  }

  // facts makes the card about the task.
  facts() {
    const { task } = this.model,
      id = (value) =>
        value &&
        h(
          "span.id",
          h("code", { title: value }, value.length > 24 ? `${value.slice(0, 8)}…${value.slice(-12)}` : value),
          copyButton(() => value, "as-copy"),
        );
    return h(
      "section.card",
      { "aria-label": "About the task" },
      h("h2", "Task"),
      h(
        "dl.pairs",
        pair("Id", id(task.task_uuid)),
        pair("Created", when(task.created_at)),
        pair("Ended", task.completed_at && when(task.completed_at)),
        pair("Cancelled", this.model.history.find((t) => t.reason && !t.step_uuid)?.reason),
        pair("By", `${task.initiator} from ${task.source_system}`),
        pair("Reason", task.reason),
        pair("Again of", task.again_of && link("/tasks/" + task.again_of.task_uuid, task.again_of.task_uuid)),
        pair("Priority", task.priority || ""),
        pair(
          "Tags",
          task.tags.length > 0 &&
            h(
              "span.chips",
              task.tags.map((t) => h("span.tag", t)),
            ),
        ),
        pair("Correlation", id(task.correlation_id)),
        pair("Parent", id(task.parent_correlation_id)),
      ),
    );
  }

  // showData reads the results of the last steps, again once these have changed.
  async showData(place) {
    const { task } = this.model,
      last = [...this.model.steps.values()].filter((s) => !this.model.children(s).length).slice(0, 20),
      results = h("div", { key: "results" }),
      now = last.map((s) => s.id + s.since).join();
    if (now === this.data) return;
    this.data = now;
    if (!place.firstChild)
      fill(
        place,
        h(
          "section",
          h("h2", "Context"),
          task.context_redacted
            ? redacted("The context is hidden from you.", "tasks:context_read")
            : jsonTree(task.context, { label: "Context" }),
        ),
        h("section", h("h2", "Results of the last steps"), results),
      );
    const views = await Promise.allSettled(last.map((s) => this.read(`${this.path}/workflow_steps/${s.id}`)));
    const shown = (v, id) => {
      if (v.reason?.status === 403 || v.value?.results_redacted)
        return redacted("The result is hidden from you.", "steps:read");
      return v.reason
        ? problem(v.reason)
        : v.value.results
          ? outcome(v.value.results, id + v.value.updated_at)
          : h("p.soft", "Not finished yet.");
    };
    if (!this.signal.aborted)
      fill(
        place.lastChild.lastChild,
        views.map((v, i) => h("div.last", { key: last[i].id }, h("h3", last[i].name), shown(v, last[i].id))),
      );
  }
}
