// What a text leads to that is no name: ids, values of contexts, keys, tags, steps and errors.

import * as api from "./api.js";
import { ago, fill, h, link, number, pairs, problem, shortId, state, templatePath } from "./ui.js";

const kinds = {
  task: "Task",
  step: "Step",
  dead_letter: "Dead letter",
  context: "Context",
  correlation: "Correlation",
  trace: "Trace",
  idempotency_key: "Key",
  tag: "Tag",
  template: "Template",
  error: "Error",
};

// lookUp makes the hits for a text that no name contains. Its ready resolves once they are there.
export function lookUp(q) {
  const place = h("div.hits", { role: "status" });
  const ready = api.get("/v1/find" + api.query({ q, limit: 100 })).then(
    (found) => fill(place, results(q, found)),
    (e) => fill(place, problem(e)),
  );
  return Object.assign(place, { ready });
}

function results(q, { hits, more, left_out: left }) {
  const causes = Map.groupBy(hits, (hit) => (hit.kind === "error" && hit.failure?.group) || hit); // each by itself
  return [
    h("p.soft", hits.length ? `No name here contains “${q}”, but this does:` : "Nothing else contains it either."),
    h(
      "ul.plain",
      [...causes].map(([group, [hit, ...others]]) =>
        h(
          "li",
          { key: [hit.kind, hit.task_uuid, hit.step_uuid, hit.value, hit.version].join() },
          link(pathOf(hit), [
            h("span.tag", kinds[hit.kind] ?? hit.kind),
            " ",
            h("b", hit.kind === "context" ? `${hit.path}=${hit.value}` : hit.value),
          ]),
          h(
            "span.soft",
            `${hit.namespace}/${hit.name}`,
            hit.step_name && " · " + hit.step_name,
            hit.task_uuid && [" · ", h("code", shortId(hit.task_uuid)), " · ", ago(hit.created_at)],
          ),
          hit.status && state(hit.status),
          pairs(hit.about),
          others.length > 0 &&
            link(
              "/tasks" + api.query({ failure_group: group }),
              `and ${number(others.length)} more that fail for this cause`,
            ),
        ),
      ),
    ),
    more.length > 0 && h("p.soft", `There are more: ${more.map((kind) => kinds[kind] ?? kind).join(", ")}.`),
    left.map((gap) => h("p.soft", `Not searched: ${kinds[gap.kind] ?? gap.kind}: ${gap.reason}.`)),
  ];
}

// pathOf returns the page of a hit: the task, at its step, or the template.
const pathOf = (hit) =>
  hit.task_uuid && hit.kind !== "template"
    ? `/tasks/${hit.task_uuid}${api.query({ step: hit.step_name })}`
    : "/templates/" + templatePath(hit);
