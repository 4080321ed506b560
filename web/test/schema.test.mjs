import assert from "node:assert/strict";
import test from "node:test";
import "./dom.mjs";

const { SchemaForm, formable, pathOf } = await import("../console/schema.js");

// open makes a form and shows it.
function open(schema, value, required) {
  const form = new SchemaForm(schema, value, required), label = (e) => e.querySelector("label")?.textContent;
  document.body.append(form.element);
  const fields = () => form.members.map(({ part }) => part.element);
  const input = (name) => {
    const at = form.members.findIndex((m) => m.name === name);
    return fields()[at].children[1];
  };
  const type = (name, text) => {
    input(name).value = text;
    input(name).emit("input");
  };
  return { form, labels: () => fields().map(label), input, type,
    wrong: (name) => fields()[form.members.findIndex((m) => m.name === name)].children.at(-1).textContent };
}
const member = (s, ...required) => ({ type: "object", properties: s, required });

test("a form is made for objects with members, and paths are read in both notations", () => {
  for (const [schema, can] of [[member({ a: {} }), true], [{ properties: { a: {} } }, true],
    [{ type: ["object", "null"], properties: { a: {} } }, true], [member({}), false], [{ type: "array" }, false],
    [{ ...member({ a: {} }), $ref: "#/x" }, false], [undefined, false]]) {
    assert.equal(formable(schema), can, JSON.stringify(schema));
  }
  for (const name of ["context.items[0].id", "/context/items/0/id"]) {
    assert.deepEqual(pathOf(name), ["context", "items", "0", "id"]);
  }
});

test("required members come first, and others say that they are optional", () => {
  const { labels } = open(member({ note: {}, amount: { title: "Amount", type: "integer" } }, "amount"));
  assert.deepEqual(labels(), ["Amount", "note (optional)"]);
});

test("each type is read as a value of JSON, and what the schema does not name stays", () => {
  const { form, type } = open(member({ text: { type: "string" }, whole: { type: "integer" }, part: { type: "number" },
    flag: { type: "boolean" }, one: { enum: ["a", 7] }, list: { type: "array" }, none: { type: "string" } }),
  { other: 1, text: "before" });
  for (const [name, value] of Object.entries({ text: "after", whole: "007", part: "1.5", flag: "1", one: "1",
    list: "[1, {}]", none: "" })) type(name, value);
  assert.deepEqual(form.value(), { other: 1, text: "after", whole: 7, part: 1.5, flag: false, one: 7, list: [1, {}] });
});

test("numbers keep all their digits", { skip: !JSON.rawJSON }, () => {
  const { form, type } = open(member({ n: { type: "integer" } }));
  type("n", "12345678901234567891");
  assert.equal(JSON.stringify(form.value()), '{"n":12345678901234567891}');
});

test("each limit is named at its input, the focus goes to the first, and a mended one is quiet at once", () => {
  const schema = member({ code: { type: "string", minLength: 3, maxLength: 5 }, n: { type: "integer", maximum: 9 },
    list: { type: "array" }, like: { type: "string", pattern: "^x" }, flag: { type: "boolean" } }, "code", "flag");
  const { form, input, type, wrong } = open(schema);
  for (const [name, text] of Object.entries({ code: "ab", n: "1.5", list: "{}", like: "y" })) type(name, text);
  assert.equal(form.check(), false);
  assert.equal(document.activeElement, input("code"));
  assert.equal(wrong("code"), "Enter 3 to 5 characters.");
  assert.equal(wrong("n"), "Enter a whole number.");
  assert.equal(wrong("list"), "Enter a JSON array, in [ ].");
  assert.equal(wrong("like"), "This must match ^x.");
  assert.equal(wrong("flag"), "This is required.");
  type("n", "10");
  assert.equal(wrong("n"), "Enter at most 9.");
  for (const [name, text] of Object.entries({ code: "abc", n: "9", list: "[]", like: "x", flag: "0" })) {
    type(name, text);
    assert.equal(wrong(name), "", name);
  }
  assert.equal(form.check(), true);
});

test("an object within is a group, which counts only once it is filled in", () => {
  const { form } = open(member({ to: member({ city: { type: "string" } }, "city") }), {});
  assert.deepEqual(form.value(), {});
  assert.equal(form.check(), true);
  assert.equal(form.wrong(["to", "city"], "is unknown there"), true);
  assert.equal(form.wrong(["elsewhere"], "is wrong"), false);
});

test("defaults and constants are filled in", () => {
  const { form } = open(member({ a: { default: "x" }, b: { type: "integer", const: 3 }, c: { const: 4 } }, "a", "b"));
  assert.deepEqual(form.value(), { a: "x", b: 3 });
});
