import assert from "node:assert/strict";
import test from "node:test";
import "./dom.mjs";
import { fill, h, patch } from "../console/patch.js";

const shown = (e) => {
  document.body.append(e);
  return e;
};
const row = (name, text = name) => h("li", { key: name }, text);
const texts = (list) => list.childNodes.map((c) => c.textContent).join(" ");

test("an element stays and gets the properties, texts and listeners of its successor", () => {
  const heard = [];
  const make = (n, props) => h("p.soft", { title: "t" + n, onclick: () => heard.push(n), ...props }, "run ", h("b", n),
    " of 9");
  const e = shown(make(1, { hidden: true, onfocus: () => heard.push("focus") })), [, bold] = e.childNodes;
  assert.equal(patch(e, make(2, { lang: "en" })), e);
  assert.equal(e.textContent, "run 2 of 9");
  assert.equal(e.childNodes[1], bold);
  assert.deepEqual([...e.attributes], [["title", "t2"], ["class", "soft"], ["lang", "en"]]);
  e.emit("click");
  e.emit("focus");
  assert.deepEqual(heard, [2]);
});

test("another tag, class or key is another element", () => {
  for (const fresh of [h("div.soft"), h("p.loud"), h("p.soft", { key: 1 })]) {
    const e = shown(h("p.soft"));
    assert.equal(patch(e, fresh), fresh);
    assert.ok(!e.isConnected && fresh.isConnected);
  }
});

test("rows keep their elements in every order, and as few as possible move", () => {
  const list = shown(h("ul"));
  let before = "";
  for (const [order, moves] of [["a b c d", 4], ["b c d a", 1], ["d b c a", 1], ["x d b c a", 1], ["b a", 0],
      ["a b", 1], ["", 0], ["c a", 2], ["a c a", 2]]) {
    const names = order.split(" ").filter(Boolean), was = new Map(list.childNodes.map((c) => [c.textContent, c]));
    const rows = names.map((n) => row(n));
    document.moves = 0;
    fill(list, rows);
    assert.equal(document.moves, moves, `${before} → ${order}`);
    assert.equal(texts(list), order);
    for (const c of list.childNodes) if (was.has(c.textContent) && new Set(names).size === names.length) assert.equal(c,
      was.get(c.textContent));
    before = order;
  }
});

test("what a person typed, chose and opened stays; what the page gives anew is shown otherwise", () => {
  const make = (value, checked, open) => h("form", h("input", { value }), h("input", { type: "checkbox", checked }),
    h("details", { open }));
  const form = shown(make("a", false, true)), [text, box, details] = form.childNodes;
  patch(form, make("b", true, false));
  assert.deepEqual([text.value, box.checked, details.open], ["b", true, false]);
  text.value = "typed";
  box.checked = false;
  details.setAttribute("open", "");
  patch(form, make("c", false, false));
  patch(form, make("d", true, false));
  assert.deepEqual([text.value, details.open], ["typed", true]);
});

test("what the page itself changed at an element stays while nothing else is given", () => {
  const e = shown(h("div", h("h1", "Tasks")));
  e.childNodes[0].setAttribute("tabindex", -1);
  patch(e, h("div", h("h1", "All tasks")));
  assert.equal(e.childNodes[0].getAttribute("tabindex"), "-1");
});

test("an element with content of its own keeps it until its key changes", () => {
  const make = (key) => h("div", h("div.tree", { key, own: true }, "folded"));
  const e = shown(make(1)), [tree] = e.childNodes;
  fill(tree, "unfolded");
  patch(e, make(1));
  assert.equal(e.textContent, "unfolded");
  patch(e, make(2));
  assert.equal(e.textContent, "folded");
});

test("elements that are in the place stay as they are", () => {
  const kept = h("p", "kept"), place = shown(h("div", h("p", "gone"), kept));
  fill(place, "first ", kept, null, [false, h("p", "last")]);
  assert.equal(texts(place), "first  kept last");
  assert.ok(place.childNodes.includes(kept));
});

test("the focus stays with its row, and goes to the next one when that goes", () => {
  const list = shown(h("ul")), rows = (...names) => names.map((n) => h("li", { key: n }, h("button", n)));
  fill(list, rows("a", "b", "c"));
  list.childNodes[1].childNodes[0].focus();
  const focus = () => document.activeElement.textContent;
  fill(list, rows("c", "b", "x", "a"));
  assert.equal(focus(), "b");
  fill(list, rows("c", "x", "a"));
  assert.equal(focus(), "x");
  fill(list, rows("c"));
  assert.equal(focus(), "c");
});

test("texts are escaped", () => {
  assert.equal(h("p", "a\u202eb\nc").textContent, "a\\u202eb\\u000ac");
  assert.equal(h("pre", "a\u202eb\nc").textContent, "a\\u202eb\nc");
});
