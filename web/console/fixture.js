// Fixture mode: the virtual clock and what is due, stubs, requests, reset.

import * as api from "./api.js";
import {
  button,
  clip,
  confirmForm,
  dialog,
  duration,
  empty,
  fill,
  h,
  instant,
  link,
  number,
  plural,
  problem,
  state,
  table,
  tabs,
  toast,
  when,
} from "./ui.js";
import { jsonTree } from "./values.js";

const base = "/_stepwell/";

export async function show(root, { query, signal, remember, renew }) {
  if (!api.service.fixture) {
    return fill(
      root,
      h("h1", "Fixture mode"),
      empty(
        "Fixture mode is off",
        "Start the service with --fixture, and tests control its clock and script its " + "steps.",
      ),
    );
  }
  const clock = new Clock(signal);
  await clock.load();
  renew(clock.soon);
  fill(
    root,
    h(
      "div.row",
      h("h1", "Fixture mode"),
      button("Reset …", () => reset(clock)),
    ),
    clock.element,
    tabs(
      "Fixture",
      { Stubs: () => section(stubs, signal), Requests: () => section(requests, signal) },
      query.get("tab") || "Stubs",
      (name) => remember(name === "Stubs" ? "" : "tab=" + name),
    ),
  );
}

// section makes the content of a tab. read(place, again) fills it, and again(act) does something first, if it is given,
// and says what is refused.
function section(read, signal) {
  const place = h("div.view");
  const again = async (act) => {
    try {
      await act?.();
      await read(place, again);
    } catch (e) {
      if (!signal.aborted)
        fill(
          place,
          problem(e, () => again(act)),
        );
    }
  };
  again();
  return place;
}

// Clock shows the time, what is due next, and the buttons that move the clock.
class Clock {
  constructor(signal) {
    this.signal = signal;
    this.head = h("div.row");
    this.actions = h("div.row");
    this.due = h("div");
    this.element = h("section.card.view", { "aria-label": "Clock" }, this.head, this.actions, this.due);
    this.soon = api.reader(signal, () => this.load(), 300);
    api.each(250, signal, () => this.tick());
    const stop = api.events({}, this.soon, (now) => /open|gap/.test(now) && this.soon());
    signal.addEventListener("abort", stop);
  }

  async load() {
    const answer = await api.get(base + "clock", { signal: this.signal });
    api.setClock(answer);
    this.show(answer);
  }

  async post(body) {
    try {
      const answer = await api.post(base + "clock", body);
      if (body.advance || body.advance_to_next) toast(`${plural(answer.fired, "timer")} fired.`);
    } catch (e) {
      toast(e.message, "bad");
    }
    this.soon();
  }

  show(answer) {
    const modes = {
      real: ["Real time", "Time is real. Tests may freeze and move it."],
      frozen: ["Frozen", "Time is virtual and stands still until somebody moves it."],
      auto: ["Automatic", "Time is virtual and jumps to the next timer whenever nothing runs."],
    };
    const [word, about] = modes[answer.mode];
    this.until = answer.next_timer && instant(answer.next_timer);
    fill(
      this.head,
      h("div.grow", h("p.time"), h("p.soft", about)),
      h("span", { class: "state " + (answer.mode === "real" ? "idle" : "wait") }, word),
    );
    fill(this.actions, this.buttons(answer));
    fill(
      this.due,
      h("h2", "Due next"),
      answer.next_timer
        ? h("p", h("strong.until"), h("span.soft", ", at " + when(answer.next_timer)))
        : h("p.soft", "Nothing: no retry, lease or delay is pending."),
    );
    this.tick();
  }

  tick() {
    const write = (selector, text) => {
      for (const e of this.element.querySelectorAll(selector)) if (e.textContent !== text) e.textContent = text;
    };
    write(".time", when(new Date(api.now()).toISOString()));
    if (this.until) write(".until", "in " + duration(Math.max(this.until - api.now(), 0)));
  }

  buttons({ mode, next_timer: next }) {
    const act = (label, body, kind, props) => button(label, () => this.post(body), kind, props);
    const advance = (e) => {
      e.preventDefault();
      this.post({ advance: e.currentTarget.querySelector("input").value });
    };
    return [
      mode === "frozen" ? act("Resume real time", { resume: true }) : act("Freeze", { freeze: true }, "primary"),
      h(
        "form.row",
        { onsubmit: advance },
        h("input", { value: "1m", "aria-label": "Advance by", class: "short" }),
        h("button.quiet", "Advance"),
      ),
      act("To the next timer", { advance_to_next: true }, "quiet", { disabled: !next }),
      mode === "auto" ? act("Resume real time", { resume: true }) : act("Automatic", { auto: true }),
    ];
  }
}

async function reset(clock) {
  await confirmForm({
    heading: "Reset the service",
    action: "Reset",
    danger: true,
    about:
      "All tasks, stubs, recorded requests and templates added at run time are dropped, and the clock starts " +
      "afresh. Sandboxes stay. This cannot be undone.",
    commands: () => [
      ["curl", api.curl("POST", base + "reset")],
      ["Command line", api.cli("fixture", "reset")],
    ],
    submit: async () => {
      await api.request("POST", base + "reset");
      toast("The service is reset.");
      await clock.load();
    },
  });
}

// Stubs.

async function stubs(place, again) {
  const { stubs: list } = await api.get(base + "stubs");
  fill(
    place,
    h(
      "div.row.end",
      button("Refresh", () => again(), "quiet small"),
    ),
    list.length
      ? table(
          "Stubs, the first that matches decides",
          ["Stub", ["Matches", "wide-cell"], ["Outcomes", "wide-cell"], "Then", ["Uses", "num"]],
          list.map((s) => [
            h("code", s.id),
            matchText(s.match),
            h(
              "ol.plain",
              s.outcomes.slice(0, 5).map((o) => h("li", clip(JSON.stringify(o), "code"))),
              s.outcomes.length > 5 && h("li.soft", `${s.outcomes.length - 5} more`),
            ),
            { last: "repeats the last", handler: "runs the handler", fail: "fails" }[s.then] || s.then,
            number(s.uses),
          ]),
        )
      : empty(
          "No stubs",
          "A stub replaces the handler of the steps that it matches, and gives outcomes that you " +
            "write: results, errors, delays, lost attempts.",
        ),
  );
}

const matchText = (match) =>
  Object.keys(match).length
    ? h(
        "span.chips",
        Object.entries(match).map(([name, v]) =>
          h("span.tag", `${name}: ${typeof v === "object" ? JSON.stringify(v) : v}`),
        ),
      )
    : "every attempt";

// Requests and handler calls.

async function requests(place, again) {
  const { entries: all, total } = await api.get(base + "requests?limit=200");
  const entries = all.filter((e) => !e.path?.startsWith("/console"));
  const clear = button("Clear", () => again(() => api.del(base + "requests")), "quiet small");
  const bar = h(
    "div.row",
    h("span.soft.grow", `${number(entries.length)} of ${number(total)}, the newest first`),
    button("Refresh", () => again(), "quiet small"),
    clear,
  );
  if (!entries.length)
    return fill(place, bar, empty("Nothing was recorded", "Requests to the API and calls of handlers appear here."));
  fill(
    place,
    bar,
    table(
      "Requests",
      ["At", ["What", "wide-cell"], "Outcome", ["", "num"]],
      entries
        .reverse()
        .map((e) => [
          h("span.mono", e.at.slice(11, 23)),
          what(e),
          outcome(e),
          button(
            "Show",
            () => dialog(e.kind === "handler" ? "Handler call" : "Request", jsonTree(e, { open: 3, label: "Entry" })),
            "quiet small",
            { "aria-label": "Show entry " + e.id },
          ),
        ]),
    ),
  );
}

const what = (e) =>
  e.kind === "request"
    ? [h("code", `${e.method} ${e.path}${e.query ? "?" + e.query : ""}`)]
    : [
        link("/tasks/" + e.task_uuid, `${e.namespace}/${e.name}`, { class: "strong" }),
        ` · ${e.step}, attempt ${e.attempt} `,
        e.stubbed && h("span.tag", e.stub),
      ];

const outcome = (e) =>
  e.kind === "request"
    ? h("span", { class: e.status >= 400 ? "bad-text" : "" }, e.status)
    : e.outcome
      ? state(e.outcome.success ? "complete" : "error")
      : state("in_progress");
