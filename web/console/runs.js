// The last runs of a template and its steps as a grid: the step that fails every night is a red row.

import * as api from "./api.js";
import { duration, empty, fill, h, instant, link, loading, look, number, plural, problem, when } from "./ui.js";
import { signOf } from "./step.js";

const RUNS = 20;

// runs shows the last runs of a template, the newest at the right, by their steps. The deeper a colour, the longer
// the last attempt took, compared with the other runs.
export function runs({ namespace, name, version, steps }, signal) {
  const place = h("div", loading());
  read({ namespace, name, version }, signal)
    .then((found) => fill(place, found.length ? grid(found, steps.map((s) => s.name))
    : empty("No runs", "This version of the template has not been used.")),
      (error) => signal.aborted || fill(place, problem(error)));
  return place;
}

async function read(template, signal) {
  const { tasks } = await api.get("/v1/tasks" + api.query({ ...template, per_page: RUNS }), { signal });
  return Promise.all(tasks.reverse().map(async (task) =>
    ({ task, steps: (await api.get(`/v1/tasks/${task.task_uuid}/summary`, { signal })).steps })));
}

const took = (s) => (s.completed_at && s.last_attempted_at ? instant(s.completed_at) - instant(s.last_attempted_at)
  : 0);

function grid(found, names) {
  const instance = (name) => name.replace(/_\d+$/, "");
  const urgency = (s) => ["complete", "resolved_manually", "pending", "enqueued", "in_progress", "waiting_for_retry",
    "cancelled", "error"].indexOf(s.current_state);
  const rows = names.map((name) => [name,
    found.map(({ steps }) => steps.filter((s) => s.name === name
    || (!names.includes(s.name) && instance(s.name) === name)))]);
  const cell = (name, { task }, steps, most) => {
    if (!steps.length) return h("td");
    const worst = steps.reduce((a, b) => (urgency(b) > urgency(a) ? b : a)), ms = Math.max(...steps.map(took)),
      { tone, word } = look(worst.current_state);
    const words = `${name}, ${when(task.created_at)}: ${word}` + (ms ? `, ${duration(ms)}` : "")
      + (worst.attempts > 1 ? `, ${worst.attempts} attempts` : "")
      + (steps.length > 1 ? `, of ${number(steps.length)}` : "");
    const a = link(`/tasks/${task.task_uuid}?step=${encodeURIComponent(worst.name)}`,
      tone === "good" ? "" : signOf(worst.current_state), { class: tone, title: words, "aria-label": words });
    if (tone !== "bad") a.style.setProperty("--share", `${15 + 60 * (most ? ms / most : 0)}%`);
    return h("td", a);
  };
  return [h("p.about.soft", `The last ${plural(found.length, "run")}, the newest at the right. The deeper the ` +
    `green, the longer the step took.`),
    h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Last runs" },
      h("table.runs", h("caption.hidden", "Steps of the last runs, the newest at the right"),
    h("thead", h("tr", h("th", { scope: "col" }, "Step"),
      found.map(({ task }) => h("th", { scope: "col" }, h("span.hidden", when(task.created_at)))))),
    h("tbody", rows.map(([name, cells]) => {
      const most = Math.max(...cells.flat().map(took));
      return h("tr", h("th", { scope: "row", title: name }, name),
        cells.map((steps, i) => cell(name, found[i], steps, most)));
    }))))];
}
