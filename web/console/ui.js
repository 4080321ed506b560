// The parts that all pages are made of.

import * as api from "./api.js";
import { fill, h, patch, visible } from "./patch.js";

export { fill, h, patch, visible };

// States.

// shapes are the signs of states, in a square of 16 by 16.
const shapes = {
  circle: "M8 3a5 5 0 1 0 0 10a5 5 0 1 0 0-10",
  dots: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  play: "M5 3.5v9l7-4.5z",
  clock: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3.2l2 1.3",
  retry: "M12.8 6.5A5 5 0 1 0 13 9M13 3v3.6H9.4",
  cross: "M4 4l8 8M12 4l-8 8",
  bang: "M8 3v6.2M8 12.6v.01",
  check: "M3 8.5l3.4 3.4L13 4.6",
  slash: "M8 3a5 5 0 1 0 0 10a5 5 0 1 0 0-10M4.6 11.4l6.8-6.8",
  hand: "M3 8.2l2.6 2.6L9 6.4M8 12l6-6.8",
};

// states has the colour, the sign and the word of every state of tasks and steps.
export const states = {
  pending: ["idle", "circle", "Pending"],
  initializing: ["run", "dots", "Starting"],
  enqueuing_steps: ["run", "dots", "Starting steps"],
  steps_in_process: ["run", "play", "In progress"],
  evaluating_results: ["run", "dots", "Evaluating"],
  waiting_for_dependencies: ["wait", "clock", "Waiting"],
  waiting_for_retry: ["wait", "retry", "Waiting to retry"],
  blocked_by_failures: ["bad", "bang", "Blocked"],
  complete: ["good", "check", "Complete"],
  error: ["bad", "cross", "Failed"],
  cancelled: ["off", "slash", "Cancelled"],
  resolved_manually: ["good", "hand", "Resolved"],
  enqueued: ["wait", "clock", "Ready"],
  in_progress: ["run", "play", "Running"],
  enqueued_for_orchestration: ["run", "dots", "Finishing"],
  enqueued_as_error_for_orchestration: ["run", "dots", "Finishing"],
};

// look returns {tone, sign, word} of a state; sign is the data of an SVG path.
export function look(name) {
  const [tone, shape, word] = states[name] || ["idle", "circle", String(name)];
  return { tone, sign: shapes[shape], word };
}

export function state(name) {
  const { tone, sign, word } = look(name);
  return h(
    "span",
    { class: "state " + tone, title: name },
    h("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, h("path", { d: sign })),
    word,
  );
}

export const ended = (name) => ["complete", "error", "cancelled", "resolved_manually"].includes(name);

// Times.

// instant returns the milliseconds of a time, in UTC if it has no zone.
export const instant = (text) => Date.parse(/Z|[+-]\d\d:\d\d$/.test(text) ? text : text + "Z");

// duration returns a length of time, such as "340 ms", "2.5 s", "3 min 20 s" or "2 d 4 h".
export function duration(ms) {
  if (ms < 0) ms = 0;
  if (ms < 1) return ms === 0 ? "0 ms" : "< 1 ms";
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 59_950) return (ms / 1000).toFixed(ms < 9950 ? 1 : 0).replace(/\.0$/, "") + " s";
  /** @type {[number, string][]} */
  const units = [
    [86_400_000, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
  ];
  const i = units.findIndex(([size]) => ms >= size);
  const [[size, unit], [small, smaller]] = [units[i], units[Math.min(i + 1, 3)]];
  const rest = Math.floor((ms % size) / small);
  return `${Math.floor(ms / size)} ${unit}` + (rest ? ` ${rest} ${smaller}` : "");
}

function agoText(at, since) {
  const ms = api.now() - at;
  if (since) return "for " + duration(Math.max(Math.floor(ms / 1000), 0) * 1000).replace("0 ms", "0 s");
  if (ms < -1000) return "in " + duration(Math.round(-ms / 1000) * 1000);
  if (ms < 1500) return "just now";
  return (
    duration(ms < 60_000 ? Math.floor(ms / 1000) * 1000 : Math.floor(ms / 60_000) * 60_000).replace(
      /(\d+ h) .*/,
      "$1",
    ) + " ago"
  );
}

// timeForms are the forms of times, all with their zone.
const zoned = (timeZone) =>
  new Intl.DateTimeFormat(undefined, {
    timeZone,
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
  });
export const timeForms = {
  local: { label: "Local times", format: (at) => zoned().format(at) },
  utc: { label: "UTC", format: (at) => zoned("UTC").format(at) },
  iso: { label: "ISO 8601", format: (at) => new Date(at).toISOString() },
};
let timeForm = api.setting("times");

// times returns the name of the form that is chosen, and chooseTimes chooses one.
export const times = () => (timeForms[timeForm] ? timeForm : "local");
export const chooseTimes = (name) => {
  timeForm = name;
  api.setting("times", name);
};

// when returns a time of the service in the form that is chosen.
export const when = (text) => timeForms[times()].format(instant(text));

const brief = (local, options) => ({
  true: new Intl.DateTimeFormat(undefined, options),
  false: new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC", ...local }),
});
const clocks = brief({ timeZoneName: "short" }, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const days = brief({}, { day: "numeric", month: "short" });

// timeOfDay and dayOf return the parts of a time in the form that is chosen: local, or in UTC, which they say.
export const timeOfDay = (at) => clocks[times() === "local"].format(at);
export const dayOf = (at) => days[times() === "local"].format(at);

// ago makes a time that says how long ago it is and keeps saying so; with since, for how long.
export function ago(text, since = false) {
  if (!text) return "–";
  return h(
    "time.ago",
    { "data-since": since, datetime: new Date(instant(text)).toISOString(), title: when(text) },
    agoText(instant(text), since),
  );
}

function refreshTimes() {
  for (const e of document.querySelectorAll("time.ago")) {
    const text = agoText(Date.parse(e.dateTime), "since" in e.dataset);
    if (e.textContent !== text) e.textContent = text;
  }
}
setInterval(() => document.hidden || refreshTimes(), 1000);
api.signals.addEventListener("clock", refreshTimes);

export const number = (n) => n.toLocaleString("en");

// plural returns a count with its noun: plural(1, "task") is "1 task".
export const plural = (n, noun, nouns = noun + "s") => `${number(n)} ${n === 1 ? noun : nouns}`;

// shortId returns the end of a UUID, since ids made at one time begin alike.
export const shortId = (id) => id.slice(-8);

// Controls.

// button makes a button; kind is "primary", "quiet", "danger" or "small" or several of them. One with another text is
// another button, unless it has a key: nobody presses what it has just become.
export const button = (label, onclick, kind = "quiet", props = {}) =>
  h("button", { type: "button", class: kind, onclick, key: label, ...props }, label);

// allowed returns a button that needs a permission. Without it, the button is disabled and says
// which permission is missing.
export function allowed(permission, label, onclick, kind = "quiet", props = {}) {
  return allowedAll(permission, [[label, onclick, kind, props]]);
}

// allowedAll returns buttons for one permission, and says once that it is missing.
export function allowedAll(permission, list) {
  if (api.can(permission)) return list.map((b) => button(...b));
  const id = uid("why");
  return h(
    "span.denied",
    list.map(([label, , kind, props]) =>
      button(label, null, kind, { ...props, disabled: true, "aria-describedby": id }),
    ),
    needs(permission, id),
  );
}

// needs says which permission is missing.
export const needs = (permission, id) => h("span", { id, class: "why" }, "needs ", h("code", permission));

// choice is a setting that is on or off: choice("no-keys")() reads it, and choice("no-keys")(on) sets it.
export const choice = (name) => (on) => {
  const kept = api.setting(name, on);
  return kept === null ? (on ?? false) : kept === "true";
};

// clip shows a name, of a long one as much as two lines hold; pointing at it tells all.
export const clip = (text, kind = "span") => h(kind + ".clip", { title: text }, text);

let ids = 0;

// templatePath returns the path of a template, below /v1/templates/ and /console/templates/.
export const templatePath = (t) => [t.namespace, t.name, t.version].map(encodeURIComponent).join("/");

// uid returns an id that no other element has.
export const uid = (prefix = "id") => `${prefix}-${++ids}`;

// link makes a link to a page of the console, by its path below /console.
export const link = (path, children, props = {}) => h("a", { href: api.root + "/console" + path, ...props }, children);

// copyButton makes a button that copies the text that text() returns.
export function copyButton(text, kind = "quiet small", label = "Copy") {
  return button(
    label,
    async ({ currentTarget: b }) => {
      try {
        await navigator.clipboard.writeText(text());
        b.textContent = "Copied";
      } catch {
        b.textContent = "Copying failed";
      }
      setTimeout(() => {
        b.textContent = label;
      }, 1500);
    },
    kind,
  );
}

// command makes a text to copy, with its label.
export const command = (label, text) =>
  h(
    "div.command",
    h(
      "div.row",
      h("h4", label),
      copyButton(() => text),
    ),
    h("pre.wrap", { tabindex: 0 }, text),
  );

// showCommands fills a details element with commands to copy, [label, text] pairs.
export const showCommands = (details, pairs) =>
  fill(
    details,
    h("summary", "The same as a command"),
    pairs.map((c) => command(...c)),
  );

// field makes a labelled input with help. The input is an element.
export function field(label, input, help) {
  input.id ||= uid("field");
  if (help) input.setAttribute("aria-describedby", input.id + "-help");
  return h(
    "div.field",
    h("label", { for: input.id }, label),
    input,
    help && h("p.help", { id: input.id + "-help" }, help),
    h("p.wrong", { id: input.id + "-wrong" }),
  );
}

// readJSON returns the value that an input holds, or undefined, with the problem at the input. none is the JSON text
// for an empty one.
export function readJSON(input, none = "") {
  try {
    wrong(input, "");
    return api.parseJSON(input.value.trim() || none);
  } catch (e) {
    wrong(input, "This is not valid JSON: " + e.message);
    return undefined;
  }
}

// wrong shows a problem at an input made by field; "" takes it away.
export function wrong(input, text) {
  const place = input.ownerDocument.getElementById(input.id + "-wrong");
  if (place) place.textContent = visible(text);
  input.ariaInvalid = text ? "true" : null;
}

// select makes a list to choose from, of values or [value, label] pairs.
export function select(options, value, onchange, props = {}) {
  return h(
    "select",
    { onchange: (e) => onchange?.(e.currentTarget.value), value, ...props },
    options.map((o) => h("option", { value: [o].flat()[0] }, String([o].flat().at(-1)))),
  );
}

// table makes a table with a caption for screen readers, columns ([label, class] or label) and rows: lists of cells, or
// {key, class, cells}. A column without a label has actions. On a phone, each row becomes a block with the labels
// beside its cells.
export function table(caption, columns, rows, kind = "") {
  const heads = columns.map((c) => [c].flat());
  return h(
    "div.scroll",
    { tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      { class: "list " + kind },
      h("caption.hidden", caption),
      h(
        "thead",
        h(
          "tr",
          heads.map(([label, of]) => h("th", { scope: "col", class: of }, label || h("span.hidden", "Actions"))),
        ),
      ),
      h(
        "tbody",
        rows.map((r) =>
          h(
            "tr",
            { key: r.key, "data-id": r.key, class: r.class },
            (r.cells || r).map((cell, i) =>
              h(
                "td",
                { class: heads[i][1], "data-label": typeof heads[i][0] === "string" ? heads[i][0] || null : null },
                cell,
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

// bars draws shares of a total: [tone, number].
export function bars(parts, total) {
  let x = 0;
  return h(
    "svg.bars",
    { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("rect.base", { width: 100, height: 6 }),
    parts.map(([tone, n]) => {
      const width = total ? (100 * n) / total : 0;
      return h("rect", { class: tone, x: (x += width) - width, width, height: 6 });
    }),
  );
}

// legend names the colours of a drawing: [tone, words].
export const legend = (entries) =>
  h(
    "p.legend",
    entries.map(([tone, words]) => h("span", h("span", { class: "swatch " + tone, "aria-hidden": "true" }), words)),
  );

// chips makes buttons for the values of a filter: [value, label, tone, properties].
export const chips = (label, options, isChosen, choose) =>
  h(
    "div.chips",
    { role: "group", "aria-label": label },
    options.map(([value, text, tone = "", props = {}]) =>
      button(text, () => choose(value), `chip ${tone}`, {
        key: String(value),
        "aria-pressed": String(isChosen(value)),
        ...props,
      }),
    ),
  );

// pair returns a label and its value, if there is one, for a list of pairs.
export const pair = (label, value) => value && [h("dt", label), h("dd", value)];

// pairs shows values by their names, in one line, such as what a task is about.
export const pairs = (values) =>
  values &&
  Object.keys(values).length > 0 &&
  h(
    "dl.about-pairs",
    Object.entries(values).map(([name, v]) => [
      h("dt", name),
      clip(typeof v === "string" ? v : JSON.stringify(v), "dd"),
    ]),
  );

// tabs makes tabs of {name: function that makes the content}, which run when they are first
// shown. What is scrolled in a panel stays so. It returns the element; its show(name) switches.
export function tabs(label, parts, chosen = Object.keys(parts)[0], onswitch) {
  const names = Object.keys(parts),
    base = uid("tab"),
    made = {},
    scrolled = {};
  let shown;
  const panel = h("div.tabpanel", { role: "tabpanel", id: base + "-panel", tabindex: 0 });
  const heads = names.map((name, i) =>
    h(
      "button",
      { type: "button", role: "tab", id: `${base}-${i}`, "aria-controls": base + "-panel", onclick: () => show(name) },
      name,
    ),
  );
  const show = (name) => {
    heads.forEach((e, i) => {
      e.ariaSelected = names[i] === name;
      e.tabIndex = names[i] === name ? 0 : -1;
      if (names[i] === name) panel.setAttribute("aria-labelledby", e.id);
    });
    scrolled[shown] = [...panel.querySelectorAll("*")]
      .filter((e) => e.scrollTop || e.scrollLeft)
      .map((e) => [e, e.scrollLeft, e.scrollTop]);
    panel.replaceChildren((made[(shown = name)] ||= parts[name]()));
    for (const [e, left, top] of scrolled[name] ?? []) e.scrollTo(left, top);
    onswitch?.(name);
  };
  const move = (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    const i = (heads.indexOf(document.activeElement) + step + heads.length) % heads.length;
    show(names[i]);
    heads[i].focus();
    e.preventDefault();
  };
  const root = h("div.tabs", h("div.tablist", { role: "tablist", "aria-label": label, onkeydown: move }, heads), panel);
  root.show = show;
  show(chosen);
  return root;
}

// dialog opens a modal dialog with a heading and content. Escape and close() end it.
export function dialog(heading, ...content) {
  const id = uid("dialog");
  /** @type {any} */
  const before = document.activeElement;
  const e = h(
    "dialog",
    { "aria-labelledby": id, class: "dialog" },
    h(
      "div.row",
      h("h2", { id }, heading),
      button("Close", () => e.close(), "quiet small"),
    ),
    content,
  );
  e.addEventListener("close", () => {
    e.remove();
    if (before?.isConnected) before.focus();
  });
  e.addEventListener("click", (click) => {
    if (click.target === e) e.close();
  });
  document.body.append(e);
  e.showModal();
  return e;
}

// onCredential calls f once there is another credential.
export const onCredential = (f) => api.signals.addEventListener("credential", f, { once: true });

// actForm makes a form that says what it will do, with fields, the same as commands to copy, and a button, which may
// need a permission. fields are elements made by field, and input that of a result among them; commands() returns
// [label, text] pairs for the present values. submit() does it, and done() takes what that returned. What is refused is
// said at the inputs, or at place; after a refused credential it continues once there is another.
/** @param {Record<string, any>} options */
export function actForm({
  about,
  fields = [],
  input,
  commands,
  action,
  more,
  danger,
  needs: permission,
  submit,
  done,
}) {
  const place = h("div", { role: "alert" }),
    texts = h("details.commands"),
    kind = danger ? "danger" : "primary";
  const write = () => commands && showCommands(texts, commands());
  const run = async () => {
    if ((input && !input.check()) || !form.reportValidity()) return;
    send.disabled = true;
    try {
      const result = await submit();
      await done?.(result);
      place.replaceChildren();
    } catch (error) {
      place.replaceChildren(...(input && input.refused(error) ? [] : [problem(error)]));
      if (error.status === 401) onCredential(() => form.isConnected && run());
    }
    send.disabled = false;
  };
  const form = h(
    "form.form",
    {
      novalidate: true,
      oninput: (e) => {
        if (place.contains(e.target)) return; // of a credential
        place.replaceChildren();
        write();
      },
      onsubmit: (e) => {
        e.preventDefault();
        if (e.target === form) run();
      },
    },
    about && h("p.about", about),
    fields,
    commands && texts,
    h(
      "div.row.end",
      place,
      more,
      permission
        ? allowed(permission, action, null, kind, { type: "submit" })
        : button(action, null, kind, { type: "submit" }),
    ),
  );
  const send = form.querySelector("[type=submit], .denied button");
  write();
  return Object.assign(form, { place, send, write });
}

// confirmForm opens a dialog with an actForm. It resolves to what submit returned, or undefined if it was closed.
/** @type {(options: Record<string, any>) => Promise<any>} */
export const confirmForm = ({ heading, ...options }) =>
  new Promise((resolve) => {
    let result;
    const form = actForm({
        ...options,
        done: (r) => {
          result = r;
          box.close();
        },
      }),
      box = dialog(heading, form);
    box.addEventListener("close", () => resolve(result));
    (form.querySelector("input, textarea, select") || form.send).focus();
  });

// toast shows a short message for some seconds, which screen readers read.
export function toast(text, tone = "good") {
  const e = h("div", { class: "toast " + tone }, text),
    place = document.getElementById("toasts");
  place.append(e);
  if (place.children.length > 3) place.firstChild.remove();
  setTimeout(() => e.remove(), 6000);
}

// empty makes the content of a page without data: what is missing, and what to do.
export const empty = (heading, about, ...actions) =>
  h("div.empty", h("h2", heading), about && h("p", about), actions.length > 0 && h("div.row.center", actions));

// loading makes what is shown until there is an answer; it appears after a moment only.
export const loading = (text = "Loading …") => h("p.loading", { role: "status" }, text);

// problem makes the message about an error. For a missing credential it has the form for one. again() tries
// once more what may work later.
export function problem(error, again) {
  if (!(error instanceof api.ApiError)) console.error(error);
  if (error.status === 401) return signIn(error);
  return h(
    "div.problem",
    { role: "alert" },
    h("strong", problemHeading(error)),
    h("p", error.message),
    error.details?.length > 0 &&
      h(
        "ul",
        error.details.map((d) => h("li", d.field && h("code", d.field), " ", d.message)),
      ),
    error.requestId && h("p.soft", "Request ", h("code", error.requestId)),
    again && !(error.status > 0 && error.status < 429) && h("div.row", button("Try again", again, "quiet small")),
  );
}

function problemHeading(error) {
  const headings = {
    0: "No connection",
    403: "Not allowed",
    404: "Not found",
    409: "Conflict",
    413: "Too large",
    421: "Unknown address",
    422: "Not valid",
    429: "Too many requests",
    503: "Not available now",
  };
  return headings[error.status] || (error.status ? "That did not work" : "The page has an error");
}

// signIn makes the form for a credential.
export function signIn(error) {
  const had = api.credential();
  const kind = select(
    [
      ["token", "Bearer token"],
      ["key", `API key (${api.service.keyHeader})`],
    ],
    had?.kind || "token",
  );
  const value = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const save = (e) => {
    e.preventDefault();
    if (value.value.trim()) api.setCredential({ kind: kind.value, value: value.value.trim() });
  };
  return h(
    "form.card.form.signin",
    { onsubmit: save },
    h("h2", had ? "This credential was refused" : "Credentials needed"),
    h(
      "p.about",
      error ? error.message + ". " : "",
      "What you enter is sent to this service only and forgotten when this tab is closed.",
    ),
    field("Kind", kind),
    field("Credential", value),
    h(
      "div.row.end",
      had && button("Forget it", () => api.setCredential(null)),
      h("button", { type: "submit", class: "primary" }, "Use it"),
    ),
  );
}
