// Acting on many: the form that does one action on all that a filter selects, and the check boxes of lists.

import { actAs, actor } from "./actions.js";
import * as api from "./api.js";
import { fill } from "./patch.js";
import { ResultInput } from "./schema.js";
import {
  actForm,
  allowed,
  button,
  copyButton,
  dialog,
  field,
  h,
  link,
  number,
  onCredential,
  plural,
  problem,
  shortId,
  toast,
} from "./ui.js";

// actions are those of POST /v1/actions: the button, what is counted, and the words of the command line. done is the
// word for steps that run again, and get a verdict.
const actions = {
  reset: {
    label: "Reset",
    done: "reset",
    noun: ["step"],
    needs: "steps:resolve",
    words: ["step", "reset"],
    about: "Steps that failed for good run again, attempts counted from zero.",
  },
  retry_now: {
    label: "Retry",
    done: "retried",
    noun: ["step"],
    needs: "steps:resolve",
    words: ["step", "retry"],
    about: "Steps that wait for their retry start at once.",
  },
  complete: {
    label: "Complete",
    noun: ["step"],
    needs: "steps:resolve",
    words: ["step", "complete"],
    about: "The steps end as complete, all with the result below. What depends on them can run.",
  },
  resolve: {
    label: "Resolve",
    noun: ["step"],
    needs: "steps:resolve",
    words: ["step", "resolve"],
    about: "The steps end as resolved, without a result. What depends on them can run.",
  },
  cancel: {
    label: "Cancel",
    noun: ["task"],
    needs: "tasks:cancel",
    words: ["task", "cancel"],
    danger: true,
    about: "All of their unfinished steps are cancelled and running handlers stopped. This cannot be undone.",
  },
  close: {
    label: "Close",
    noun: ["dead letter"],
    needs: "dlq:update",
    words: ["dlq", "close"],
    about: "The investigations end as resolved, with the reason as note. The tasks stay as they are.",
  },
  resend: {
    label: "Send again",
    noun: ["delivery", "deliveries"],
    needs: "dlq:update",
    words: ["events", "resend"],
    about: "Each event is sent to its subscriber again.",
  },
};

// bulkButton makes the button that opens the form for an action on about count things, or on an unknown number.
export const bulkButton = (name, count, open, kind = "quiet small", props = {}) =>
  allowed(
    actions[name].needs,
    `${actions[name].label}${name === "cancel" ? " tasks" : ""}${count ? " " + number(count) : ""} …`,
    open,
    kind,
    { key: name, ...props },
  );

// flags are the flags of the command line for members of a filter; lists of ids and of states of steps have none.
const flags = {
  status: "status",
  namespace: "namespace",
  name: "name",
  tag: "tag",
  failure_group: "group",
  step: "step",
  created_after: "created-after",
  created_before: "created-before",
  subscriber: "subscriber",
  over: "over",
};

// bulkForm opens the form for an action on all that a filter selects. It says first what would happen, by a dry run,
// and acts on exactly that: what changes meanwhile is skipped. schema is that of a result, about says more, and
// changed() is called once something was done.
/** @type {(name: string, filter: object, options?: Record<string, any>) => void} */
export function bulkForm(name, filter, { schema, about, changed = () => {} } = {}) {
  new BulkForm(name, filter, schema, about, changed).look();
}

class BulkForm {
  action;
  name;
  filter;
  done;
  changed;
  requests;
  input;
  constructor(name, filter, schema, about, changed) {
    Object.assign(this, { name, filter, changed, action: actions[name], done: 0 });
    this.reason = h("input", { required: true, maxlength: 500, placeholder: "Why? It is kept with each of them" });
    this.by = h("input", { required: true, value: actor() });
    this.found = h("div.found", { role: "status" });
    this.input = name === "complete" && new ResultInput(schema);
    this.input?.element?.addEventListener("change", () => this.look());
    this.some = button(
      `Try ${TRY} first`,
      () => {
        this.first = TRY;
        this.element.requestSubmit();
        this.first = undefined;
      },
      "quiet",
      { hidden: true },
    );
    this.element = actForm({
      about: [this.action.about, about && " ", about],
      action: this.action.label,
      danger: this.action.danger,
      input: this.input,
      more: this.some,
      fields: [this.found, this.input && this.input.element, field("Reason", this.reason), field("Your name", this.by)],
      commands: () => this.commands(),
      submit: () => this.submit(),
    });
    this.send = this.element.send;
    this.send.disabled = true;
    this.box = dialog(`${this.action.label} ${this.action.noun[1] ?? this.action.noun[0] + "s"}`, this.element);
    this.reason.focus();
  }

  body() {
    return {
      action: this.name,
      filter: this.filter,
      reason: this.reason.value,
      by: this.by.value,
      ...(this.input && { completion_data: { result: this.input.value() ?? null } }),
    };
  }

  count(n) {
    return plural(n, ...this.action.noun);
  }

  // look says what would happen now.
  async look() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    if (!this.asOf) fill(this.found, h("p.soft", "Looking …"));
    try {
      let asOf;
      const last = await api.lines("/v1/actions", { ...this.body(), reason: "dry run", dry_run: true }, (line) => {
        asOf ??= line.as_of;
      });
      if (turn !== this.turn) return;
      if (last.error) throw new api.ApiError(503, last.error);
      this.asOf = asOf;
      this.total = last.done;
      this.send.disabled = !last.done;
      this.some.hidden = last.done <= TRY;
      this.send.textContent = `${this.action.label} ${this.count(last.done)}`;
      fill(
        this.found,
        h("p", h("strong", this.count(last.done)), last.done === 1 ? " matches." : " match."),
        this.refusals(last, "would be refused"),
        last.samples.length > 0 &&
          h(
            "details",
            h("summary", "Some of them"),
            h(
              "ul.plain",
              last.samples.map((s) => h("li", this.item(s))),
            ),
          ),
      );
    } catch (e) {
      if (turn !== this.turn) return;
      fill(
        this.found,
        problem(e, () => this.look()),
      );
      if (e.status === 401) onCredential(() => this.look());
    }
  }

  item(s) {
    return [
      link("/tasks/" + s.task_uuid, h("code", shortId(s.task_uuid)), { target: "_blank" }),
      " ",
      s.step || s.delivery,
    ];
  }

  refusals({ refusals, left_alone: alone }, word) {
    const left =
      alone > 0 &&
      !this.done &&
      h("li", `${plural(alone, "task")} changed in the meantime and ${alone === 1 ? "was" : "were"} skipped.`);
    return (
      (refusals.length > 0 || left) &&
      h(
        "ul",
        refusals.map((r) => h("li.bad-text", `${number(r.count)} ${word}: ${r.message} (`, this.item(r.sample), ")")),
        left,
      )
    );
  }

  commands() {
    const body = this.body(),
      words = this.command(body);
    return [["curl", api.curl("POST", "/v1/actions", body)], ...(words ? [["Command line", api.cli(...words)]] : [])];
  }

  // command returns the call of the command line, or null if it has no flag for a part of the filter.
  command({ filter, reason, by, completion_data: data }) {
    const words = [...this.action.words];
    for (const [member, value] of Object.entries(filter)) {
      if (!flags[member] || value === false || (this.name === "close" && flags[member] === "status")) return null;
      for (const v of member === "tag" ? value : [value]) words.push("--" + flags[member], ...(v === true ? [] : [v]));
    }
    if (data) words.push("--result", JSON.stringify(data.result));
    words.push(this.name === "close" ? "--notes" : "--reason", reason);
    if (this.name !== "resend" && this.name !== "cancel") words.push("--by", by);
    return [...words, "--yes"];
  }

  // submit acts on all that the dry run showed, or on the first ones.
  submit() {
    actAs(this.by.value);
    [this.done, this.requests] = [0, []];
    return this.run({ ...this.body(), first: this.first });
  }

  // run acts, and shows how far it is. A run that was cut off continues where it was.
  async run(body) {
    const most = body.first ? this.done + body.first : this.total,
      stop = new AbortController(),
      text = h("span"),
      bar = h("progress", { max: most || 1, value: 0, "aria-label": "Progress" });
    let last = { done: 0, refused: 0, left_alone: 0 };
    const show = (line) => {
      if (line.request_id) this.requests.push(line.request_id);
      if (line.done === undefined) return;
      last = line;
      bar.value = this.done + line.done;
      text.textContent = `${number(this.done + line.done)} of ${this.count(most)}`;
    };
    (this.element.isConnected ? this.element : this.progress).replaceWith(
      (this.progress = h(
        "div.form",
        h("div.row", bar, text),
        h(
          "div.row.end",
          button("Stop", () => stop.abort()),
        ),
      )),
    );
    try {
      await api.lines("/v1/actions", { ...body, as_of: this.asOf }, show, stop.signal);
      if (last.error) throw new api.ApiError(503, last.error);
      this.finished(last);
    } catch (e) {
      const refused = e instanceof api.ApiError && e.status && e.status < 500; // before anything was done
      const on = () => {
        this.done += last.done;
        this.run({ ...body, first: body.first && body.first - last.done });
      };
      if (e.status === 401) onCredential(on);
      fill(
        this.progress,
        h("p", `Stopped after ${this.count(this.done + last.done)}.`),
        e.name !== "AbortError" && problem(e),
        h(
          "div.row.end",
          !refused && button("Go on", on, "primary"),
          button("Close", () => this.box.close()),
        ),
      );
      if (!this.box.isConnected && e.name !== "AbortError")
        toast(`Stopped after ${this.count(this.done + last.done)}: ${e.message}`, "bad");
    }
    this.changed();
  }

  finished(last) {
    const text = `Done: ${this.count(this.done + last.done)}`;
    const judged = this.action.done && AUDIT.every(api.can),
      rest = this.total - this.done - last.done;
    if (!last.refused && !last.left_alone && !judged) this.box.close();
    if (!this.box.isConnected || !this.box.open)
      return toast(text + (last.refused ? `, ${number(last.refused)} refused` : ""), last.refused ? "bad" : "good");
    const place = h("p", { role: "status" }),
      again = () => {
        this.progress.replaceWith(this.element);
        this.look();
      };
    fill(
      this.progress,
      h("p", h("strong", text), "."),
      this.refusals(last, "refused"),
      place,
      h(
        "div.row.end",
        (last.left_alone > 0 || rest > 0) &&
          button(rest > 0 ? `Go on with ${number(rest)} more …` : "Look again", again),
        button("Close", () => this.box.close(), "primary"),
      ),
    );
    if (judged) verdict(place, this.requests, this.action.done).catch((e) => fill(place, problem(e)));
  }
}

const TRY = 10; // how many are acted on to see whether it helps
const AUDIT = ["tasks:list", "steps:read", "dlq:read"]; // what GET /v1/audit needs

// verdict says what became of the steps of requests, each second until none runs or the place is gone.
export async function verdict(place, requests, word) {
  do {
    const acts = await Promise.all(requests.map((id) => api.get("/v1/audit" + api.query({ request_id: id }))));
    const sum = (f) => acts.flat().reduce((n, a) => n + f(a), 0),
      of = (name) => sum((a) => a.verdict[name]);
    const [running, failed, fresh] = ["running", "failed", "new_causes"].map(of);
    fill(
      place,
      h("b", `${number(sum((a) => a.steps))} ${word}: `),
      [
        `${number(of("done"))} done`,
        running && `${number(running)} still running`,
        failed && `${number(failed)} failed again: ` + (fresh ? plural(fresh, "new cause") : "no new cause"),
      ]
        .filter(Boolean)
        .join(", ") + ".",
    );
    if (!running) return;
    await new Promise((done) => {
      setTimeout(done, 1000);
    });
  } while (place.isConnected);
}

// Selection is what is chosen in a list: some ids, or all that match. offers are actions; filter(action, ids) returns
// what selects these, or all that match if ids is null; total() is how many that are, Infinity if it is not known;
// schema() is that of a result.
export class Selection {
  total;
  noun;
  offers;
  filter;
  schema;
  changed;
  constructor({ noun, offers, filter, total, changed, schema = () => {} }) {
    Object.assign(this, { noun, offers, filter, total, changed, schema });
    this.ids = new Set();
    this.every = false;
    this.bar = h("div.picked", { role: "region", "aria-label": "Selected", hidden: true });
  }

  has(id) {
    return this.every || this.ids.has(id);
  }

  // box makes the check box of a row.
  box(id, label) {
    return h("input", {
      type: "checkbox",
      "data-pick": id,
      "aria-label": "Select " + label,
      checked: this.has(id),
      onchange: (e) => this.set([id], e.currentTarget.checked),
    });
  }

  // head makes the check box of all rows that are shown.
  head() {
    return h("input", {
      type: "checkbox",
      "data-pick": true,
      "aria-label": "Select all rows",
      onchange: (e) =>
        this.set(
          [...e.currentTarget.closest("table").querySelectorAll("tbody [data-pick]")].map((box) => box.dataset.pick),
          e.currentTarget.checked,
        ),
    });
  }

  set(ids, chosen) {
    if (!chosen && this.every) return this.clear();
    for (const id of ids) chosen ? this.ids.add(id) : this.ids.delete(id);
    this.draw();
  }

  clear() {
    this.ids.clear();
    this.every = false;
    this.draw();
  }

  // draw shows what is chosen in the boxes and the bar.
  draw() {
    for (const box of document.querySelectorAll("input[data-pick]"))
      box.checked = box.dataset.pick ? this.has(box.dataset.pick) : this.every || (box.checked && this.ids.size > 0);
    const total = this.total(),
      n = this.every ? total : this.ids.size,
      known = total < Infinity;
    this.bar.hidden = !n;
    fill(
      this.bar,
      h(
        "strong",
        n === Infinity ? "All that match selected" : `${this.every ? "All " : ""}${plural(n, ...this.noun)} selected`,
      ),
      !this.every &&
        total > n &&
        button(
          `Select all ${known ? number(total) + " " : ""}that match`,
          () => {
            this.every = true;
            this.draw();
          },
          "quiet small",
          { key: "all" },
        ),
      !this.every && copyButton(() => [...this.ids].join("\n"), "quiet small", "Copy ids"),
      this.offers.map((name) => bulkButton(name, 0, () => this.act(name))),
      h("span.spread"),
      button("Clear", () => this.clear(), "quiet small"),
    );
  }

  async act(name) {
    const filter = await this.filter(name, this.every ? null : [...this.ids]);
    if (filter)
      bulkForm(name, filter, {
        schema: this.schema(),
        changed: () => {
          this.clear();
          this.changed();
        },
      });
  }
}
