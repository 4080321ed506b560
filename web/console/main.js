// The frame of the console: it shows the page that the address names, and has navigation,
// colours, keys and the notes that concern all pages.

import * as api from "./api.js";
import {
  button,
  choice,
  dialog,
  empty,
  fill,
  h,
  link,
  loading,
  onCredential,
  problem,
  signIn,
  timeOfDay,
  visible,
  when,
} from "./ui.js";

// routes lists the pages: path below /console, module, title. A page's module exports show(root, {path, params,
// query, go, signal, title, keys, remember, renew, kept}), which fills root and ends what it started when signal
// aborts. title(text) names the page, keys({key: [what, function]}) adds keys, and remember(query) puts another query
// into the address without showing it again. renew(f) has f called when the credential changes, instead of showing the
// page again. kept is what the page wants to find again when a person comes back to it.
const routes = [
  ["/", "tasks.js", "Tasks"],
  ["/tasks", "tasks.js", "Tasks"],
  ["/tasks/:task_uuid", "task.js", "Task"],
  ["/start", "start.js", "Start a task"],
  ["/start/:namespace/:name/:version", "start.js", "Start a task"],
  ["/templates", "templates.js", "Templates"],
  ["/templates/:namespace/:name/:version", "templates.js", "Template"],
  ["/dlq", "dlq.js", "Dead letters"],
  ["/failures", "failures.js", "Failures"],
  ["/waits", "waits.js", "Waits for me"],
  ["/audit", "audit.js", "Audit"],
  ["/analytics", "analytics.js", "Analytics"],
  ["/service", "service.js", "Service"],
  ["/subscribers/:name", "service.js", "Subscriber"],
  ["/fixture", "fixture.js", "Fixture"],
];

const home = api.root + "/console";
const byId = (id) => document.getElementById(id);
const places = () => [...byId("nav").querySelectorAll("a:not([hidden])")]; // the links of the navigation
let leaving = new AbortController(); // aborts what belongs to the page that is shown
let shown = ""; // the address of the page that is shown
let renewal = null; // what the page does with another credential, or null if it is shown again
let pageKeys = {}; // keys of the page: {key: [what it does, function]}

function find(path) {
  const parts = path.split("/");
  for (const [pattern, module, title] of routes) {
    const names = pattern.split("/"),
      params = {};
    const fits =
      names.length === parts.length &&
      names.every((name, i) => {
        if (!name.startsWith(":")) return name === parts[i];
        params[name.slice(1)] = decodeURIComponent(parts[i]);
        return parts[i] !== "";
      });
    if (fits) return { module, title, params };
  }
  return null;
}

const currentPath = () => location.pathname.slice(home.length).replace(/\/$/, "") || "/";

// go shows the page with a path below /console; with replace, it takes the place of the present
// one in the history.
/** @type {(path: string, options?: {replace?: boolean}) => Promise<void>} */
function go(path, { replace } = {}) {
  keep();
  history[replace ? "replaceState" : "pushState"](
    replace ? history.state : null,
    "",
    home + (path === "/" ? "" : path),
  );
  if (!replace) scrollTo(0, 0);
  return show(true);
}

// search goes to the box that finds anything.
async function search() {
  if (!["/", "/tasks"].includes(currentPath())) await go("/tasks");
  document.querySelector("#page [data-search]")?.focus();
}

// setTitle names the page in the tab.
const setTitle = (text) => {
  document.title = visible(text) + " · Stepwell";
};

// The history: what a person finds again at each of its entries. That is the scroll, the link that had the focus and
// its place, since rows above it may be new, and what the page keeps.

const store = "stepwell-places",
  mostPlaces = 50;
let kept = [],
  place = {};
history.scrollRestoration = "manual"; // the page has its height only once it is read

function findPlace() {
  const entry = history.state?.entry ?? Date.now() + Math.random();
  history.replaceState({ entry }, "");
  place = kept.find((k) => k.entry === entry) ?? { entry };
  kept = [...kept.filter((k) => k !== place).slice(1 - mostPlaces), place]; // the latest visited last
}

// keep notes where the page is that is left.
function keep() {
  const active = document.activeElement ?? document.body;
  Object.assign(place, {
    scroll: scrollY,
    focus: active.getAttribute("href"),
    top: active.getBoundingClientRect().top,
  });
}

// findAgain shows a page where it was left.
function findAgain(view) {
  const left = place.focus && view.querySelector(`a[href="${CSS.escape(place.focus)}"]`);
  left?.focus({ preventScroll: true });
  if (left) scrollBy(0, left.getBoundingClientRect().top - place.top);
  else if (place.scroll) scrollTo(0, place.scroll);
}

function storePlaces() {
  keep();
  try {
    sessionStorage.setItem(store, JSON.stringify(kept));
  } catch {
    // The browser denies storage: the places last until the console is left.
  }
}

// forget drops what was typed and shown, since somebody else may use the tab next.
function forget() {
  kept = [];
  place = {};
  location.reload();
}

try {
  kept = JSON.parse(sessionStorage.getItem(store)) ?? [];
} catch {
  // As above.
}

// show shows the page that the address names.
async function show(focus) {
  if (focus) for (const box of document.querySelectorAll("dialog")) box.close();
  leaving.abort();
  const { signal } = (leaving = new AbortController());
  const path = currentPath(),
    found = find(path);
  shown = location.pathname + location.search;
  pageKeys = {};
  renewal = null;
  findPlace();
  markPlace(path);
  setTitle(found ? found.title : "No such page");
  const view = h("div.view", loading());
  byId("page").replaceChildren(view);
  broken = false;
  api.readClock();
  api.readStore();
  try {
    const [module] = await Promise.all([found ? load(found.module) : { show: nowhere }, api.readCaller()]);
    if (signal.aborted) return;
    offerPlaces();
    await module.show(view, {
      path,
      params: found?.params,
      query: new URLSearchParams(location.search),
      go,
      signal,
      title: setTitle,
      remember,
      kept: place,
      renew: (f) => {
        renewal = f;
      },
      keys: (more) => {
        pageKeys = { ...pageKeys, ...more };
      },
    });
    if (signal.aborted) return;
    findAgain(view);
    count();
  } catch (error) {
    if (signal.aborted) return;
    leaving.abort(); // ends its stream
    pageKeys = {};
    renewal = null;
    broken = true;
    banner(cut); // the page says it itself
    view.replaceChildren(
      h("h1", found.title),
      problem(error, () => show()),
    );
  }
  if (focus && view.isConnected && !view.contains(document.activeElement)) focusHeading(view);
}

const nowhere = (view) =>
  view.replaceChildren(
    h("h1.hidden", "No such page"),
    empty(
      "No such page",
      "The console has no page at this address.",
      link("/tasks", "Go to the tasks", { class: "button primary" }),
    ),
  );

// load reads the module of a page.
async function load(name) {
  try {
    return await import("./" + name);
  } catch (error) {
    if (error instanceof TypeError)
      throw new api.ApiError(0, { message: "A file of the console cannot be read. Is the service running?" });
    throw error;
  }
}

// remember puts another query into the address of the page that is shown.
function remember(query) {
  const text = String(query).replaceAll("%2C", ",");
  history.replaceState(history.state, "", location.pathname + (text ? "?" + text.replace(/^\?/, "") : ""));
  shown = location.pathname + location.search;
}

// focusHeading moves the focus to the new page, for screen readers.
function focusHeading(view) {
  const heading = view.querySelector("h1") || byId("page");
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

// offerPlaces hides what needs a permission that the caller lacks.
function offerPlaces() {
  for (const a of document.querySelectorAll(".bar [data-needs]")) a.hidden = !a.dataset.needs.split(" ").every(api.can);
  fadeBar();
}

// counts are what waits for somebody, beside the links of pages: the permission, the request, how many its answer tells
// of, and what they are. They are read when a page is shown and each half minute.
/** @type {Record<string, [string, string, (answer: any) => number, string]>} */
const counts = {
  failures: [
    "system:analytics_read",
    "/v1/analytics/failures?limit=1",
    (a) => a.groups.length + a.other_groups.groups,
    "causes of failures",
  ],
  waits: ["steps:read", "/v1/steps?for_person=true&limit=100", (a) => a.length, "steps that wait"],
  dlq: ["dlq:stats", "/v1/dlq/stats", (a) => a.reduce((n, s) => n + s.pending - s.pending_over, 0), "dead letters"],
  service: ["dlq:read", "/v1/events/deliveries?status=dead&limit=1", (a) => a.total_count, "deliveries given up"],
};
let counted = 0;

async function count() {
  if (document.hidden || Date.now() - counted < 5000 || (api.service.auth && !api.credential())) return;
  counted = Date.now();
  for (const a of places()) {
    const [needs, path, of, what] = counts[a.pathname.slice(home.length + 1)] ?? [];
    if (!needs || !api.can(needs)) continue;
    const n = await api.request("GET", path).then(of, () => 0),
      text = n < 100 ? String(n) : "99+";
    a.title = n ? `${text} ${what}` : "";
    if (n) a.dataset.count = text;
    else delete a.dataset.count;
  }
  fadeBar();
}

function markPlace(path) {
  for (const a of places()) {
    const at = a.pathname.slice(home.length);
    const here = path === at || path.startsWith(at + "/") || (path === "/" && at === "/tasks");
    a.ariaCurrent = here ? "page" : null;
    if (here) byId("nav").scrollLeft = a.offsetLeft - (byId("nav").clientWidth - a.clientWidth) / 2;
  }
  fadeBar();
}

// fadeBar fades the sides of the bar's links where there are more.
function fadeBar() {
  const { style, scrollLeft, clientWidth, scrollWidth } = byId("nav");
  style.setProperty("--before", scrollLeft > 1 ? "3rem" : "0px");
  style.setProperty("--after", scrollLeft + clientWidth < scrollWidth - 1 ? "3rem" : "0px");
}

// followLinks shows pages of the console without loading the document again.
function followLinks(click) {
  const a = click.target.closest?.("a[href]");
  if (!a || click.defaultPrevented || click.button || click.metaKey || click.ctrlKey || click.shiftKey || click.altKey)
    return;
  const inside = a.origin === location.origin && (a.pathname === home || a.pathname.startsWith(home + "/"));
  if (!inside || a.target || a.hash) return;
  click.preventDefault();
  go(a.pathname.slice(home.length) + a.search || "/");
}

// Colours: the system's, light or dark. The page of the API shares the choice.

const themes = { auto: "M8 2.5a5.5 5.5 0 0 1 0 11z", light: "", dark: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11" };
const theme = () => document.documentElement.dataset.theme || "auto";

function nextTheme() {
  const names = Object.keys(themes),
    next = names[(names.indexOf(theme()) + 1) % names.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("stepwell-theme", next);
  } catch {
    // The browser denies storage: the choice lasts until the page is left.
  }
  nameTheme();
}

function nameTheme() {
  byId("shade").setAttribute("d", themes[theme()]);
  byId("theme").title = "Colours: " + { auto: "as the system", light: "light", dark: "dark" }[theme()];
  byId("theme").setAttribute("aria-label", byId("theme").title);
}

// Keys.

let after = ""; // the key before, if it was g
const noKeys = choice("no-keys"); // what people speak to a computer may be taken for keys

function pressed(e) {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) && e.target.type !== "checkbox";
  if (
    typing ||
    noKeys() ||
    e.ctrlKey ||
    e.metaKey ||
    e.altKey ||
    e.defaultPrevented ||
    document.querySelector("dialog[open]")
  )
    return;
  const before = after;
  after = e.key === "g" ? "g" : "";
  const to = before === "g" && places().find((a) => a.dataset.key === e.key);
  if (to) to.click();
  else if (e.key === "?") listKeys();
  else if (e.key === "/") document.querySelector("[data-search]")?.focus();
  else if (e.key === "c" && api.can("tasks:create") && before !== "g") go("/start");
  else if (e.key === "q") search();
  else if (pageKeys[e.key]) pageKeys[e.key][1](e);
  else return;
  e.preventDefault();
}

function listKeys() {
  const rows = [
    ...places().map((a) => ["g " + a.dataset.key, a.textContent]),
    ["c", "Start a task"],
    ["q", "Find anything"],
    ["/", "Filter the list"],
    ...Object.entries(pageKeys).map(([key, [what]]) => [key, what]),
    ["?", "This list"],
    ["Esc", "Close a dialog"],
  ];
  dialog(
    "Keys",
    h(
      "dl.keys",
      rows.map(([keys, what]) => [
        h(
          "dt",
          keys.split(" ").map((k) => h("kbd", k)),
        ),
        h("dd", what),
      ]),
    ),
    h(
      "label.which",
      h("input", { type: "checkbox", checked: !noKeys(), onchange: (e) => noKeys(!e.currentTarget.checked) }),
      "These keys are on",
    ),
  );
}

// The bar. Its links are relative in the document, which an address with more parts would break.

function fillBar() {
  for (const a of document.querySelectorAll(".bar a")) a.href = a.href; // from now on absolute
  byId("home").setAttribute("href", home);
  byId("fixture").hidden = !api.service.fixture;
  byId("credentials").hidden = !api.service.auth;
  byId("credentials").onclick = askCredential;
  byId("theme").onclick = nextTheme;
  byId("keys").onclick = listKeys;
  byId("find").onclick = search;
  nameTheme();
  byId("nav").onscroll = fadeBar;
  new ResizeObserver(fadeBar).observe(byId("nav"));
}

function askCredential() {
  const box = dialog("Credentials", signIn());
  onCredential(() => box.close());
}

function showStream({ detail }) {
  byId("live").textContent =
    { open: "Live", resumed: "Live", gap: "Live", poll: "Polling", lost: "Reconnecting …", denied: "Cut off" }[
      detail
    ] || "";
  byId("live").classList.toggle("lost", /poll|lost|denied/.test(detail));
  byId("live").title = detail === "poll" ? "The page asks every two seconds, since no stream of events reaches it" : "";
}

// banner shows a note above the page, or nothing without content.
function banner(e, ...content) {
  fill(e, content);
  if (!content.length) e.remove();
  else if (!e.isConnected) byId("page").before(e);
}

function showClock({ detail }) {
  const at = when(detail.now);
  const [lead, rest] = {
    frozen: ["Time is virtual and frozen at ", at],
    real: ["Fixture mode: tests can move time.", ""],
    auto: ["Time is virtual and jumps to the next timer. It is ", at],
  }[detail.mode];
  notice.className = detail.mode === "real" ? "notice" : "notice virtual";
  banner(notice, h("span", lead, h("b", rest)), link("/fixture", "Clock"));
}

const showStore = ({ detail }) =>
  banner(refusing, ...(detail ? [h("span", h("b", "Changes are refused. "), visible(detail))] : []));

// showCut says since when the page is not current, and why; a refused credential can be replaced.
function showCut({ detail: cuts }) {
  const { error } = [401, 403].map((s) => cuts.find((c) => c.error.status === s)).find(Boolean) ?? cuts[0] ?? {};
  if (!error || broken) return banner(cut);
  banner(
    cut,
    h(
      "span.grow",
      h("b", `Not current since ${timeOfDay(Math.min(...cuts.map((c) => c.since)))}. `),
      visible(error.message),
    ),
    error.status === 401
      ? button("Enter a credential …", askCredential, "primary small")
      : button("Try again", () => api.signals.dispatchEvent(new Event("again")), "quiet small"),
  );
}

let broken = false; // the page could not be shown at all
const cut = h("div.notice.cut", { role: "alert" });
const notice = h("div", { role: "status" });
const refusing = h("div.notice.virtual", { role: "alert" });

fillBar();
setInterval(count, 30_000);
api.signals.addEventListener("stream", showStream);
api.signals.addEventListener("clock", showClock);
api.signals.addEventListener("store", showStore);
api.signals.addEventListener("cut", showCut);
api.signals.addEventListener("credential", async () => {
  if (!api.credential()) return forget();
  await api.readCaller();
  offerPlaces();
  if (renewal) renewal();
  else show();
});
document.addEventListener("click", followLinks);
document.addEventListener("keydown", pressed);
addEventListener("popstate", () => {
  keep();
  if (shown !== location.pathname + location.search) show(true);
  else findPlace();
});
addEventListener("pagehide", storePlaces);
show();
