// Analytics: throughput, durations and errors of a period.

import * as api from "./api.js";
import { chart, span } from "./charts.js";
import { chips, duration, empty, fill, h, link, number, table, when } from "./ui.js";

const minute = 60_000,
  hour = 60 * minute;
const windows = { 2: "2 hours", 6: "6 hours", 24: "24 hours", 72: "3 days", 168: "7 days", 720: "30 days" };
const bucketHours = { 2: 1, 6: 1, 24: 1, 72: 3, 168: 6, 720: 24 };

export async function show(root, { query, remember, signal, renew }) {
  let hours = windows[query.get("hours")] ? query.get("hours") : "2";
  const body = h("div.view"),
    head = h("div");
  const draw = () =>
    fill(
      head,
      chips(
        "Period",
        Object.entries(windows),
        (n) => n === hours,
        (n) => {
          hours = n;
          remember(n === "2" ? "" : "hours=" + n);
          draw();
          soon();
        },
      ),
    );
  const read = async () => {
    const asked = hours,
      parts = await load(asked, signal);
    if (!signal.aborted && hours === asked) fill(body, page(parts, Number(asked), signal));
  };
  const soon = api.reader(signal, read, 0);
  draw();
  await read();
  fill(root, h("div.row", h("h1", "Analytics"), head), body);
  renew(soon);
}

const load = (hours, signal) =>
  Promise.all(
    [`performance?hours=${hours}`, `history?hours=${hours}&minutes=180`].map((path) =>
      api.get("/v1/analytics/" + path, { signal }),
    ),
  );

/** @param {any[]} parts */
function page([performance, history], hours, signal) {
  if (!performance.total_tasks) {
    return [
      empty(
        "No figures yet",
        "They appear with the first task.",
        link("/start", "Start a task", { class: "button primary" }),
      ),
    ];
  }
  const fine = grain(history, hours),
    rows = buckets(history, bucketHours[hours], fine);
  return [
    facts(performance, history),
    fine.note && h("p.soft", fine.note),
    h("div.charts", charts(rows, fine, history, signal)),
    figures(rows),
  ];
}

// grain chooses what charts are made of: minutes for two hours, which the service counts since it started, or hours.
function grain(history, hours) {
  const { hours: list, minutes, minutes_start: start, calculated_at: now, analysis_period_start: begin } = history;
  if (hours > 2 || !minutes) return { list, of: "hour", unit: hour, from: Date.parse(begin) };
  const from = Math.max(Math.min(Date.parse(start), Date.parse(now) - 30 * minute), Date.parse(begin));
  return {
    list: minutes.filter((f) => Date.parse(f.minute) >= from),
    of: "minute",
    unit: minute,
    from,
    size: Date.parse(now) - from < 90 * minute ? 1 : 2,
    note:
      Date.parse(start) > Date.parse(begin) &&
      `The charts begin at ${when(start)}, when the service started to count minutes.`,
  };
}

const add = (rows, name) => rows.reduce((n, r) => n + r[name], 0);
export const percent = (part, whole) => (whole ? Math.floor((part / whole) * 1000) / 10 + " %" : "–");
export const seconds = (s) => (s > 0 && s < 0.01 ? +(s * 1000).toPrecision(2) + " ms" : duration(s * 1000));

const fact = (label, value, about) =>
  h("div.card.fact", h("dt", label), h("dd", value), about && h("dd.about.soft", about));

function facts(p, { hours }) {
  const ended = p.completed_tasks + p.failed_tasks;
  return h(
    "dl.tiles",
    fact("Created", number(add(hours, "created_tasks")), `${number(p.total_tasks)} ever`),
    fact("Completed", number(p.completed_tasks), percent(p.completed_tasks, ended) + " of ended"),
    fact("Blocked or failed", number(p.failed_tasks), `${number(add(hours, "failed_attempts"))} failed attempts`),
    fact("Time to complete", p.completed_tasks ? seconds(p.average_task_duration_seconds) : "–", "on average"),
    fact("Active now", number(p.active_tasks), "running or waiting"),
  );
}

// buckets sums figures by so many hours, or by the size of the grain, and fills the times without any.
function buckets(history, size, { list, of, unit, from, size: own = size }) {
  const step = own * unit,
    end = Date.parse(history.calculated_at),
    rows = [];
  for (let t = Math.floor(from / step) * step; t <= end; t += step) {
    rows.push({
      t,
      step,
      created: 0,
      completed: 0,
      failed: 0,
      cancelled: 0,
      attempts: 0,
      failedAttempts: 0,
      seconds: 0,
      p50: null,
      p95: null,
    });
  }
  for (const f of list) {
    const r = rows[Math.floor((Date.parse(f[of]) - rows[0].t) / step)];
    r.created += f.created_tasks;
    r.completed += f.completed_tasks;
    r.failed += f.failed_tasks;
    r.cancelled += f.cancelled_tasks;
    r.attempts += f.ended_attempts;
    r.failedAttempts += f.failed_attempts;
    r.seconds += f.average_duration_seconds * f.completed_tasks;
    if (f.completed_tasks) r.p95 = Math.max(r.p95, f.p95_duration_seconds);
  }
  return rows;
}

// throughput draws what became of tasks.
const throughput = (rows, signal) =>
  chart(
    {
      label: "Tasks by outcome",
      times: rows.map((r) => r.t),
      step: rows[0].step,
      format: short,
      series: [
        ["Completed", "good", "completed"],
        ["Blocked or failed", "bad", "failed"],
        ["Cancelled", "off", "cancelled"],
      ].map(([name, tone, of]) => ({ name, tone, values: rows.map((r) => r[of]) })),
    },
    signal,
  );

const short = (n) =>
  n >= 1e6 ? +(n / 1e6).toFixed(1) + " M" : n >= 1000 ? +(n / 1000).toFixed(1) + " k" : String(+n.toFixed(1));

// charts draws what became of tasks, and how long those that completed took.
const charts = (rows, fine, history, signal) => [
  throughput(rows, signal),
  chart(
    {
      label: "Time to complete, p95",
      times: rows.map((r) => r.t),
      step: rows[0].step,
      format: seconds,
      series: [{ name: "p95", tone: "run", values: rows.map((r) => r.p95) }],
    },
    signal,
  ),
];

function figures(rows) {
  const used = rows.filter((r) => r.created || r.completed || r.failed || r.attempts || r.cancelled).reverse();
  const columns = [
    "Period",
    ...["Created", "Completed", "Blocked or failed", "Cancelled", "Attempts", "Failed attempts", "Average", "p95"].map(
      (c) => [c, "num"],
    ),
  ];
  return h(
    "details",
    h("summary", "The figures as a table"),
    table(
      "Figures",
      columns,
      used.map((r) => [
        span(r.t, r.step),
        ...[r.created, r.completed, r.failed, r.cancelled, r.attempts, r.failedAttempts].map(number),
        r.completed ? seconds(r.seconds / r.completed) : "–",
        r.p95 === null ? "–" : seconds(r.p95),
      ]),
    ),
  );
}
