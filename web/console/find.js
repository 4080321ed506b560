// The one box that finds anything, over the page that is shown.

import * as api from "./api.js";
import { fill } from "./patch.js";
import { ago, dialog, h, link, problem, shortId, state, templatePath } from "./ui.js";

const kinds = { task: "Task", step: "Step", dead_letter: "Dead letter", context: "Context", correlation: "Correlation",
  trace: "Trace", idempotency_key: "Key", tag: "Tag", template: "Template", error: "Error" };

// openFind opens the box. Enter opens the only hit, or moves to the first of several.
export function openFind() {
  const text = h("input", { type: "search", "aria-label": "Find", autocomplete: "off", spellcheck: "false",
    placeholder: "An id or its end, a value of a context, a key, a tag, a step, an error" });
  const list = h("div.hits", { role: "status" });
  const box = dialog("Find", h("form.form", { onsubmit: (e) => { e.preventDefault(); enter(); } }, text, list));
  let timer, turn = 0, entered = false;
  const links = () => [...list.querySelectorAll("a")];
  const enter = () => {
    entered = links().length === 0; // then the first answer is opened
    if (links().length === 1) links()[0].click();
    else links()[0]?.focus();
  };
  const look = async () => {
    const mine = ++turn, q = text.value.trim();
    if (!q) return fill(list);
    try {
      const found = await api.get("/v1/find" + api.query({ q, limit: 20 }));
      if (mine !== turn) return;
      fill(list, results(found));
      if (entered && found.hits.length === 1) links()[0].click();
    } catch (e) {
      if (mine === turn) fill(list, problem(e, look));
    }
  };
  text.addEventListener("input", () => { entered = false; clearTimeout(timer); timer = setTimeout(look, 150); });
  box.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key], all = [text, ...links()];
    if (!step) return;
    e.preventDefault();
    all[Math.min(Math.max(all.indexOf(document.activeElement) + step, 0), all.length - 1)].focus();
  });
  box.addEventListener("click", (e) => { if (e.target.closest("a")) box.close(); });
  box.classList.add("wide");
  text.focus();
}

// lookUp makes the hits for a text that no name contains.
export function lookUp(q) {
  const place = h("div.hits", { role: "status" });
  api.get("/v1/find" + api.query({ q, limit: 20 })).then((found) => found.hits.length && fill(place,
    h("p.soft", `No name contains “${q}”, but this does:`), results(found)), (e) => fill(place, problem(e)));
  return place;
}

function results({ hits, more, left_out: left }) {
  return [!hits.length && h("p.soft", "Nothing matches."),
    h("ul.plain", hits.map((hit) => h("li", { key: [hit.kind, hit.task_uuid, hit.step_uuid, hit.value,
      hit.version].join() },
      link(pathOf(hit), [h("span.tag", kinds[hit.kind] ?? hit.kind), " ",
        h("b", hit.kind === "context" ? `${hit.path}=${hit.value}` : hit.value)]),
      h("span.soft", `${hit.namespace}/${hit.name}`, hit.step_name && " · " + hit.step_name,
        hit.task_uuid && [" · ", h("code", shortId(hit.task_uuid)), " · ", ago(hit.created_at)]),
      hit.status && state(hit.status)))),
    more.length > 0 && h("p.soft", `There are more: ${more.map((kind) => kinds[kind] ?? kind).join(", ")}.`),
    left.map((gap) => h("p.soft", `Not searched: ${kinds[gap.kind] ?? gap.kind}: ${gap.reason}.`))];
}

// pathOf returns the page of a hit: the task, at its step, or the template.
const pathOf = (hit) => (hit.task_uuid && hit.kind !== "template"
  ? `/tasks/${hit.task_uuid}${api.query({ step: hit.step_name })}`
  : "/templates/" + templatePath(hit));
