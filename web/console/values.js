// Values of any size: JSON as a tree or raw, long texts, and errors with their stack traces. What is large comes into
// the document as it comes into view.

import { button, copyButton, fill, h, number, plural } from "./ui.js";
import { causeOf, readTrace } from "./trace.js";

const LONG = 20_000; // characters of a text that is drawn by lines
const ROW = 18,
  AHEAD = 20; // pixels of such a line, and lines above and below those in view
const CUT = 300; // characters of a string in the tree, and of a line
const PAGE = 100; // members shown at a time

// rawText shows a text, and of a long one only the lines in view. It finds the lines of such a text in pieces of time.
export function rawText(text) {
  if (text.length < LONG) return h("pre.wrap", { tabindex: 0 }, text);
  const lines = [],
    part = h("pre"),
    room = h("div", part);
  let at = 0;
  const read = () => {
    for (const until = performance.now() + 8; at < text.length && performance.now() < until;) {
      for (let i = 0; i < 500 && at < text.length; i++) {
        const end = text.indexOf("\n", at),
          to = Math.min(end < 0 ? text.length : end, at + CUT);
        lines.push(text.slice(at, to));
        at = to + Number(to === end);
      }
    }
    room.style.height = lines.length * ROW + "px";
    view.setAttribute("aria-label", plural(lines.length, "line"));
    if (at < text.length) requestAnimationFrame(read);
  };
  const draw = () => {
    const from = Math.max(0, Math.floor(view.scrollTop / ROW) - AHEAD),
      shown = Math.ceil(view.clientHeight / ROW) + 2 * AHEAD;
    fill(part, lines.slice(from, from + shown).join("\n"));
    part.style.top = from * ROW + "px";
  };
  const view = h("div.lines", { tabindex: 0, role: "region", onscroll: draw }, room);
  read();
  new ResizeObserver(draw).observe(view);
  return view;
}

// jsonTree makes a folding tree of JSON, with buttons to copy it and see it raw. key tells that the value is
// the same as before.
/** @type {(value: any, options?: {open?: number, label?: string, key?: any}) => HTMLElement} */
export function jsonTree(value, { open = 2, label = "JSON", key } = {}) {
  const text = () => JSON.stringify(value, null, 2),
    tree = h("div.tree", treeNode(value, open));
  const raw = button(
    "Raw",
    () => {
      const show = raw.getAttribute("aria-pressed") !== "true";
      raw.ariaPressed = show;
      tree.replaceChildren(show ? rawText(text()) : treeNode(value, open));
    },
    "quiet small",
    { "aria-pressed": "false" },
  );
  return h(
    "div.json",
    { role: "group", "aria-label": label, key, own: true },
    h("div.row.end", raw, copyButton(text)),
    tree,
  );
}

function treeNode(value, open, name) {
  const key = name === undefined ? null : [h("span.name", name), ": "];
  if (value === null || typeof value !== "object" || JSON.isRawJSON?.(value) || Object.keys(value).length === 0) {
    return h("div.leaf", key, treeLeaf(value));
  }
  const list = Array.isArray(value),
    size = Object.keys(value).length;
  const node = h(
    "details",
    { open: open > 0 },
    h("summary", key, h("span.soft", list ? `[ ${plural(size, "element")} ]` : `{ ${plural(size, "member")} }`)),
  );
  const unfold = () => node.children.length < 2 && node.append(treeMembers(Object.entries(value), open - 1));
  if (open > 0) unfold();
  node.addEventListener("toggle", unfold);
  return node;
}

function treeMembers(entries, open, from = 0) {
  const box = h(
    "div.members",
    entries.slice(from, from + PAGE).map(([k, v]) => treeNode(v, open, k)),
  );
  const left = entries.length - from - PAGE;
  if (left > 0) {
    const more = button(
      `${number(left)} more`,
      () => more.replaceWith(treeMembers(entries, open, from + PAGE)),
      "quiet small",
    );
    box.append(more);
  }
  return box;
}

function treeLeaf(value) {
  const kind =
    typeof value === "string" ? "string" : typeof value === "number" || JSON.isRawJSON?.(value) ? "number" : "word";
  if (!(value?.length > CUT)) return h("span", { class: kind }, JSON.stringify(value));
  const more = button(
    `${number(value.length - CUT)} more characters`,
    () => {
      const whole = rawText(value);
      more.parentNode.replaceWith(whole);
      whole.focus();
    },
    "quiet small",
  );
  return h("span", { class: kind }, JSON.stringify(value.slice(0, CUT)), " … ", more);
}

// errorText shows what an error or a program said: the line that says what happened and, folded, the other lines. Of a
// stack trace, the frames of libraries are folded once more.
export function errorText(text, key) {
  const { headline, parts, frames, libraries } = readTrace(text),
    pre = (kind, lines) => h(kind, { tabindex: 0 }, dedent(lines.join("\n")));
  if (!parts.length) return h("p", text);
  const own = frames - libraries,
    said = text.trim().split("\n").length;
  const about = frames
    ? `Stack trace: ${plural(frames, "frame")}` + (own && libraries ? `, ${number(own)} outside libraries` : "")
    : plural(said, "line");
  const cause = causeOf(text);
  return [
    h("p", headline),
    cause && h("p", h("span.soft", "Caused by "), cause),
    h(
      "details.trace",
      { key },
      h("summary", about),
      parts.map((p) =>
        p.words
          ? pre("pre.wrap", [p.words])
          : [
              p.own.length > 0 && pre("pre.wrap", p.own),
              p.library.length > 0 &&
                (own
                  ? h(
                      "details",
                      h("summary", plural(p.library.length, "frame") + " of libraries"),
                      pre("pre", p.library),
                    )
                  : pre("pre", p.library)),
            ],
      ),
      h(
        "div.row.end",
        copyButton(() => text),
      ),
    ),
  ];
}

// dedent removes the white space that all lines begin with.
function dedent(text) {
  const least = Math.min(
    ...text
      .split("\n")
      .filter((l) => l.trim())
      .map((l) => l.search(/\S/)),
  );
  return text.replace(new RegExp(`^\\s{${least}}`, "gm"), "");
}

// errorView shows the error of a step, with its context: texts of several lines as such, the rest as a tree.
export function errorView(error, key) {
  const context = Object.entries(error.context ?? {}),
    long = context.filter(([, v]) => typeof v === "string" && v.trim().includes("\n") && v !== error.message);
  const rest = context.filter(([k, v]) => v !== error.message && !long.some(([name]) => name === k));
  return [
    h(
      "div.problem",
      h("strong", error.error_type),
      errorText(error.message, key),
      long.map(([name, v]) => [h("h4", name), errorText(v, `${key} ${name}`)]),
      h(
        "p.soft",
        [
          error.status_code && `HTTP status ${error.status_code}`,
          error.retryable ? "may be retried" : "final: no retry",
        ]
          .filter(Boolean)
          .join(" · "),
      ),
    ),
    rest.length > 0 && jsonTree(Object.fromEntries(rest), { label: "Context of the error", key }),
  ];
}
