// What the graph and the timeline show, as lists: the steps, and what happened to them.

import { exact, span } from "./model.js";
import { button, chips, clip, fill, h, look, number, state, table, when } from "./ui.js";

const CHUNK = 200; // rows of a list that are shown at a time

// StepList is the list of steps: what the graph shows, as a table.
export class StepList {
  words;
  page;
  shown;
  choose;
  constructor(page, choose) {
    Object.assign(this, { page, choose, shown: CHUNK, text: "", only: "", words: new Map() });
    this.body = h("div");
    this.chips = h("div");
    this.foot = h("div.row.center");
    const search = h("input", {
      type: "search",
      placeholder: "Find a step",
      "aria-label": "Find a step",
      "data-search": true,
      oninput: () => {
        this.text = search.value.toLowerCase();
        this.draw();
      },
    });
    this.root = h("div.step-list", h("div.row.filter", search, this.chips), this.body, this.foot);
  }

  // count shows how many steps are in each state, as buttons that choose these. None goes while the page is open.
  count() {
    const { words } = this;
    for (const w of words.values()) w.n = 0;
    for (const s of this.page.model.steps.values()) {
      const { word, tone } = look(s.state);
      words.set(word, { tone, n: (words.get(word)?.n ?? 0) + 1 });
    }
    fill(
      this.chips,
      (words.size > 1 || this.only) &&
        chips(
          "State",
          [...words].map(([word, { tone, n }]) => [word, [word, " ", h("b", number(n))], tone]),
          (word) => word === this.only,
          (word) => {
            this.only = this.only === word ? "" : word;
            this.draw();
          },
        ),
    );
  }

  draw() {
    const { model } = this.page;
    this.count();
    const fits = [...model.steps.values()].filter(
      (s) => s.name.toLowerCase().includes(this.text) && (!this.only || look(s.state).word === this.only),
    );
    const ghosts =
      this.text || this.only || fits.length > this.shown
        ? []
        : model
            .ghosts()
            .map((g) => ({
              key: g.name,
              class: "soft",
              cells: [g.skipped ? "Not taken" : "Not decided yet", g.name, "", "", g.dependencies.join(", ")],
            }));
    fill(
      this.body,
      table(
        "Steps",
        ["State", ["Step", "wide-cell"], ["Attempts", "tries"], ["Time", "took"], "After"],
        [...fits.slice(0, this.shown).map((s) => this.row(s)), ...ghosts],
      ),
    );
    const left = fits.length - this.shown,
      more = () => {
        this.shown += CHUNK;
        this.draw();
      };
    fill(
      this.foot,
      left > 0 && button(`Show ${number(Math.min(left, CHUNK))} of ${number(left)} more`, more, "quiet small"),
    );
  }

  row(s) {
    const { model } = this.page,
      parents = model.parents(s),
      after = parents
        .slice(0, 3)
        .map((p) => p.name)
        .join(", ");
    const chosen = s.id === this.page.state.step;
    return {
      key: s.id,
      class: chosen && "chosen",
      cells: [
        state(s.state),
        button(clip(s.name), () => this.choose(s.id), "as-link", { key: "name", "aria-pressed": String(chosen) }),
        s.attempts > 0 && `${s.attempts}/${s.max}`,
        s.state === "waiting_for_retry"
          ? "retry " + model.countdown(s)
          : s.spans.some((x) => x.kind === "run") && span(model.took(s)),
        after && clip(after + (parents.length > 3 ? ` and ${parents.length - 3} more` : "")),
      ],
    };
  }
}

// EventList shows the transitions, the newest first.
export class EventList {
  body;
  foot;
  page;
  shown;
  lines;
  choose;
  constructor(page, choose) {
    Object.assign(this, { page, choose, shown: CHUNK, lines: [], body: h("ol.events"), foot: h("div.row.center") });
    this.root = h("div", this.body, this.foot);
  }

  draw() {
    const all = [...this.page.model.history.entries()];
    fill(
      this.body,
      all
        .slice(-this.shown)
        .reverse()
        .map(([i, t]) => (this.lines[i] ??= this.line(t, i))),
    );
    const more = () => {
      this.shown += CHUNK;
      this.draw();
    };
    fill(this.foot, all.length > this.shown && button(`Show ${CHUNK} more`, more, "quiet small"));
  }

  line(t, key) {
    const at = exact(t.recorded_at) - this.page.model.created;
    return h(
      "li",
      { key },
      h("span.at", { title: when(t.recorded_at) }, "+" + span(at)),
      t.step_uuid
        ? button(clip(t.step_name), () => this.choose(t.step_uuid), "as-link", { key: "name" })
        : h("b", "task"),
      h("span.soft", t.from_state ? `${look(t.from_state).word} →` : "created as"),
      state(t.to_state),
      (t.reason || t.attempt > 0) && h("span.soft", t.reason || `attempt ${t.attempt}`),
    );
  }
}
