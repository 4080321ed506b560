// Templates: the list with their figures, and the page of one.

import * as api from "./api.js";
import { percent, seconds } from "./analytics.js";
import { Graph } from "./graph.js";
import { KINDS } from "./model.js";
import { clip, empty, fill, h, link, number, problem, table, tabs, templatePath } from "./ui.js";
import { jsonTree } from "./values.js";

const nameOf = (t) => `${t.namespace}/${t.name}`;

export async function show(root, context) {
  await (context.params.name ? showOne : showAll)(root, context);
}

// figuresOf reads the figures of templates, or returns the error.
const figuresOf = (query, signal) =>
  api.get("/v1/analytics/history" + api.query(query), { signal }).catch((error) => {
    if (signal.aborted) throw error;
    return { error, hours: [], templates: [] };
  });

const byVersion = (a, b) => b.version.localeCompare(a.version, "en", { numeric: true });

async function showAll(root, { signal, query, remember }) {
  const [{ templates }, fares] = await Promise.all([
    api.get("/v1/templates", { signal }),
    figuresOf({ hours: 720 }, signal),
  ]);
  if (!templates.length)
    return fill(
      root,
      h("h1", "Templates"),
      empty("No templates", "A template describes the steps of a workflow. Start the service with --templates DIR."),
    );
  const groups = Map.groupBy(templates.sort(byVersion), nameOf);
  const rows = [...groups].sort().map(([name, versions]) => ({ key: name, cells: listRow(name, versions, fares) }));
  const search = h("input", {
      type: "search",
      placeholder: "Filter templates",
      "aria-label": "Filter templates",
      "data-search": true,
      value: query.get("q") || "",
    }),
    place = h("div", { role: "status" });
  const filter = () => {
    const fits = rows.filter((r) => r.key.toLowerCase().includes(search.value.trim().toLowerCase()));
    fill(
      place,
      fits.length
        ? table(
            "Templates",
            [
              "Template",
              ["Versions", "wide-cell"],
              ["Steps", "num"],
              ["Tasks", "num"],
              ["Success", "num"],
              ["Median", "num"],
              ["p95", "num"],
              ["", "num"],
            ],
            fits,
          )
        : h("p.soft", "No template matches."),
    );
    remember(search.value ? api.query({ q: search.value }) : "");
  };
  search.addEventListener("input", filter);
  filter();
  fill(
    root,
    h("div.row", h("h1", "Templates"), h("div.search", search)),
    fares.error ? problem(fares.error) : h("p.soft", "Figures of the last 30 days."),
    place,
  );
}

function listRow(name, versions, fares) {
  const newest = versions[0],
    mine = fares.templates.filter((f) => nameOf(f) === name),
    f = mine.find((m) => m.version === newest.version);
  const total = (member) => mine.reduce((n, m) => n + m[member], 0),
    done = total("completed_tasks"),
    ended = done + total("failed_tasks");
  const created = total("created_tasks");
  return [
    h(
      "div",
      link("/templates/" + templatePath(newest), clip(name), { class: "strong" }),
      h("p.about.soft", newest.description),
    ),
    h(
      "span.chips",
      versions.map((v) => link("/templates/" + templatePath(v), v.version, { class: "tag" })),
    ),
    number(newest.step_count),
    fares.error || !created
      ? "–"
      : link("/tasks" + api.query({ namespace: newest.namespace, name: newest.name }), number(created)),
    percent(done, ended),
    quantile(f, "p50"),
    quantile(f, "p95"),
    link("/start/" + templatePath(newest), "Start", { class: "button quiet small", "aria-label": "Start " + name }),
  ];
}

const time = (s) => (s === undefined ? "–" : seconds(s));

// quantile returns how long completed tasks took, if any completed.
const quantile = (f, name) => time(f?.completed_tasks ? f[name + "_duration_seconds"] : undefined);

async function showOne(root, { params, signal, title }) {
  const at = templatePath(params);
  const [template, { templates }] = await Promise.all([
    api.get("/v1/templates/" + at, { signal }),
    api.get("/v1/templates" + api.query({ namespace: params.namespace }), { signal }),
  ]);
  const versions = templates.filter((t) => t.name === template.name).sort(byVersion);
  title(nameOf(template));
  const picture = h("div");
  fill(
    root,
    h(
      "div.view",
      h(
        "div.row",
        h("h1.clip", { title: nameOf(template) }, h("span.soft", template.namespace + "/"), template.name),
        h("span.tag", template.version),
        h("span.spread"),
        h(
          "div.row",
          link("/tasks" + api.query({ namespace: template.namespace, name: template.name }), "Its tasks", {
            class: "button quiet",
          }),
          link("/start/" + templatePath(template), "Start a task", { class: "button primary" }),
        ),
      ),
      template.description && h("p.lead.soft", template.description),
      versions.length > 1 &&
        h(
          "nav.chips",
          { "aria-label": "Versions" },
          h("span.soft", "Versions"),
          versions.map((v) =>
            link("/templates/" + templatePath(v), v.version, {
              class: "chip",
              "aria-current": v.version === template.version && "page",
            }),
          ),
        ),
      picture,
      tabs("Template", { Steps: () => steps(template), Definition: () => definition(template) }),
    ),
  );
  drawGraph(picture, template, signal);
}

function drawGraph(picture, template, signal) {
  const graph = new Graph(picture, { label: "Graph of the steps. Arrow keys follow the edges." });
  const sign = "M3 4h3v3h3v3h4v3"; // a staircase, as in the logo
  graph.set(
    template.steps.map((s) => ({
      id: s.name,
      name: s.name,
      tone: "idle",
      sign,
      word: s.handler?.callable || s.type,
      note: KINDS[s.type],
    })),
    template.steps.flatMap((s) => s.dependencies.map((d) => [d, s.name])),
  );
  signal.addEventListener("abort", () => graph.destroy());
}

function steps(template) {
  const declared = new Map((template.configuration?.steps || []).map((s) => [s.name, s]));
  return table(
    "Steps",
    ["Step", ["Runs", "wide-cell"], "After", ["Attempts", "num"], ["Timeout", "num"]],
    template.steps.map((s) => ({
      cells: [
        [clip(s.name, "strong"), " ", s.type !== "standard" && h("span.tag", s.type), h("p.about.soft", s.description)],
        clip(s.handler?.callable || "–", "code"),
        clip(s.dependencies.join(", ") || "–"),
        s.default_retryable ? s.default_max_attempts : 1,
        time(declared.get(s.name)?.timeout_seconds ?? undefined),
      ],
    })),
  );
}

function definition({ configuration }) {
  if (!configuration) return empty("No definition", "The service no longer has it.");
  return jsonTree(configuration, { open: 2, label: "Definition" });
}
