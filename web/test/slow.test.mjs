import assert from "node:assert/strict";
import test from "node:test";
import { criticalPath, timeOf } from "../console/slow.js";

// model makes a task that began at 0 and ended, of steps {name: [parents, ...spans of kind, from, to]}.
function model(end, steps) {
  const all = new Map(Object.entries(steps).map(([id, [parents, ...spans]]) =>
    [id, { id, parents, created: 0, spans: spans.map(([kind, from, to]) => ({ kind, from, to })) }]));
  return { created: 0, steps: all, end: () => end, kindOf: (s) => s.kind,
    parents: (s) => s.parents.map((p) => all.get(p)) };
}
const names = (m) => criticalPath(m).map((s) => s.id).join(" ");

test("the critical path has, before each step, the parent that ended last", () => {
  const m = model(40, { a: [[], ["run", 0, 10]], b: [["a"], ["run", 10, 12]],
    c: [["a"], ["queue", 10, 30], ["run", 30, 34]], d: [["b", "c"], ["run", 34, 39]] });
  assert.equal(names(m), "a c d");
  assert.deepEqual(timeOf(m, criticalPath(m)), { run: 19, queue: 20, people: 0, retry: 0, rest: 1 });
});

test("a step that goes on ends the path, and its open wait lasts to the end of the task", () => {
  const m = model(50, { a: [[], ["run", 0, 10], ["retry", 10, 12], ["run", 12, 13]],
    b: [["a"], ["people", 13, undefined]], c: [["a"], ["run", 13, 40]], d: [["b"]] });
  assert.equal(names(m), "a b");
  assert.deepEqual(timeOf(m, criticalPath(m)), { run: 11, queue: 0, people: 37, retry: 2, rest: 0 });
});

test("what a parent overlaps counts once", () => {
  const m = model(20, { a: [[], ["run", 0, 10]], b: [["a"], ["queue", 5, 12], ["run", 12, 20]] });
  assert.deepEqual(timeOf(m, criticalPath(m)), { run: 18, queue: 2, people: 0, retry: 0, rest: 0 });
});

test("a task in which nothing has happened has no path", () => {
  const m = model(5, { a: [[]] });
  assert.equal(names(m), "");
  assert.equal(timeOf(m, []).rest, 5);
});
