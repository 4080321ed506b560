// The one list of the console: what the service has now, as rows or cards. It follows the events, and nothing in it
// moves while somebody is among its rows.

import * as api from "./api.js";
import { button, fill, h, plural, problem, table } from "./ui.js";

const mostFresh = 200; // items that came meanwhile, up to which those that are shown are looked for below them

// live calls read() after events that concern(event) the page, when events were missed, and when the function that it
// returns is called, once a second at most. It also does so from time to time, since no event reports some changes,
// such as those of dead letters and deliveries.
export function live(signal, concerns, read) {
  const soon = api.reader(signal, read, 1000);
  const stop = api.events(
    {},
    (e) => concerns(e) && soon(),
    (state) => /open|gap|poll/.test(state) && soon(),
  );
  signal.addEventListener("abort", stop);
  api.each(5000, signal, soon);
  return soon;
}

// rowsOf returns a function for List.read, of a path that answers with a list by offset and limit, of which the service
// gives most at once.
export const rowsOf =
  (path, params, signal, most = 1000) =>
  async (count) => {
    const items = [];
    for (let more = true; more && items.length <= count;) {
      const limit = Math.min(count + 1 - items.length, most);
      const page = await api.get(path + api.query({ ...params(), offset: items.length || "", limit }), { signal });
      items.push(...page);
      more = page.length === limit;
    }
    return { items: items.slice(0, count), more: items.length > count };
  };

// List shows items. Its options: label and noun, key(item), read(count), which resolves to {items, more, total} and
// what else shown(found) takes, concerns(event), and none(), what is shown without any. Rows have columns() and
// row(item), which returns cells; other items have draw(items). An item that is not in the list any more, but is being
// read, is gone. keeps(item) says that it stays even if nobody is there.
export class List {
  items;
  turn;
  signal;
  kept;
  noun;
  perPage;
  key;
  label;
  columns;
  row;
  none;
  concerns;
  keeps;
  shown;
  kind;
  read;
  draw;
  /** @param {Record<string, any>} options */
  constructor({ signal, kept, keys, renew }, options) {
    Object.assign(this, {
      noun: ["row"],
      perPage: 100,
      items: [],
      turn: 0,
      signal,
      kept,
      keeps: () => false,
      concerns: () => true,
      shown: () => {},
      draw: (items) =>
        table(
          this.label,
          this.columns(),
          items.map((item) => ({ key: this.key(item), class: item.gone && "gone", cells: this.row(item) })),
          this.kind,
        ),
      ...options,
    });
    this.count = kept.count ?? this.perPage;
    this.total = h("span.soft", { role: "status" });
    this.place = h("div");
    this.more = button("Show more", () => this.loadMore(), "quiet", { hidden: true });
    this.news = button("", () => this.load(), "primary small arrivals", { hidden: true, "aria-live": "polite" });
    this.element = h("div.view", this.place, h("div.row.center", this.more), this.news);
    keys({
      j: ["Next row", () => this.move(1)],
      k: ["Previous row", () => this.move(-1)],
      n: ["Show what is new", () => this.news.hidden || this.load()],
    });
    renew(() => this.soon());
  }

  // begin shows the list, as far as it was shown before, and follows the events. It throws if it cannot be read.
  async begin() {
    const left = this.kept.focus?.split(/[/?]/).find((part) => /^[0-9a-f-]{36}$/.test(part));
    let found = await this.read(this.count);
    // New ones may have pushed the one that was left below those that were shown.
    if (left && found.more && !found.items.some((item) => this.key(item) === left)) {
      found = await this.read(this.count + mostFresh);
    }
    this.show(found);
    this.soon = live(this.signal, this.concerns, () => this.refresh());
  }

  // load reads the list because the person wants it, and shows it in place of what is shown.
  async load() {
    const turn = ++this.turn,
      found = await this.read(this.count).catch((error) => ({ error }));
    if (this.signal.aborted || turn !== this.turn) return;
    if (found.error?.status === 401) return this.soon(); // which says so beside the list
    if (!found.error) return this.show(found);
    fill(
      this.place,
      problem(found.error, () => this.load()),
    );
    this.more.hidden = true;
  }

  // restart shows the beginning of the list, by another filter.
  restart() {
    this.count = this.perPage;
    return this.load();
  }

  async loadMore() {
    const before = this.items.length;
    this.count += this.perPage;
    await this.refresh(true).catch((error) => this.place.append(problem(error)));
    if ([this.more, document.body].includes(document.activeElement)) this.focus(before);
  }

  // refresh reads the list again, after what reads it again already.
  refresh(stay = false) {
    this.last = Promise.allSettled([this.last]).then(() => this.readAgain(stay));
    return this.last;
  }

  // readAgain reads the list. While somebody is there, or with stay, those that are shown stay where they are, and only
  // what comes after them is added.
  async readAgain(stay) {
    const { turn } = this,
      now = () => turn === this.turn && !this.signal.aborted;
    const known = new Set(this.items.map(this.key)),
      isKnown = (item) => known.has(this.key(item));
    let found = await this.read(this.count),
      last = found.items.findLastIndex(isKnown);
    const fresh = found.items.slice(0, last < 0 ? undefined : last).filter((item) => !isKnown(item)).length;
    if (now() && (!known.size || !(stay || this.isRead()))) return this.show(found);
    if (now() && fresh > 0 && fresh <= mostFresh) found = await this.read(this.count + fresh);
    if (!now()) return;
    const by = new Map(found.items.map((item) => [this.key(item), item]));
    last = found.items.findLastIndex(isKnown);
    this.put(
      [
        ...this.items.map((item) => by.get(this.key(item)) ?? { ...item, gone: item.gone || fresh <= mostFresh }),
        ...(last < 0 ? [] : found.items.slice(last + 1, last + 1 + this.count - known.size)),
      ],
      found,
    );
    const [order, whole] = [this.items, found.items.slice(0, this.items.length)].map((l) => l.map(this.key).join());
    this.news.textContent = fresh
      ? `${last < 0 ? "More than " : ""}${plural(fresh, ...this.noun)}`.replace(/(\d) /, "$1 new ")
      : "Show the current list";
    this.news.hidden = !fresh && order === whole;
  }

  // show shows what was found. Items that are not in it go, but for those to keep.
  show(found) {
    const now = new Set(found.items.map(this.key));
    const kept = this.items.filter((item) => !now.has(this.key(item)) && this.keeps(item));
    this.news.hidden = true;
    this.put([...kept.map((item) => ({ ...item, gone: true })), ...found.items], found);
  }

  put(items, found) {
    this.items = items;
    this.known = found.total ?? (found.more ? Infinity : found.items.length);
    this.more.hidden = !found.more;
    this.kept.count = this.count;
    this.total.textContent =
      found.total === undefined && found.more
        ? `${plural(items.length, ...this.noun)} or more`
        : plural(this.known, ...this.noun);
    this.shown(found);
    this.redraw();
  }

  redraw() {
    fill(this.place, this.items.length ? this.draw(this.items) : this.none());
  }

  // isRead reports whether the person is among the rows: with the pointer, the focus, or further down the page.
  isRead() {
    return (
      this.items.length > 0 &&
      (scrollY > 60 ||
        this.place.matches(":hover") ||
        this.place.contains(document.activeElement) ||
        document.getSelection()?.type === "Range")
    );
  }

  focus(i) {
    const rows = this.place.querySelectorAll("tbody tr, li.card, .wait-card");
    rows[Math.min(Math.max(i, 0), rows.length - 1)]?.querySelector("a, summary, button")?.focus();
  }

  move(step) {
    const rows = [...this.place.querySelectorAll("tbody tr, li.card, .wait-card")];
    this.focus(rows.findIndex((row) => row.contains(document.activeElement)) + step);
  }
}
