import assert from "node:assert/strict";
import test from "node:test";
import "./dom.mjs";

const { SchemaForm, formable } = await import("../console/schema.js");

// inherited are names that every object answers to.
const inherited = ["constructor", "toString", "valueOf", "hasOwnProperty", "__proto__"];

test("a property is not filled in from what every object has", () => {
  const properties = JSON.parse(`{${inherited.map((name) => `"${name}": {"type": "string"}`)}}`);
  const form = new SchemaForm({ type: "object", properties, required: [...inherited, "isPrototypeOf"] });
  assert.deepEqual(form.members.map((m) => m.name), inherited);
  assert.deepEqual(form.members.map((m) => m.part.value()), inherited.map(() => undefined));
  assert.deepEqual(Object.keys(form.value()), []);
  assert.ok(!form.check());
});

test("a property with such a name is kept, and sent", () => {
  const properties = JSON.parse(`{${inherited.map((name) => `"${name}": {"type": "integer"}`)}}`);
  const given = JSON.parse(`{"other": 1, ${inherited.map((name, i) => `"${name}": ${i}`)}}`);
  const form = new SchemaForm({ type: "object", properties }, given);
  assert.deepEqual(Object.entries(form.value()).sort(), Object.entries(given).sort());
  const nested = new SchemaForm({ type: "object", properties: { a: { type: "object", properties } } }, { a: given });
  assert.deepEqual(Object.entries(nested.value().a).sort(), Object.entries(given).sort());
});

test("a format with such a name is none", () => {
  const form = new SchemaForm({ type: "object", properties: { a: { type: "string", format: "constructor" } } });
  const input = form.members[0].part.element.querySelector?.("input") ?? form.element;
  assert.ok(!String(input.attributes?.get("type")).includes("function"));
  assert.ok(formable({ properties: { constructor: {} } }));
});
