// The page that starts a task: a form by the input schema, or a JSON editor.

import * as api from "./api.js";
import { SchemaForm, formable, pathOf } from "./schema.js";
import { actForm, button, empty, field, fill, h, link, readJSON, select, templatePath, wrong } from "./ui.js";

export async function show(root, { params, query, go, signal, title, kept }) {
  const from = query.get("from");
  const [{ templates }, again] = await Promise.all([
    api.get("/v1/templates", { signal }),
    from && api.get("/v1/tasks/" + from, { signal }),
  ]);
  if (!templates.length)
    return fill(
      root,
      h("h1", "Start a task"),
      empty("No templates", "The service has no templates. Start it with --templates DIR."),
    );
  const at = again || (params.name && params) || templates.find((t) => t.name === "diamond") || templates[0];
  const template = await api.get("/v1/templates/" + templatePath(at), { signal });
  title("Start " + template.name);
  const choice = select(
    templates.map((t) => [templatePath(t), `${t.namespace}/${t.name}@${t.version}`]),
    templatePath(at),
    (to) => go("/start/" + to, { replace: true }),
  );
  fill(
    root,
    h("h1", again ? "Start again, with changes" : "Start a task"),
    h(
      "div.start",
      h("div.form", field("Template", choice, template.description), new StartForm(template, again, go, kept).element),
    ),
  );
}

// StartForm asks for what a request to create a task has.
class StartForm {
  kept;
  template;
  constructor(template, again, go, kept) {
    Object.assign(this, { template, kept });
    const config = template.configuration || {},
      schema = config.input_schema;
    const draft = kept.draft?.of === templatePath(template) ? kept.draft : {};
    const context = draft.context ?? (again?.context_redacted ? {} : (again?.context ?? config.default_context ?? {}));
    this.keyed = config.identity_strategy === "caller_provided";
    this.text = h("textarea", {
      rows: Math.min(Math.max(JSON.stringify(context, null, 2).split("\n").length + 2, 6), 24),
      spellcheck: "false",
      value: JSON.stringify(context, null, 2),
    });
    this.schema = formable(schema) && new SchemaForm(schema, context);
    this.options(again);
    for (const [name, text] of Object.entries(draft.texts ?? {})) this.inputs[name].value = text;
    if (draft.text) this.text.value = draft.text;
    this.element = actForm({
      action: "Start the task",
      needs: "tasks:create",
      input: this,
      fields: [again && this.origin(again), this.body(), this.more],
      commands: () => this.commands(),
      submit: () => api.post("/v1/tasks", this.request()),
      done: (made) => {
        delete kept.draft;
        go("/tasks/" + made.task_uuid);
      },
    });
    this.element.addEventListener("input", () => this.keep());
  }

  // keep keeps what is typed for when the person comes back to this page.
  keep() {
    const texts = Object.fromEntries(Object.entries(this.inputs).map(([name, input]) => [name, input.value]));
    this.kept.draft = {
      of: templatePath(this.template),
      texts,
      context: this.editing ? undefined : this.schema.value(),
      text: this.editing ? this.text.value : "",
    };
  }

  origin(again) {
    return h(
      "p.help",
      again.context_redacted ? "The context is hidden from you, so this begins empty; " : "As for task ",
      link("/tasks/" + again.task_uuid, again.context_redacted ? "the task" : again.task_uuid.slice(-8)),
      ".",
    );
  }

  // body holds the form, if the schema allows one, or else the editor.
  body() {
    this.editing = !this.schema;
    const editor = field("Context", this.text, "A JSON object that every step can read.");
    if (!this.schema) return editor;
    const box = h("div.form", this.schema.element);
    const flip = button(
      "Edit as JSON",
      () => {
        if (this.editing) {
          const value = this.parsed();
          if (value === undefined) return;
          this.schema = new SchemaForm(this.template.configuration.input_schema, value);
        } else this.text.value = JSON.stringify(this.schema.value(), null, 2);
        this.editing = !this.editing;
        flip.textContent = this.editing ? "Back to the form" : "Edit as JSON";
        fill(box, this.editing ? editor : this.schema.element);
        this.element.write();
      },
      "quiet small",
    );
    return h("section.card.form", { "aria-label": "Input" }, h("div.row", h("h2", "Input"), flip), box);
  }

  options(again) {
    this.key = h("input", { autocomplete: "off" });
    this.reason = h("input", { value: again ? "Started again with changes" : "" });
    this.tags = h("input", { value: (again?.tags || []).join(", ") });
    this.priority = h("input", { type: "number", min: -100, max: 100, value: again?.priority ?? 0 });
    this.inputs = { idempotency_key: this.key, reason: this.reason, tags: this.tags, priority: this.priority };
    const rest = [
      field("Reason", this.reason),
      field("Tags", this.tags, "Separated by commas."),
      field("Priority", this.priority, "-100 to 100; higher runs first."),
    ];
    const key = field(
      "Key",
      this.key,
      this.keyed
        ? "This template needs a key: a second task with it is refused."
        : "A second task with the same key is refused.",
    );
    this.more = h(
      "div.form",
      this.keyed && key,
      h(
        "details",
        { open: Boolean(again) },
        h("summary", this.keyed ? "Reason, tags and priority" : "Reason, tags, priority and key"),
        h("div.form.grid", rest, !this.keyed && key),
      ),
    );
  }

  // parsed returns what the editor holds, or undefined, with the problem at the editor.
  parsed() {
    const value = readJSON(this.text, "{}");
    if (value === undefined || (value && typeof value === "object" && !Array.isArray(value))) return value;
    wrong(this.text, "The context must be a JSON object, in { }.");
    return undefined;
  }

  request() {
    const { namespace, name, version } = this.template,
      tags = this.tags.value
        .split(",")
        .map((t) => t.trim())
        .filter(Boolean);
    return {
      namespace,
      name,
      version,
      context: this.editing ? this.parsed() : this.schema.value(),
      ...(this.reason.value && { reason: this.reason.value }),
      ...(tags.length && { tags }),
      ...(Number(this.priority.value) && { priority: Number(this.priority.value) }),
      ...(this.key.value && { idempotency_key: this.key.value }),
    };
  }

  commands() {
    const body = this.request(),
      { namespace, name, version } = this.template;
    if (body.context === undefined) return [];
    const words = ["task", "create", `${namespace}/${name}@${version}`, "--context", JSON.stringify(body.context)];
    for (const tag of body.tags || []) words.push("--tag", tag);
    if (body.reason) words.push("--reason", body.reason);
    if (body.priority) words.push("--priority", String(body.priority));
    if (body.idempotency_key) words.push("--idempotency-key", body.idempotency_key);
    return [
      ["curl", api.curl("POST", "/v1/tasks", body)],
      ["Command line", api.cli(...words)],
    ];
  }

  // check shows what is wrong at the inputs, and moves the focus to the first; true if nothing is.
  check() {
    for (const input of Object.values(this.inputs)) wrong(input, "");
    const good = this.editing ? this.parsed() !== undefined : this.schema.check();
    if (!good && this.editing) this.text.focus();
    if (good && this.keyed && !this.key.value) {
      wrong(this.key, "Enter a key.");
      this.key.focus();
      return false;
    }
    return good;
  }

  // refused shows an error at the fields that it names, and reports whether that is all.
  refused({ details = [] }) {
    const other = details.filter((d) => !this.atField(d));
    this.element.querySelector("[aria-invalid]")?.focus();
    return details.length > 0 && !other.length;
  }

  atField({ field: name, message }) {
    const path = pathOf(name || ""),
      input = Object.hasOwn(this.inputs, path[0]) && this.inputs[path[0]];
    if (input) wrong(input, message);
    else if (path[0] !== "context") return false;
    else if (this.editing) wrong(this.text, `${path.slice(1).join(".") || "context"}: ${message}`);
    else return this.schema.wrong(path.slice(1), message);
    return true;
  }
}
