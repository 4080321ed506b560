// The first visit: the service has no task yet.

import * as api from "./api.js";
import { allowed, fill, h, link, problem } from "./ui.js";

const demo = { namespace: "demo", name: "slow" }; // its steps take two seconds each

// welcome says what this is and runs a demo workflow on request. Once there is a task, from
// wherever, the list is shown.
export async function welcome(root, { go, signal }, list) {
  const place = h("div");
  const run = async () => {
    try {
      const task = await api.post("/v1/tasks", { ...demo, initiator: "console", source_system: "console",
        reason: "a first look" });
      stop();
      go("/tasks/" + task.task_uuid);
    } catch (error) {
      fill(place, problem(error));
    }
  };
  const action = (await hasDemo(signal)) ? allowed("tasks:create", "Run a demo workflow", run, "primary large")
    : allowed("tasks:create", "Start a task", () => go("/start"), "primary large");
  fill(root, h("section.welcome",
    h("h1", "Welcome to Stepwell"),
    h("p.lead", "Stepwell runs workflows: a template names the steps, a task is one run of it. Steps run in order, ",
      "in parallel where they can, and again when they fail. Here you watch tasks live, see why one waits, and " +
        "unblock it."),
    h("div.row", action), place,
    h("ul.cards",
      card("/templates", "Templates", "What can run: each workflow with its graph."),
      card("/start", "Start a task", "Choose a template and give it a context."),
      card(null, "The API", "Every operation, with a form to try it."))));
  let begun = false;
  const begin = () => {
    if (begun) return;
    begun = true;
    stop();
    list.begin().catch((error) => signal.aborted || fill(root, problem(error, () => go("/tasks"))));
  };
  const look = api.reader(signal, async () => { if (!(await list.isEmpty())) begin(); }, 0);
  const stop = api.events({}, (e) => e.type === "task" && begin(), (state) => {
    if (/open|poll/.test(state)) look(); // created before the stream began
  });
  signal.addEventListener("abort", stop);
}

// hasDemo reports whether the demo templates are loaded.
async function hasDemo(signal) {
  const list = await api.getOptional("/v1/templates" + api.query({ namespace: demo.namespace }), { signal });
  return list?.templates.some((t) => t.name === demo.name);
}

function card(path, title, about) {
  const head = path ? link(path, title) : h("a", { href: api.root + "/api-docs/ui" }, title);
  return h("li.card", head, h("p.soft", about));
}
