// The first visit: the service has no task yet.

import * as api from "./api.js";
import { allowed, h, link, problem } from "./ui.js";

const demo = { namespace: "demo", name: "slow" }; // its steps take two seconds each

// welcome says what this is and runs a demo workflow on request. Once there is a task, from
// wherever, the list is shown.
export async function welcome(root, { go, signal }, list) {
  const place = h("div");
  const run = async () => {
    try {
      const task = await api.post("/v1/tasks", { ...demo, initiator: "console", source_system: "console", reason: "a first look" });
      stop();
      go("/tasks/" + task.task_uuid);
    } catch (error) {
      place.replaceChildren(problem(error));
    }
  };
  const action = (await hasDemo(signal)) ? allowed("tasks:create", "Run a demo workflow", run, "primary large")
    : allowed("tasks:create", "Start a task", () => go("/start"), "primary large");
  root.replaceChildren(h("section.welcome",
    h("h1", "Welcome to Stepwell"),
    h("p.lead", "Stepwell runs workflows: a template names the steps, a task is one run of it. Steps run in order, ",
      "in parallel where they can, and again when they fail. Here you watch tasks live, see why one waits, and help it on."),
    h("div.row", action), place,
    h("ul.cards",
      card("/templates", "Templates", "What can run: each workflow with its graph."),
      card("/start", "Start a task", "Choose a template and give it a context."),
      card(null, "The API", "Every operation, with a form to try it."))));
  const begin = () => {
    if (signal.aborted) return;
    stop();
    list.begin();
  };
  const stop = api.events({}, (e) => e.type === "task" && begin(), async (state) => {
    if (/open|poll/.test(state) && !(await list.isEmpty())) begin(); // created before the stream began
  });
  signal.addEventListener("abort", stop);
}

// hasDemo reports whether the demo templates are loaded.
async function hasDemo(signal) {
  try {
    const { templates } = await api.get("/v1/templates" + api.query({ namespace: demo.namespace }), { signal });
    return templates.some((t) => t.name === demo.name);
  } catch {
    return false;
  }
}

function card(path, title, about) {
  const head = path ? link(path, title) : h("a", { href: api.root + "/api-docs/ui" }, title);
  return h("li.card", head, h("p.soft", about));
}
