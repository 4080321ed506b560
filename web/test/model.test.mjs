import assert from "node:assert/strict";
import test from "node:test";
import "./dom.mjs";

const { TaskModel, exact, finished, span } = await import("../console/model.js");

const at = (ms) => new Date(Date.UTC(2026, 0, 31) + ms).toISOString().replace("Z", "000");
const start = exact(at(0));
const declared = (name, dependencies = [], more = {}) => ({ name, dependencies, max_attempts: 3, step_type: "standard",
  ...more });

// model makes a task of a template and of transitions [milliseconds, step or "", from, to, more].
function model(template, transitions) {
  let n = 0;
  const make = ([ms, step, from, to, more]) => ({ sequence: ++n, seq: n, n: 0, recorded_at: at(ms), step_name: step,
    step_uuid: step ? "id of " + step : null, from_state: from, to_state: to, ...more });
  const task = { created_at: at(0), status: "pending", completed_at: null, steps: [] };
  const m = new TaskModel(task, template, transitions.map(make));
  return { m, then: (...event) => m.apply(make(event)), spans: (name) => m.byName(name).spans.map((s) =>
    [s.kind, s.from - start, s.to === undefined ? "open" : s.to - start]) };
}

test("times keep their microseconds, and short ones are said exactly", () => {
  assert.equal(exact("2026-01-31T00:00:00.000250") - exact("2026-01-31T00:00:00"), 0.25);
  assert.deepEqual([0.0004, 0.25, 1, 9.87].map(span), ["0 µs", "250 µs", "1 ms", "9.9 ms"]);
  assert.deepEqual(["complete", "error", "cancelled", "in_progress"].map(finished), [true, false, true, false]);
});

test("attempts, queues and retries are spans, and the open one has no end", () => {
  const { m, spans } = model([declared("a")], [[0, "a", null, "pending"], [1, "a", "pending", "enqueued"],
    [3, "a", "enqueued", "in_progress", { attempt: 1 }], [10, "a", "in_progress", "waiting_for_retry"],
    [20, "a", "waiting_for_retry", "enqueued"], [21, "a", "enqueued", "in_progress", { attempt: 2 }]]);
  assert.deepEqual(spans("a"), [["queue", 1, 3], ["run", 3, 10], ["retry", 10, 20], ["queue", 20, 21],
    ["run", 21, "open"]]);
  assert.equal(m.byName("a").attempts, 2);
  assert.equal(m.took(m.byName("a"), start + 30), 16);
});

test("a step that a person ends has waited for people, and its error waits for them, too", () => {
  const { spans } = model([declared("a"), declared("b")], [[0, "a", null, "pending"], [1, "a", "pending", "enqueued"],
    [9, "a", "enqueued", "in_progress"], [9, "a", "in_progress", "complete"],
    [0, "b", null, "error"], [7, "b", "error", "resolved_manually"]]);
  assert.deepEqual(spans("a"), [["people", 1, 9]]);
  assert.deepEqual(spans("b"), [["people", 0, 7]]);
});

test("a step that is reset counts from zero", () => {
  const { m, then } = model([declared("a")], [[0, "a", null, "pending"], [1, "a", "pending", "in_progress"],
    [2, "a", "in_progress", "error"]]);
  assert.equal(m.byName("a").attempts, 1);
  then(3, "a", "error", "pending");
  assert.equal(m.byName("a").attempts, 0);
});

test("an event that is known changes nothing", () => {
  const { m, then } = model([declared("a")], [[0, "a", null, "pending"]]);
  assert.equal(m.apply({ seq: 1, n: 5, step_uuid: "id of a", step_name: "a", recorded_at: at(0), to_state: "error" }),
    null);
  assert.equal(then(1, "a", "pending", "enqueued").grown, false);
  assert.equal(m.apply({ seq: 2, n: 0, step_uuid: "id of a", step_name: "a", recorded_at: at(1), to_state: "error" }),
    null);
  assert.deepEqual(then(2, "", null, "complete"), { task: true });
  assert.equal(m.task.completed_at, at(2));
});

test("steps that do not exist are not decided yet, until a decision has not taken them", () => {
  const template = [declared("choose", [], { step_type: "decision" }), declared("yes", ["choose"]),
    declared("no", ["choose"]), declared("after", ["no"])];
  const { m, then } = model(template, [[0, "choose", null, "in_progress"]]);
  const ghosts = () => m.ghosts().map((g) => g.name + (g.skipped ? " skipped" : "")).join();
  assert.equal(ghosts(), "yes,no,after");
  then(1, "yes", null, "pending");
  then(1, "choose", "in_progress", "complete");
  assert.equal(ghosts(), "no skipped,after skipped");
});

test("the graph has the steps of a batch in one group, and the edges of what exists", () => {
  const template = [declared("split", [], { step_type: "batchable" }),
    declared("work", ["split"], { step_type: "batch_worker" }),
    declared("total", ["work"], { step_type: "deferred_convergence" })];
  const { m } = model(template, [[0, "split", null, "complete"], [1, "work_001", null, "pending"],
    [1, "work_002", null, "pending"]]);
  const { nodes, edges } = m.graph();
  assert.deepEqual(nodes.map((n) => [n.name, n.group, n.word]), [["split", undefined, "Complete"],
    ["work_001", "batch work", "Pending"], ["work_002", "batch work", "Pending"],
    ["total", undefined, "Not decided yet"]]);
  assert.deepEqual(edges.map((e) => e.join(" to ")).sort(), ["id of split to id of work_001",
    "id of split to id of work_002",
    "id of work_001 to ghost total", "id of work_002 to ghost total"]);
  assert.deepEqual(m.children(m.byName("split")).map((s) => s.name), ["work_001", "work_002"]);
  assert.deepEqual(m.parents(m.byName("work_002")).map((s) => s.name), ["split"]);
});
