import assert from "node:assert/strict";
import test from "node:test";
import { HEIGHT, WIDTH, fold, layout } from "../console/layout.js";

const nodes = (n) => Array.from({ length: n }, (_, i) => ({ id: "n" + i, name: "n" + i }));
const fan = nodes(60).slice(1).map((n) => ["n0", n.id]);
const twoLayers = nodes(60).slice(0, 30).flatMap((a, i) => [[a.id, "n" + (30 + i)], [a.id, "n" + (30 + (i + 1) % 30)]]);

const graphs = {
  "edges that would cross": [4, [["n0", "n3"], ["n1", "n2"]]],
  "a fan": [60, fan],
  "an edge over layers": [5, [["n0", "n1"], ["n1", "n2"], ["n2", "n3"], ["n0", "n3"], ["n0", "n4"]]],
  "nodes without edges": [3, []],
  "two blocks": [60, twoLayers],
};

for (const [name, [n, edges]] of Object.entries(graphs)) {
  test(`${name}: edges lead to the right, nodes do not overlap, and each edge is drawn`, () => {
    const got = layout(nodes(n), edges), at = new Map(got.nodes.map((p) => [p.id, p]));
    for (const [a, b] of edges) assert.ok(at.get(a).x < at.get(b).x, `${a} is not left of ${b}`);
    for (const a of at.values()) {
      for (const b of at.values()) assert.ok(a === b || Math.abs(a.x - b.x) >= WIDTH || Math.abs(a.y - b.y) >= HEIGHT,
        `${a.id} overlaps ${b.id}`);
    }
    assert.deepEqual(got.edges.flatMap((e) => e.links).sort(), [...edges].sort());
    for (const p of at.values()) assert.ok(p.x >= 0 && p.y >= 0 && p.x + WIDTH <= got.width
      && p.y + HEIGHT <= got.height);
  });
}

test("the order in a layer avoids crossings", () => {
  const at = new Map(layout(nodes(4), graphs["edges that would cross"][1]).nodes.map((p) => [p.id, p.y]));
  assert.equal(at.get("n0") < at.get("n1"), at.get("n3") < at.get("n2"));
});

test("two blocks have one edge, which stands for all between them", () => {
  const got = layout(nodes(60), twoLayers);
  assert.equal(got.edges.length, 1);
  assert.equal(got.edges[0].links.length, 60);
});

test("a batch of more than six folds into one node, and unfolds", () => {
  const batch = nodes(20).map((n, i) => (i > 0 ? { ...n, group: "batch b" } : n));
  assert.equal(fold(batch, fan.slice(0, 19)).nodes.length, 2);
  assert.equal(fold(batch, [], { open: new Set(["batch b"]) }).nodes.length, 20);
});

test("a chain of 5,000 folds into about sixty groups in a row", () => {
  const chain = nodes(5000), folded = fold(chain, chain.slice(1).map((n, i) => ["n" + i, n.id]));
  assert.ok(folded.nodes.length <= 61);
  assert.equal(folded.edges.length, folded.nodes.length - 1);
});
