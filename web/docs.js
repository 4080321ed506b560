"use strict";
// The documentation page: it reads the OpenAPI document of its surface, lists the
// operations, and sends requests to them. Text from the document and from
// responses becomes text nodes, never markup.

const base = location.pathname.replace(/\/api-docs(\/.*)?$/, "");
const methods = ["post", "get", "put", "patch", "delete"]; // create first
const byId = (id) => document.getElementById(id);
let api; // the OpenAPI document
const inputs = []; // the path parameters: {field, changed}

// el makes an element. Strings among the children become text nodes.
function el(tag, properties, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name in e) e[name] = value;
    else e.setAttribute(name, value);
  }
  e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

// follow resolves a reference; any other value is returned as it is.
function follow(value) {
  for (let hops = 0; value && value.$ref && hops < 20; hops++) {
    value = value.$ref
      .split("/")
      .slice(1)
      .reduce((v, part) => v && v[part.replace(/~1/g, "/").replace(/~0/g, "~")], api);
  }
  return value || {};
}

// prose renders paragraphs with `code` and **bold**.
function prose(text) {
  const paragraphs = (text || "").split(/\n\s*\n/).filter((p) => p.trim());
  return el(
    "div",
    { className: "prose" },
    paragraphs.map((p) => el("p", {}, inline(p))),
  );
}

function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`")) return el("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return el("strong", {}, part.slice(2, -2));
    return part;
  });
}

// jsonTokens matches strings, numbers, words, punctuation and white space.
const jsonTokens = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[[\]{},:]|\s+|./gs;

// prettyJSON indents JSON and keeps numbers and strings as they are.
function prettyJSON(text) {
  const out = [];
  let depth = 0,
    tokens = text.match(jsonTokens) || [];
  tokens = tokens.filter((t) => t.trim());
  const line = () => out.push(["", "\n" + "  ".repeat(depth)]);
  tokens.forEach((t, i) => {
    const closed = tokens[i + 1] === "}" || tokens[i + 1] === "]";
    if (t === "{" || t === "[") {
      out.push(["", t]);
      depth++;
      if (!closed) line();
    } else if (t === "}" || t === "]") {
      depth = Math.max(depth - 1, 0);
      if (tokens[i - 1] !== "{" && tokens[i - 1] !== "[") line();
      out.push(["", t]);
    } else if (t === ",") {
      out.push(["", t]);
      line();
    } else if (t === ":") {
      out.push(["", ": "]);
    } else {
      out.push([tokenKind(t, tokens[i + 1]), t]);
    }
  });
  return out;
}

function tokenKind(token, next) {
  if (token[0] === '"') return next === ":" ? "name" : "string";
  return /^[-\d]/.test(token) ? "number" : "word";
}

// codeBlock shows text, with colours if it is JSON that is not too large.
function codeBlock(text, isJSON) {
  const pre = el("pre", { tabIndex: 0 });
  if (!isJSON || text.length > 200000) {
    pre.textContent = text;
    return pre;
  }
  for (const [kind, part] of prettyJSON(text)) pre.append(kind ? el("span", { className: kind }, part) : part);
  return pre;
}

// kindOf names the type of a schema.
function kindOf(schema) {
  const s = follow(schema);
  const name = schema.$ref ? schema.$ref.split("/").pop() : "";
  if (s.enum) return name || s.type;
  const choice = s.oneOf || s.anyOf;
  if (choice) return choice.map(kindOf).join(" or ");
  if (s.type === "array") return "list of " + (s.items ? kindOf(s.items) : "anything");
  if ([].concat(s.type).includes("object") && name) return name;
  const type = [].concat(s.type || "anything").join(" or ");
  return name && s.type === "string" ? name : type;
}

// limits describes the constraints on a value.
function limits(s) {
  const parts = [];
  if (s.enum) parts.push("one of " + s.enum.join(", "));
  if (s.const !== undefined) parts.push("always " + JSON.stringify(s.const));
  if (s.minimum !== undefined && s.maximum !== undefined) parts.push(`${s.minimum} to ${s.maximum}`);
  else if (s.minimum !== undefined) parts.push("from " + s.minimum);
  else if (s.maximum !== undefined) parts.push("up to " + s.maximum);
  if (s.maxLength !== undefined) parts.push(`up to ${s.maxLength} characters`);
  if (s.default !== undefined && s.default !== null && s.default !== "")
    parts.push("default " + JSON.stringify(s.default));
  return parts.join(" · ");
}

// described returns a description and the limits of its schema.
function described(text, schema) {
  const rest = limits(schema);
  return text && rest ? `${text.replace(/\.$/, "")} · ${rest}` : text || rest;
}

// membersOf returns the object schemas in a schema: itself, its items or its
// alternatives.
function membersOf(schema) {
  const s = follow(schema);
  if (s.properties) return [s];
  if (s.items) return membersOf(s.items);
  if (s.additionalProperties && typeof s.additionalProperties === "object") return membersOf(s.additionalProperties);
  return (s.oneOf || s.anyOf || []).flatMap(membersOf);
}

// schemaView lists the members of a schema. Nested members are made when they are
// unfolded, because a schema may contain itself.
function schemaView(schema) {
  const tables = membersOf(schema);
  if (!tables.length) {
    return el("p", { className: "prose" }, kindOf(schema), limits(follow(schema)) && " · " + limits(follow(schema)));
  }
  return el(
    "div",
    {},
    tables.map((s, i) => [
      i > 0 ? el("h4", {}, "or") : null,
      el(
        "ul",
        { className: "schema" },
        requiredFirst(s).map(([name, member]) => memberView(s, name, member)),
      ),
    ]),
  );
}

function requiredFirst(s) {
  const optional = ([name]) => Number(!(s.required || []).includes(name));
  return Object.entries(s.properties).sort((a, b) => optional(a) - optional(b));
}

function memberView(owner, name, member) {
  const s = follow(member);
  const about = described(member.description || s.description, s);
  const head = [
    el("span", { className: "member" }, name),
    " ",
    el("span", { className: "kind" }, kindOf(member)),
    (owner.required || []).includes(name) ? null : el("span", { className: "optional" }, " optional"),
    about ? el("span", { className: "about" }, " ", inline(about)) : null,
  ];
  if (!membersOf(member).length) return el("li", {}, head);
  const more = el("details", {}, el("summary", {}, head));
  more.addEventListener("toggle", () => more.children.length < 2 && more.append(schemaView(member)), { once: true });
  return el("li", {}, more);
}

// examplesOf returns the examples of a body by name.
function examplesOf(media) {
  if (media.example !== undefined) return { example: media.example };
  return Object.fromEntries(Object.entries(media.examples || {}).map(([name, e]) => [name, follow(e).value]));
}

function exampleText(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

// operationView makes the card of an operation. Its content is made when it is
// first opened.
function operationView(op) {
  const card = el(
    "details",
    { className: "operation", id: op.operationId },
    el(
      "summary",
      {},
      el("span", { className: "method " + op.method }, op.method.toUpperCase()),
      el("span", { className: "path" }, pathParts(op.path)),
      el("span", { className: "summary" }, op.summary),
      op["x-required-permission"]
        ? el("span", { className: "pill", title: "Required permission" }, op["x-required-permission"])
        : el("span", { className: "pill public" }, op.security?.length ? "any caller" : "public"),
    ),
  );
  card.addEventListener("toggle", () => {
    if (!card.open) return;
    if (card.children.length < 2) card.append(insideOf(op));
    history.replaceState(null, "", "#" + op.operationId);
    markCurrent();
  });
  op.card = card;
  return card;
}

function pathParts(path) {
  return path.split(/(\{[^}]+\})/).map((part) => (part.startsWith("{") ? el("i", {}, part) : part));
}

function insideOf(op) {
  const request = { op, fields: [], body: null };
  const inside = el("div", { className: "inside" }, prose(op.description), parametersView(request), bodyView(request));
  inside.append(...sendView(request), responsesView(op));
  return inside;
}

function parametersView(request) {
  const parameters = (request.op.parameters || []).map(follow);
  if (!parameters.length) return "";
  const views = (headers) =>
    parameters.filter((p) => (p.in === "header") === headers).map((p) => fieldView(request, p));
  const plain = views(false),
    headers = views(true);
  return el(
    "section",
    {},
    el("h3", {}, "Parameters"),
    el(
      "div",
      { className: "fields" },
      plain,
      headers.length ? el("details", {}, el("summary", {}, plain.length ? "Headers" : "Headers only"), headers) : "",
    ),
  );
}

function fieldView(request, p) {
  const s = follow(p.schema),
    id = request.op.operationId + "-" + p.name;
  const input =
    s.enum || s.type === "boolean"
      ? el(
          "select",
          { id },
          ["", ...(s.enum || ["true", "false"])].map((v) => el("option", { value: v }, String(v) || "—")),
        )
      : el("input", {
          id,
          autocomplete: "off",
          spellcheck: false,
          placeholder: p.example === undefined ? "" : String(p.example),
        });
  if (p.required) input.required = true;
  const field = { ...p, input };
  request.fields.push(field);
  input.addEventListener("input", () => {
    field.touched = true;
    request.changed();
  });
  if (p.in === "path") {
    inputs.push({ field, changed: () => request.changed() });
    if (known[p.name]) input.value = known[p.name];
    else if (!/uuid/.test(p.name) && p.example !== undefined) input.value = p.example;
  }
  return el(
    "div",
    { className: "field" },
    el(
      "label",
      { htmlFor: id },
      el("code", {}, p.name),
      p.required ? el("span", { className: "needed", title: "required" }, " *") : "",
      el("span", { className: "kind" }, [p.in, kindOf(p.schema)].join(" · ")),
    ),
    input,
    el("p", { className: "about" }, inline(described(p.description, s))),
  );
}

function bodyView(request) {
  if (!request.op.requestBody) return "";
  const body = follow(request.op.requestBody),
    [type, media] = Object.entries(body.content)[0];
  const examples = examplesOf(media),
    size = (name) => exampleText(examples[name]).length;
  const names = Object.keys(examples).sort((a, b) => size(a) - size(b));
  if (!body.required) names.unshift("");
  const id = request.op.operationId + "-body",
    example = (name) => (name ? exampleText(examples[name]) : "");
  const text = el("textarea", { id, spellcheck: false, value: example(names[0]) });
  const problem = el("p", { className: "problem", role: "status" });
  text.rows = Math.min(Math.max(text.value.split("\n").length + 1, 4), 24);
  request.body = { type, text, problem, required: body.required };
  text.addEventListener("input", () => request.changed());
  const pick = el(
    "select",
    { "aria-label": "Example" },
    names.map((n) => el("option", { value: n }, n || "no body")),
  );
  pick.addEventListener("change", () => {
    text.value = example(pick.value);
    request.changed();
  });
  const schema = el("details", {}, el("summary", {}, "Schema"), schemaView(media.schema));
  return el(
    "section",
    {},
    el(
      "div",
      { className: "row" },
      el("h3", {}, el("label", { htmlFor: id }, "Body"), body.required ? "" : " (optional)"),
      names.length > 1 ? pick : "",
    ),
    text,
    problem,
    body.description ? el("p", { className: "prose" }, inline(body.description)) : "",
    schema,
  );
}

// target builds path and query from the fields. A path parameter without a value
// keeps its placeholder.
function target(request) {
  let path = request.op.path;
  const query = new URLSearchParams();
  for (const f of request.fields) {
    const value = f.input.value.trim();
    if (f.in === "path" && value) path = path.replace("{" + f.name + "}", () => encodeURIComponent(value));
    if (f.in === "query" && value) query.append(f.name, value);
  }
  const text = query.toString();
  return base + path + (text ? "?" + text : "");
}

function headersOf(request) {
  const headers = request.fields
    .filter((f) => f.in === "header" && f.input.value.trim())
    .map((f) => [f.name, f.input.value.trim()]);
  if (hasBody(request)) headers.push(["Content-Type", request.body.type]);
  return headers;
}

const hasBody = (request) => Boolean(request.body && request.body.text.value.trim());

// keyHeader returns the header that the surface reads API keys from.
function keyHeader() {
  const scheme = Object.values((api.components || {}).securitySchemes || {}).find((s) => s.type === "apiKey");
  return scheme ? scheme.name : "X-API-Key";
}

const quoted = (text) => "'" + text.replace(/'/g, "'\\''") + "'";

// curlOf returns the request as a shell command. It names environment variables
// instead of credentials, because commands end up in histories and chats.
function curlOf(request) {
  const method = request.op.method.toUpperCase();
  const parts = [
    "curl -sS" + (method === "GET" ? "" : " -X " + method) + " " + quoted(location.origin + target(request)),
  ];
  if (request.op.security && byId("token").value) parts.push('-H "Authorization: Bearer $STEPWELL_AUTH_TOKEN"');
  else if (request.op.security && byId("key").value) parts.push(`-H "${keyHeader()}: $STEPWELL_API_KEY"`);
  for (const [name, value] of headersOf(request)) parts.push("-H " + quoted(name + ": " + value));
  if (hasBody(request)) parts.push("-d " + quoted(request.body.text.value));
  return parts.join(" \\\n  ");
}

// sendView makes the command, the button, and the place for the response.
function sendView(request) {
  const command = el("pre", { className: "wrap", tabIndex: 0 });
  const place = el("div", { "aria-live": "polite" });
  const send = el("button", { type: "button" }, "Send " + request.op.method.toUpperCase());
  request.changed = () => {
    command.textContent = curlOf(request);
    if (request.body) request.body.problem.textContent = "";
    for (const f of request.fields) f.input.removeAttribute("aria-invalid");
  };
  request.changed();
  commands.push(request.changed);
  send.addEventListener("click", () => submit(request, send, place));
  return [
    el(
      "section",
      {},
      el(
        "div",
        { className: "row" },
        el("h3", {}, "Request"),
        copyButton(() => command.textContent),
        send,
      ),
      command,
    ),
    place,
  ];
}

const commands = []; // functions that rewrite the curl commands

function copyButton(text) {
  const button = el("button", { type: "button", className: "quiet small" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copying failed; select the text instead";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
  return button;
}

// incomplete reports whether a required field is empty, and marks the first one.
function incomplete(request) {
  const missing = request.fields.find((f) => f.required && !f.input.value.trim());
  if (missing) {
    missing.input.setAttribute("aria-invalid", "true");
    missing.input.focus();
    return true;
  }
  if (!request.body) return false;
  let problem = !hasBody(request) && request.body.required ? "A body is required." : "";
  try {
    if (hasBody(request)) JSON.parse(request.body.text.value);
  } catch (e) {
    problem = "Not valid JSON: " + e.message; // sent anyway: the service decides
  }
  request.body.problem.textContent = problem;
  return false;
}

// submit sends the request, and its button then stops it.
async function submit(request, send, place) {
  if (request.stop) return request.stop.abort();
  if (incomplete(request)) return;
  const label = send.textContent,
    began = performance.now();
  request.stop = new AbortController();
  send.textContent = "Stop";
  try {
    const response = await fetch(target(request), {
      method: request.op.method.toUpperCase(),
      headers: withCredential(new Headers(headersOf(request))),
      body: hasBody(request) ? request.body.text.value : undefined,
      signal: request.stop.signal,
      credentials: "omit",
      cache: "no-store",
      redirect: "follow",
    });
    if (typeOf(response).includes("event-stream")) await showStream(response, place);
    else place.replaceChildren(answerView(response, await response.text(), performance.now() - began));
  } catch (e) {
    place.replaceChildren(
      failureView(
        e.name === "AbortError"
          ? "You stopped the request before its response had arrived."
          : "The request failed: " + e.message,
      ),
    );
  } finally {
    send.textContent = label;
    request.stop = null;
  }
}

function withCredential(headers) {
  if (byId("token").value) headers.set("Authorization", "Bearer " + byId("token").value.trim());
  else if (byId("key").value) headers.set(keyHeader(), byId("key").value.trim());
  return headers;
}

const typeOf = (response) => response.headers.get("Content-Type") || "";

function failureView(text) {
  return el("div", { className: "answer bad" }, el("p", { className: "status" }, "No response"), el("p", {}, text));
}

const gradeOf = (status) => (status < 400 ? "good" : status < 500 ? "warn" : "bad");

function answerView(response, text, took) {
  const isJSON = typeOf(response).includes("json");
  if (isJSON) learn(text);
  return answerFrame(
    response,
    el("span", { className: "measure" }, `${Math.max(Math.round(took), 1)} ms · ${sizeText(text)}`),
    () => text,
    text ? codeBlock(text, isJSON) : el("p", { className: "prose" }, "No body."),
  );
}

// answerFrame makes the card of a response around its body.
function answerFrame(response, measure, text, body) {
  const headers = [...response.headers].map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", {}, value)));
  return el(
    "div",
    { className: "answer " + gradeOf(response.status) },
    el(
      "div",
      { className: "row" },
      el("span", { className: "status" }, `${response.status} ${response.statusText}`),
      measure,
      copyButton(text),
    ),
    el(
      "details",
      {},
      el("summary", {}, `${headers.length} headers`),
      el("table", { className: "headers" }, el("tbody", {}, headers)),
    ),
    body,
  );
}

const streamLimit = 100000; // characters of a stream that stay on the page

// showStream shows the events of a stream as they arrive, until it ends or is stopped. A screen
// reader hears of the end only.
async function showStream(response, place) {
  const measure = el("span", { className: "measure", ariaLive: "off" }, "Streaming · 0 events");
  const pre = el("pre", { ariaLive: "off", tabIndex: 0 });
  place.replaceChildren(answerFrame(response, measure, () => pre.textContent, pre));
  let rest = "",
    events = 0,
    end = "ended by the service";
  const count = () => `${events} event${events === 1 ? "" : "s"}`;
  try {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const blocks = (rest + part.value).split("\n\n");
      rest = blocks.pop();
      appendStream(pre, blocks.map((block) => block + "\n\n").join(""));
      events += blocks.filter((block) => /^data:/m.test(block)).length;
      measure.textContent = "Streaming · " + count();
    }
  } catch (e) {
    end = e.name === "AbortError" ? "stopped" : "broken off: " + e.message;
  }
  measure.ariaLive = "polite";
  measure.textContent = `Stream ${end} · ${count()}`;
}

// appendStream adds text, drops the oldest events beyond the limit, and keeps the end in view
// unless the reader has scrolled away from it.
function appendStream(pre, text) {
  const following = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 8;
  const all = pre.textContent + text,
    surplus = all.length - streamLimit;
  pre.textContent = surplus > 0 ? all.slice(all.indexOf("\n\n", surplus) + 2) : all;
  if (following) pre.scrollTop = pre.scrollHeight;
}

function sizeText(text) {
  const bytes = new Blob([text]).size;
  return bytes < 10240 ? bytes + " bytes" : Math.round(bytes / 1024) + " KiB";
}

const known = {}; // ids seen in responses, by the name of the path parameter

// learn copies the first ids in a response into the path parameters that the user
// has not edited, so that the next request can refer to them.
function learn(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return;
  }
  for (const name of new Set(api.pathParameters.filter((n) => /uuid/.test(n)))) {
    const id = find(value, name, 0) || (name === "step_uuid" && find(value, "workflow_step_uuid", 0));
    if (id) known[name] = id;
  }
  for (const { field, changed } of inputs) {
    if (known[field.name] && !field.touched) {
      field.input.value = known[field.name];
      changed();
    }
  }
}

function find(value, name, depth) {
  if (!value || typeof value !== "object" || depth > 3) return "";
  if (typeof value[name] === "string") return value[name];
  for (const inner of Object.values(value).slice(0, 50)) {
    const found = find(inner, name, depth + 1);
    if (found) return found;
  }
  return "";
}

function responsesView(op) {
  return el(
    "section",
    {},
    el("h3", {}, "Responses"),
    Object.entries(op.responses).map(([code, r]) => responseView(code, follow(r))),
  );
}

function responseView(code, response) {
  const row = el(
    "details",
    { className: "response" },
    el(
      "summary",
      {},
      el("span", { className: "code " + gradeOf(Number(code)) }, code),
      el("span", {}, inline(response.description)),
    ),
  );
  row.addEventListener("toggle", () => {
    if (row.open && row.children.length < 2) row.append(responseInside(response));
  });
  return row;
}

function responseInside(response) {
  const headers = Object.entries(response.headers || {}).map(([name, h]) =>
    el("tr", {}, el("td", {}, name), el("td", {}, inline(follow(h).description || ""))),
  );
  const bodies = Object.entries(response.content || {}).map(([type, media]) => [
    el("h4", {}, type),
    schemaView(media.schema),
    Object.entries(examplesOf(media)).map(([name, value]) => [
      el("h4", {}, "Example" + (name === "example" || /^[A-Z]/.test(name) ? "" : ": " + name)),
      codeBlock(exampleText(value), typeof value !== "string"),
    ]),
  ]);
  return el(
    "div",
    {},
    bodies,
    headers.length ? [el("h4", {}, "Headers"), el("table", { className: "headers" }, el("tbody", {}, headers))] : "",
  );
}

// readOperations returns the operations by tag, in the order of the document.
function readOperations() {
  const all = [];
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of methods) if (item[method]) all.push({ ...item[method], path, method });
  }
  api.pathParameters = all
    .flatMap((op) => (op.parameters || []).map(follow))
    .filter((p) => p.in === "path")
    .map((p) => p.name);
  return (api.tags || [])
    .map((tag) => ({ ...tag, operations: all.filter((op) => (op.tags || [])[0] === tag.name) }))
    .filter((group) => group.operations.length);
}

function show(groups) {
  const operations = groups.flatMap((g) => g.operations);
  document.title = api.info.title;
  byId("title").textContent = api.info.title;
  byId("version").textContent = api.info.version;
  byId("keyheader").textContent = keyHeader();
  byId("intro").replaceChildren(
    el("h1", {}, api.info.summary || api.info.title),
    prose(api.info.description),
    el(
      "p",
      { className: "facts" },
      `${operations.length} operations · `,
      el("code", {}, location.origin + base),
      " · ",
      el("a", { href: base + "/api-docs/openapi.json" }, "openapi.json"),
    ),
  );
  for (const group of groups) {
    group.section = el(
      "section",
      { className: "group" },
      el("h2", {}, group.name),
      el("p", {}, inline(group.description || "")),
      group.operations.map(operationView),
    );
    byId("operations").append(group.section);
    group.heading = el("h2", {}, group.name);
    for (const op of group.operations) {
      op.link = el(
        "a",
        { href: "#" + op.operationId, title: op.path },
        el("span", { className: "method " + op.method }, op.method.toUpperCase()),
        op.summary,
      );
      op.link.addEventListener("click", (e) => {
        e.preventDefault();
        open(op);
      });
    }
    byId("contents").append(group.heading, ...group.operations.map((op) => op.link));
  }
  const none = el("p", { className: "none", hidden: true, role: "status" }, "No operation matches.");
  byId("operations").append(none);
  byId("filter").addEventListener("input", () => filter(groups, none));
  openHash(operations);
  addEventListener("hashchange", () => openHash(operations));
}

function filter(groups, none) {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const group of groups) {
    for (const op of group.operations) {
      const text = [op.method, op.path, op.summary, op.operationId, op["x-required-permission"], group.name]
        .join(" ")
        .toLowerCase();
      op.card.hidden = op.link.hidden = !words.every((w) => text.includes(w));
    }
    group.section.hidden = group.heading.hidden = group.operations.every((op) => op.card.hidden);
  }
  none.hidden = groups.some((group) => !group.section.hidden);
}

function open(op) {
  op.card.open = true;
  op.card.scrollIntoView();
  op.card.firstChild.focus({ preventScroll: true });
}

function openHash(operations) {
  const op = operations.find((o) => "#" + o.operationId === location.hash);
  if (op) open(op);
}

function markCurrent() {
  for (const link of byId("contents").querySelectorAll("a")) {
    if (link.hash === location.hash) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// Light, dark, or the system's setting.
const themes = ["auto", "light", "dark"];

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
  byId("theme").setAttribute("aria-label", `Colours: ${theme}`);
}

function stored(value) {
  try {
    if (value) localStorage.setItem("stepwell-theme", value);
    return themes.includes(localStorage.getItem("stepwell-theme")) ? localStorage.getItem("stepwell-theme") : "auto";
  } catch {
    return value || "auto"; // the browser denies storage
  }
}

function begin() {
  let theme = stored();
  setTheme(theme);
  byId("theme").addEventListener("click", () => {
    theme = stored(themes[(themes.indexOf(theme) + 1) % themes.length]);
    setTheme(theme);
  });
  const credentials = byId("credentials"),
    panel = byId("panel");
  credentials.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    credentials.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) byId("token").focus();
  });
  const changed = () => {
    credentials.classList.toggle("set", Boolean(byId("token").value || byId("key").value));
    commands.forEach((write) => write());
  };
  byId("token").addEventListener("input", changed);
  byId("key").addEventListener("input", changed);
  byId("forget").addEventListener("click", () => {
    byId("token").value = byId("key").value = "";
    changed();
  });
  addEventListener("keydown", (e) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName);
    if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      byId("filter").focus();
    } else if (e.key === "Escape" && e.target === byId("filter")) {
      byId("filter").value = "";
      byId("filter").dispatchEvent(new Event("input"));
    }
  });
}

async function load() {
  try {
    const response = await fetch(base + "/api-docs/openapi.json", { cache: "no-cache" });
    if (!response.ok) throw new Error(`The service answered with status ${response.status}.`);
    api = await response.json();
    show(readOperations());
  } catch (e) {
    const again = el("button", { type: "button" }, "Try again");
    again.addEventListener("click", () => location.reload());
    byId("intro").replaceChildren(
      el("h1", {}, "The OpenAPI document could not be loaded"),
      el("p", { role: "alert" }, e.message),
      again,
    );
  }
}

begin();
load();
