// The frame of the console: it shows the page that the address names, and has navigation,
// colours, keys and the notes that concern all pages.

import * as api from "./api.js";
import { dialog, empty, h, link, loading, problem, signIn, visible, when } from "./ui.js";

// routes lists the pages: path below /console, module, title. A page's module exports
// show(root, {path, params, query, go, signal, title, keys, remember}), which fills root and ends
// what it started when signal aborts. title(text) names the page, keys({key: [what, function]})
// adds keys, and remember(query) puts another query into the address without showing it anew.
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
  ["/analytics", "analytics.js", "Analytics"],
  ["/fixture", "fixture.js", "Fixture"],
];

const home = api.root + "/console";
const byId = (id) => document.getElementById(id);
const places = () => [...byId("nav").querySelectorAll("a:not([hidden])")]; // the links of the navigation
let leaving = new AbortController(); // aborts what belongs to the page that is shown
let shown = ""; // the address of the page that is shown
let pageKeys = {}; // keys of the page: {key: [what it does, function]}

function find(path) {
  const parts = path.split("/");
  for (const [pattern, module, title] of routes) {
    const names = pattern.split("/"), params = {};
    const fits = names.length === parts.length && names.every((name, i) => {
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
function go(path, { replace } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", home + (path === "/" ? "" : path));
  if (!replace) scrollTo(0, 0);
  show(true);
}

// setTitle names the page in the tab.
const setTitle = (text) => { document.title = visible(text) + " · Stepwell"; };

// show shows the page that the address names.
async function show(focus) {
  leaving.abort();
  const { signal } = (leaving = new AbortController());
  const path = currentPath(), found = find(path);
  shown = location.pathname + location.search;
  pageKeys = {};
  markPlace(path);
  setTitle(found ? found.title : "No such page");
  const view = h("div.view", loading());
  byId("page").replaceChildren(view);
  api.readClock();
  api.readStore();
  try {
    const [module] = await Promise.all([found ? load(found.module) : { show: nowhere }, api.readCaller()]);
    if (signal.aborted) return;
    view.replaceChildren();
    await module.show(view, { path, params: found?.params, query: new URLSearchParams(location.search), go, signal,
      title: setTitle, remember, keys: (more) => { pageKeys = { ...pageKeys, ...more }; } });
  } catch (error) {
    if (signal.aborted) return;
    leaving.abort(); // ends its stream
    pageKeys = {};
    view.replaceChildren(h("h1", found.title), problem(error, () => show()));
  }
  if (focus && view.isConnected && !view.contains(document.activeElement)) focusHeading(view);
}

const nowhere = (view) => view.replaceChildren(h("h1.hidden", "No such page"), empty("No such page",
  "The console has no page at this address.", link("/tasks", "Go to the tasks", { class: "button primary" })));

// load reads the module of a page.
async function load(name) {
  try {
    return await import("./" + name);
  } catch (error) {
    if (error instanceof TypeError) throw new api.ApiError(0, { message: "A file of the console cannot be read. Is the service running?" });
    throw error;
  }
}

// remember puts another query into the address of the page that is shown.
function remember(query) {
  const text = String(query).replaceAll("%2C", ",");
  history.replaceState(null, "", location.pathname + (text ? "?" + text.replace(/^\?/, "") : ""));
  shown = location.pathname + location.search;
}

// focusHeading moves the focus to the new page, for screen readers.
function focusHeading(view) {
  const heading = view.querySelector("h1") || byId("page");
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

function markPlace(path) {
  for (const a of places()) {
    const at = a.pathname.slice(home.length);
    const here = path === at || path.startsWith(at + "/") || (path === "/" && at === "/tasks");
    a.ariaCurrent = here ? "page" : null;
  }
}

// followLinks shows pages of the console without loading the document again.
function followLinks(click) {
  const a = click.target.closest?.("a[href]");
  if (!a || click.defaultPrevented || click.button || click.metaKey || click.ctrlKey || click.shiftKey || click.altKey) return;
  const inside = a.origin === location.origin && (a.pathname === home || a.pathname.startsWith(home + "/"));
  if (!inside || a.target || a.hash) return;
  click.preventDefault();
  go(a.pathname.slice(home.length) + a.search || "/");
}

// Colours: the system's, light or dark. The page of the API shares the choice.

const themes = { auto: "M8 2.5a5.5 5.5 0 0 1 0 11z", light: "", dark: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11" };
const theme = () => document.documentElement.dataset.theme || "auto";

function nextTheme() {
  const names = Object.keys(themes), next = names[(names.indexOf(theme()) + 1) % names.length];
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

function pressed(e) {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) || e.target.isContentEditable;
  if (typing || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector("dialog[open]")) return;
  const before = after;
  after = e.key === "g" ? "g" : "";
  const place = before === "g" && places().find((a) => a.dataset.key === e.key);
  if (place) place.click();
  else if (e.key === "?") listKeys();
  else if (e.key === "/") document.querySelector("[data-search]")?.focus();
  else if (e.key === "c" && before !== "g") go("/start");
  else if (pageKeys[e.key]) pageKeys[e.key][1](e);
  else return;
  e.preventDefault();
}

function listKeys() {
  const rows = [...places().map((a) => ["g " + a.dataset.key, a.textContent]), ["c", "Start a task"], ["/", "Search or filter"],
    ...Object.entries(pageKeys).map(([key, [what]]) => [key, what]), ["?", "This list"], ["Esc", "Close a dialog"]];
  dialog("Keys", h("dl.keys", rows.map(([keys, what]) =>
    [h("dt", keys.split(" ").map((k) => h("kbd", k))), h("dd", what)])));
}

// The bar. Its links are relative in the document, which an address with more parts would break.

function fillBar() {
  for (const a of document.querySelectorAll(".bar a")) a.href = a.href; // from now on absolute
  byId("home").href = home;
  byId("fixture").hidden = !api.service.fixture;
  byId("credentials").hidden = !api.service.auth;
  byId("credentials").onclick = () => {
    const box = dialog("Credentials", signIn());
    api.signals.addEventListener("credential", () => box.close(), { once: true });
  };
  byId("theme").onclick = nextTheme;
  byId("keys").onclick = listKeys;
  nameTheme();
}

function showStream({ detail }) {
  byId("live").textContent = { open: "Live", resumed: "Live", gap: "Live", poll: "Polling", lost: "Reconnecting …" }[detail] || "";
  byId("live").classList.toggle("lost", detail === "lost");
}

function showClock({ detail }) {
  const at = when(detail.now);
  const [lead, rest] = { frozen: ["Time is virtual and frozen at ", at], real: ["Fixture mode: tests can move time.", ""],
    auto: ["Time is virtual and jumps to the next timer. It is ", at] }[detail.mode];
  notice.className = detail.mode === "real" ? "notice" : "notice virtual";
  notice.replaceChildren(h("span", lead, h("b", rest)), link("/fixture", "Clock"));
  if (!notice.isConnected) byId("page").before(notice);
}

function showStore({ detail }) {
  refusing.replaceChildren(h("span", h("b", "Read-only. "), visible(detail)));
  if (!detail) refusing.remove();
  else if (!refusing.isConnected) byId("page").before(refusing);
}

const notice = h("div", { role: "status" });
const refusing = h("div.notice.virtual", { role: "alert" });

fillBar();
api.signals.addEventListener("stream", showStream);
api.signals.addEventListener("clock", showClock);
api.signals.addEventListener("store", showStore);
api.signals.addEventListener("credential", () => show());
document.addEventListener("click", followLinks);
document.addEventListener("keydown", pressed);
addEventListener("popstate", () => { if (shown !== location.pathname + location.search) show(true); });
show();
