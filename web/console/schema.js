// Forms from JSON schemas. What a form cannot express is edited as JSON.

import * as api from "./api.js";
import { field, h, plural, readJSON, select, templatePath, uid, wrong } from "./ui.js";

const { parseJSON } = api;

// typeOf returns the one type of a schema besides null, or "".
const typeOf = (s) =>
  [s?.type ?? (s?.properties ? "object" : s?.enum ? "enum" : "")].flat().filter((t) => t !== "null")[0] ?? "";

// formable reports whether a schema describes an object with members, so that a form can be made.
export const formable = (s) => typeOf(s) === "object" && Object.keys(s.properties || {}).length > 0 && !s.$ref;

// pathOf splits the name of a field, such as context.items[0].id or /context/items/0/id.
export const pathOf = (name) =>
  name
    .replace(/\[(\w+)\]/g, ".$1")
    .split(/[./]/)
    .filter(Boolean);

// own returns a member of an object, and not what every object has, such as its constructor.
const own = (value, name) => (Object.hasOwn(value, name) ? value[name] : undefined);

// SchemaForm is the inputs for the members of an object. element holds them.
export class SchemaForm {
  constructor(schema, value = {}, required = true) {
    this.required = required;
    this.rest = { ...value };
    const needed = (schema.required || []).filter((name) => Object.hasOwn(schema.properties, name));
    this.members = [...new Set([...needed, ...Object.keys(schema.properties)])].map((name) => {
      delete this.rest[name];
      return { name, part: partOf(name, schema.properties[name], own(value, name), needed.includes(name)) };
    });
    this.element = h(
      "div.form",
      this.members.map((m) => m.part.element),
    );
  }

  // value returns the object, also what the schema does not name; undefined for nothing.
  value() {
    const given = this.members.map(({ name, part }) => [name, part.value()]).filter(([, v]) => v !== undefined);
    const out = Object.fromEntries([...Object.entries(this.rest), ...given]); // which also sets __proto__
    return this.required || Object.keys(out).length ? out : undefined;
  }

  // check shows what is wrong at each input, and moves the focus to the first; true if nothing is.
  check() {
    if (!this.required && this.value() === undefined) return true;
    const bad = this.members.filter(({ part }) => !part.check());
    this.element.querySelector("[aria-invalid]")?.focus();
    return bad.length === 0;
  }

  // wrong shows a problem at the input of a path, if there is one.
  wrong([name, ...path], text) {
    return this.members.find((m) => m.name === name)?.part.wrong(path, text) ?? false;
  }
}

// resultSchema reads the schema of a step's result; nothing without one, or if the caller may not read it.
export async function resultSchema(task, step) {
  try {
    const t = task.version ? task : await api.get("/v1/tasks/" + task.task_uuid);
    const { steps } = await api.get("/v1/templates/" + templatePath(t));
    return [step, step.replace(/_\d+$/, "")]
      .map((name) => steps.find((s) => s.name === name)?.result_schema)
      .find(Boolean);
  } catch {
    return undefined; // the result is then written as JSON
  }
}

// ResultInput asks for the result of a step: by a form, if its schema makes one, or as JSON.
export class ResultInput {
  constructor(schema) {
    this.form = formable(schema) && new SchemaForm(schema);
    this.text = h("textarea", { spellcheck: "false", value: "{}" });
    this.element = this.form
      ? this.form.element
      : field("Result", this.text, "Any JSON. Steps that depend on this one can read it.");
  }

  value() {
    return this.form ? this.form.value() : readJSON(this.text);
  }

  check() {
    const good = this.form ? this.form.check() : this.value() !== undefined;
    if (!good && !this.form) this.text.focus();
    return good;
  }

  // refused shows what is wrong at the inputs that an error names, and reports whether that is all.
  refused({ details = [] }) {
    const other = details.filter(({ field: name, message }) => {
      const path = pathOf(name ?? ""),
        at = path.indexOf("result");
      return !(this.form && at >= 0 && this.form.wrong(path.slice(at + 1), message));
    });
    this.element.querySelector("[aria-invalid]")?.focus();
    return details.length > 0 && !other.length;
  }
}

// partOf makes the part of a form for one member: {element, value, check, wrong}.
function partOf(name, s, value, required) {
  const about = [s.description, limits(s)].filter(Boolean).join(" · "),
    label = (s.title || name) + (required ? "" : " (optional)");
  if (formable(s)) {
    const form = new SchemaForm(s, value ?? {}, required),
      id = uid("group");
    return Object.assign(form, {
      element: h(
        "div.group",
        { role: "group", "aria-labelledby": id },
        h("h3", { id }, label),
        about && h("p.help", about),
        form.element,
      ),
    });
  }
  const make = s.enum
    ? enumInput
    : { boolean: enumInput, string: textInput, integer: numberInput, number: numberInput }[typeOf(s)] ||
      (ofTexts(s) ? linesInput : jsonInput);
  const { input, read, write = (v) => (typeof v === "object" ? JSON.stringify(v) : v) } = make(s, required);
  const first = value ?? s.default ?? (required && s.const !== undefined ? s.const : undefined);
  if (first !== undefined) input.value = write(first);
  input.required = required;
  const part = {
    element: field(label, input, about),
    value: () => {
      try {
        return read(input.value);
      } catch {
        return undefined;
      }
    },
    check: () => {
      wrong(input, problemOf(s, required, input.value, read));
      return !input.hasAttribute("aria-invalid");
    },
    wrong: (path, text) => {
      wrong(input, path.length ? `${path.join(".")}: ${text}` : text);
      return true;
    },
  };
  input.addEventListener("change", part.check);
  // A problem that is fixed disappears at once: later, when the input loses focus, it would move the button that is
  // being clicked.
  input.addEventListener("input", () => {
    if (input.hasAttribute("aria-invalid")) part.check();
  });
  return part;
}

function textInput(s) {
  if (s.format === "date-time") return momentInput();
  const long = s.maxLength > 200 || s.contentMediaType,
    formats = { email: "email", uri: "url", date: "date" };
  const input = long
    ? h("textarea", { rows: 4 })
    : h("input", { type: own(formats, s.format) || "text", autocomplete: "off", placeholder: s.examples?.[0] ?? "" });
  return { input, read: (text) => (text === "" ? undefined : text) };
}

// momentInput asks for a date and a time of day here.
function momentInput() {
  const here = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  return {
    input: h("input", { type: "datetime-local", step: 1 }),
    write: (v) => (Number.isFinite(Date.parse(v)) ? here(Date.parse(v)) : ""),
    read: (text) => (text === "" ? undefined : new Date(text).toISOString()),
  };
}

const ofTexts = (s) => typeOf(s) === "array" && typeOf(s.items) === "string";

function linesInput(s, required) {
  return {
    input: h("textarea", { rows: 4, class: "prose" }),
    write: (v) => [v].flat().join("\n"),
    read: (text) => {
      const list = text
        .split("\n")
        .map((t) => t.trim())
        .filter(Boolean);
      return list.length || (required && !s.minItems) ? list : undefined;
    },
  };
}

function numberInput(s) {
  const input = h("input", {
    inputmode: typeOf(s) === "integer" ? "numeric" : "decimal",
    autocomplete: "off",
    placeholder: s.examples?.[0] ?? "",
  });
  return {
    input,
    write: (v) => (typeof v === "string" ? v : JSON.stringify(v)),
    read: (text) => {
      if (text.trim() === "") return undefined;
      const n = Number(text);
      if (!Number.isFinite(n) || (typeOf(s) === "integer" && !Number.isInteger(n)))
        throw new Error(`Enter a ${typeOf(s) === "integer" ? "whole " : ""}number.`);
      try {
        return parseJSON(text);
      } catch {
        return n;
      } // all its digits, unless only people write it so: 007
    },
  };
}

function enumInput(s) {
  const options = s.enum || [true, false],
    words = { true: "Yes", false: "No" };
  const input = select([["", "–"], ...options.map((o, i) => [String(i), s.enum ? String(o) : words[o]])]);
  return {
    input,
    write: (v) => String(options.findIndex((o) => JSON.stringify(o) === JSON.stringify(v))),
    read: (at) => options[at],
  };
}

function jsonInput(s) {
  const input = h("textarea", { rows: 4, spellcheck: "false", placeholder: typeOf(s) === "array" ? "[]" : "JSON" });
  return {
    input,
    write: (v) => JSON.stringify(v, null, 2),
    read: (text) => (text.trim() === "" ? undefined : parseJSON(text)),
  };
}

// limits describes the constraints on a value.
function limits(s) {
  /** @type {(low?: number, high?: number, count?: (n: number) => string) => string} */
  const between = (low, high, count = String) =>
    low !== undefined && high !== undefined
      ? `${low} to ${count(high)}`
      : low !== undefined
        ? `at least ${count(low)}`
        : high !== undefined
          ? `at most ${count(high)}`
          : "";
  return [
    between(s.minimum, s.maximum),
    between(s.minLength, s.maxLength, (n) => plural(n, "character")),
    between(s.minItems, s.maxItems, (n) => plural(n, "element")),
    s.format,
    s.pattern && "like " + s.pattern,
    ofTexts(s) ? "one in each line" : jsonOnly(s) && !formable(s) && "JSON",
  ]
    .filter(Boolean)
    .join(" · ");
}

const jsonOnly = (s) => !s.enum && !["string", "integer", "number", "boolean"].includes(typeOf(s));

// problemOf returns what is wrong with the text of an input, or "".
function problemOf(s, required, text, read) {
  let v;
  try {
    v = read(text);
  } catch (e) {
    return jsonOnly(s) ? "This is not valid JSON: " + e.message : e.message;
  }
  if (v === undefined) return required ? "This is required." : "";
  if (typeOf(s) === "array" && !Array.isArray(v)) return "Enter a JSON array, in [ ].";
  if (v.length < s.minItems || v.length > s.maxItems) {
    return `Enter ${limits({ type: "null", minItems: s.minItems, maxItems: s.maxItems })}.`;
  }
  if (v < s.minimum || v > s.maximum)
    return `Enter ` + `${limits({ type: "number", minimum: s.minimum, maximum: s.maximum })}.`;
  if (typeof v === "string" && ([...v].length < s.minLength || [...v].length > s.maxLength)) {
    return `Enter ${limits({ type: "string", minLength: s.minLength, maxLength: s.maxLength })}.`;
  }
  return matches(s.pattern, v) ? "" : `This must match ${s.pattern}.`;
}

// matches reports whether a text fits a pattern; unreadable ones are left to the service.
function matches(pattern, v) {
  if (!pattern || typeof v !== "string") return true;
  try {
    return new RegExp(pattern, "u").test(v);
  } catch {
    return true;
  }
}
