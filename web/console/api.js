// The service's API, as the pages use it: requests with the credential of the person, the event
// stream, and what the page knows about the service and the caller.

const facts = document.querySelector('meta[name="stepwell"]').dataset;

// service has what the service says about itself in the page.
export const service = {
  version: facts.version,
  fixture: facts.fixture === "true", // fixture mode: the API under /_stepwell exists
  auth: facts.auth === "true", // callers need credentials
  keyHeader: facts.keyHeader,
};

// root is the path before every path of the API: empty, or the prefix of a proxy.
export const root = new URL("../../..", import.meta.url).pathname.replace(/\/$/, "");

// signals sends "credential" when the credential changes, "stream" when the state of an event stream changes (detail:
// the state), "clock" when the service's time is known again, "store" when it is known whether changes are accepted,
// "cut" when parts of the page cease to be current or are again (see cutOff), and "again" when the person wants what
// failed to be tried again.
/** @type {EventTarget & {addEventListener(type: string, f: (e: CustomEvent) => void, options?: object): void}} */
export const signals = new EventTarget();

const tell = (name, detail) => signals.dispatchEvent(new CustomEvent(name, { detail }));

// ApiError is an answer that is not a success, or a request without an answer (status 0).
export class ApiError extends Error {
  constructor(status, error = {}, requestId = "") {
    super(error.message || `The service answered with status ${status}.`);
    this.status = status;
    this.details = error.details || []; // [{field, message}]
    this.requestId = error.request_id || requestId;
  }
}

// setting returns what the browser keeps under a name for all tabs, or keeps a value.
export function setting(name, value) {
  try {
    if (value !== undefined) localStorage.setItem("stepwell-" + name, value);
    return localStorage.getItem("stepwell-" + name);
  } catch {
    return null; // the browser denies storage: the choice lasts until the page is left
  }
}

// Credentials: {kind: "token" or "key", value}, kept for this tab only.

const store = "stepwell-credential";
let current = stored();
const denied = new Set(); // permissions that answers said the caller lacks

function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(store));
  } catch {
    return null;
  }
}

// credential returns the credential, or null.
export const credential = () => current;

// setCredential replaces the credential; null forgets it.
export function setCredential(value) {
  current = value;
  caller = asked = null;
  denied.clear();
  try {
    if (value) sessionStorage.setItem(store, JSON.stringify(value));
    else sessionStorage.removeItem(store);
  } catch {
    // The browser denies storage: the credential lasts until the page is left.
  }
  tell("credential");
}

function credentialHeader() {
  if (!current) return {};
  return current.kind === "key" ? { [service.keyHeader]: current.value } : { Authorization: "Bearer " + current.value };
}

let caller = null,
  asked = null; // what the service says of the caller, and the request for it

// readCaller asks once for each credential what the caller may do.
export async function readCaller() {
  if (!service.auth) return;
  const sent = (asked ||= get("/v1/auth/permissions").catch(() => null)),
    answer = await sent;
  if (sent !== asked) return; // another credential has come
  caller = answer;
  if (!answer) asked = null;
}

// subject returns who the caller is, as far as the page knows.
export const subject = () => caller?.subject;

// can reports whether the caller has a permission, as far as the page knows. Whatever is not known is allowed, and the
// answer will show it.
export const can = (permission) =>
  !service.auth || (!denied.has(permission) && (!caller || caller.permissions.includes(permission)));

// parseJSON reads JSON. A number with more digits than a double holds stays as it is written, where the browser can
// do that: JSON.stringify gives the same digits. Most texts have none, and are then read without a look at each
// value.
export function parseJSON(text) {
  const long = (source) =>
    String(Number(source)) !== source && (source.replace(/\D/g, "").length > 15 || !Number.isFinite(Number(source)));
  if (!JSON.rawJSON || !text.match(/-?\d[\d.]{15,}(e[-+]?\d+)?|-?[\d.]+e\+?\d{3,}/gi)?.some(long))
    return JSON.parse(text);
  return JSON.parse(text, (key, value, { source }) =>
    typeof value === "number" && long(source) ? JSON.rawJSON(source) : value,
  );
}

// Requests.

// request returns the decoded answer, null for none, or throws an ApiError.
/** @type {(method: string, path: string, body?: any, options?: RequestInit) => Promise<any>} */
export async function request(method, path, body, { signal, headers } = {}) {
  const sent = { ...credentialHeader(), ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response, text;
  try {
    response = await fetch(root + path, {
      method,
      headers: sent,
      signal,
      credentials: "same-origin",
      cache: "no-store",
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
    text = await response.text();
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ApiError(0, { message: "The service does not respond. Is it running?" });
  }
  if (response.status === 503) readStore();
  if (!response.ok) throw refusal(response, text);
  if (response.headers.get("Content-Type")?.startsWith("text/plain")) text = text.trim().split("\n").pop();
  return text ? parseJSON(text) : null;
}

// refusal makes an ApiError, and notes the permission that is missing.
function refusal(response, text) {
  let error = {};
  try {
    error = JSON.parse(text).error || {};
  } catch {
    // Not from the service: a proxy, perhaps.
  }
  const missing = response.status === 403 && /permission: ([a-z_:]+)/.exec(error.message || "");
  if (missing) denied.add(missing[1]);
  return new ApiError(response.status, error, response.headers.get("X-Request-Id") || "");
}

// lines posts a body, calls onLine with each line of the answer as it comes, and resolves to the last.
export async function lines(path, body, onLine, signal) {
  const headers = { ...credentialHeader(), "Content-Type": "application/json" };
  try {
    const response = await fetch(root + path, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      signal,
      credentials: "same-origin",
    });
    if (!response.ok) throw refusal(response, await response.text());
    let rest = "",
      last = null;
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      const whole = (rest + text).split("\n");
      rest = whole.pop();
      for (const line of whole) onLine((last = JSON.parse(line)));
    }
    if (last?.finished === undefined) throw new Error("cut off");
    return last;
  } catch (e) {
    if (e instanceof ApiError || e.name === "AbortError") throw e;
    throw new ApiError(0, { message: "The service no longer responds. Is it running?" });
  }
}

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body = {}, options) => request("POST", path, body, options);
export const patch = (path, body, options) => request("PATCH", path, body, options);
export const del = (path, options) => request("DELETE", path, undefined, options);

// getOptional is get, but null for what the caller may not see or what does not exist.
export const getOptional = (path, options) =>
  get(path, options).catch((error) => {
    if (error.status !== 403 && error.status !== 404) throw error;
    return null;
  });

// What is not current.

const cuts = new Map();

// cutOff notes that a part of the page could not be read again, with the last time when it was current, or that it is
// current again, with null. "cut" has the list of {error, since}.
export function cutOff(part, error, since = Date.now()) {
  if (error) cuts.set(part, { error, since: Math.min(since, cuts.get(part)?.since ?? since) });
  else if (!cuts.delete(part)) return;
  tell("cut", [...cuts.values()]);
}

const retryPause = 5000; // after a failure that may pass

// reader returns a function that has a part of the page read again soon: one reading at a time, each some
// milliseconds after the last one, or ten times as long as that took, up to ten seconds. It says when the part is cut
// off, and tries again; after a refusal, once there is another credential or the person asks for it ("again").
export function reader(signal, read, pause) {
  let timer,
    reading = false,
    wanted = false,
    failed = null,
    ended = 0,
    took = 0,
    known = Date.now();
  const soon = (wait = Math.max(ended + Math.max(pause, Math.min(10 * took, longestPause)) - Date.now(), 100)) => {
    if (reading) wanted = true;
    else if (!signal.aborted) timer ??= setTimeout(run, wait);
  };
  const run = async () => {
    const began = Date.now();
    [timer, reading, wanted] = [undefined, true, false];
    try {
      await read();
      failed = null;
      known = Date.now();
    } catch (error) {
      failed = error;
      if (!(error instanceof ApiError) && !signal.aborted) console.error(error);
    }
    [reading, ended, took] = [false, Date.now(), Date.now() - began];
    if (signal.aborted) return;
    cutOff(run, failed, known);
    if (failed && failed.status !== 401 && failed.status !== 403) soon(retryPause);
    else if (wanted) soon();
  };
  for (const name of ["credential", "again"])
    signals.addEventListener(name, () => (failed || reading) && soon(0), { signal });
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    cutOff(run, null);
  });
  return () => soon();
}

// query returns "?a=b" of an object's members, or "". Empty members are left out, and lists are
// repeated.
export function query(members) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    for (const v of [value].flat()) if (v !== "" && v !== null && v !== undefined) q.append(name, v);
  }
  return q.size ? "?" + q : "";
}

// The service's time, which is virtual in fixture mode.

let clock = { offset: 0, mode: "real", now: 0 };

export const now = () => (clock.mode === "real" ? Date.now() + clock.offset : clock.now);

// setClock takes over an answer of /_stepwell/clock.
export function setClock(answer) {
  const at = Date.parse(answer.now);
  clock = { mode: answer.mode, now: at, offset: at - Date.now() };
  tell("clock", answer);
}

// noteTime moves a virtual clock to the time of an event.
function noteTime(text) {
  const at = Date.parse(text);
  if (clock.mode === "real" || !(at > clock.now)) return;
  clock.now = at;
  tell("clock", { now: text, mode: clock.mode });
}

// readClock reads the clock of fixture mode, if the caller may.
export async function readClock() {
  if (!service.fixture) return;
  try {
    const answer = await getOptional("/_stepwell/clock");
    if (answer) setClock(answer); // without permission, the time of the browser has to do
    cutOff(readClock, null);
  } catch (error) {
    cutOff(readClock, error);
  }
}

// each calls f after each so many milliseconds in which the tab is shown, until signal aborts.
export function each(ms, signal, f) {
  const timer = setInterval(() => (signal.aborted ? clearInterval(timer) : document.hidden || f()), ms);
}

// readStore finds out whether changes are accepted, and sends "store" with the reason if they are not.
export async function readStore() {
  clearTimeout(looksAgain);
  let check;
  try {
    check = (await (await fetch(root + "/health/ready", { cache: "no-store" })).json()).checks.web_database;
  } catch {
    return; // The requests of the page tell that the service does not answer.
  }
  const reason = check.status === "healthy" ? "" : check.message;
  tell("store", reason);
  if (reason) looksAgain = setTimeout(readStore, 5_000);
}

let looksAgain;

// The event stream.

const silence = 40_000; // longer than the service is ever silent, in milliseconds
const firstPause = 500,
  longestPause = 10_000;

// events follows the event stream, filtered by {task_uuid, namespace}. It calls onEvent with
// each event ({type: "task" or "step", …}), and onState with:
//
//	open     the stream has begun: read now what the events will change
//	resumed  it continues where it was cut
//	gap      events are missing: read everything again
//	lost     it was cut and will be resumed
//	poll     the caller may not follow it, or something holds it back: read again what may have changed
//	denied   the caller needs another credential, with which it continues
//
// It pauses while the tab is hidden. The function that it returns ends it.
/** @type {(filter: object, onEvent: (event: any) => void, onState?: (name: string) => void) => () => void} */
export function events(filter, onEvent, onState = () => {}) {
  /** @type {Record<string, any>} */
  const stream = { filter, onEvent, lastId: "", pause: firstPause, heard: Date.now(), ended: false, wake: () => {} };
  stream.state = (name) => {
    tell("stream", name);
    if (/open|resumed|poll/.test(name)) cutOff(stream, null);
    onState(name);
  };
  const visible = () => (document.hidden ? stream.abort?.abort() : stream.wake());
  const renew = () => {
    stream.renewed = true;
    stream.abort?.abort();
    stream.wake();
  };
  document.addEventListener("visibilitychange", visible);
  signals.addEventListener("credential", renew);
  follow(stream);
  return () => {
    if (stream.ended) return;
    stream.ended = true;
    document.removeEventListener("visibilitychange", visible);
    signals.removeEventListener("credential", renew);
    renew();
    cutOff(stream, null);
    tell("stream", "closed");
  };
}

// follow keeps a stream open until it is ended.
async function follow(stream) {
  for (let failures = 0; !stream.ended;) {
    stream.renewed = false;
    if (document.hidden) await sleep(stream, 1e9);
    else {
      /** @type {any} */
      const error = await readStream(stream);
      if (stream.ended) return;
      if (stream.renewed || document.hidden) continue;
      if (error === held) continue;
      if (error?.status === 403) {
        await poll(stream);
        continue;
      }
      failures = stream.pause === firstPause ? 1 : failures + 1;
      if (failures > 1 || error?.status === 401)
        cutOff(stream, error ?? new ApiError(0, { message: "The connection to the service was lost." }), stream.heard);
      stream.state(error?.status === 401 ? "denied" : "lost");
      await sleep(stream, error?.status === 401 ? 1e9 : stream.pause * (0.75 + Math.random() / 2));
      stream.pause = Math.min(stream.pause * 2, longestPause);
    }
  }
}

// poll says for half a minute what to read again. After that, the caller may be allowed to follow the stream.
async function poll(stream) {
  for (let n = 0; n < 15 && !stream.ended && !stream.renewed; n++, await sleep(stream, 2000))
    if (!document.hidden) stream.state("poll");
}

// sleep waits, or until the tab is shown or the stream is ended.
function sleep(stream, ms) {
  return new Promise((done) => {
    const timer = setTimeout(done, Math.min(ms, 2 ** 31 - 1));
    stream.wake = () => {
      clearTimeout(timer);
      done();
    };
  });
}

const held = {}; // instead of an error: nothing has come through a connection

// readStream reads one connection to its end. It returns an ApiError for a refusal. As long as nothing comes, perhaps
// because a proxy collects what should go on at once, it says what to read again.
async function readStream(stream) {
  let first = true,
    waited = false;
  const late = setInterval(() => {
    waited = true;
    stream.state("poll");
  }, 2000);
  const abort = (stream.abort = new AbortController());
  const began = Date.now(),
    watch = setInterval(() => {
      if (Date.now() - Math.max(began, stream.heard) > silence) abort.abort();
    }, 5000);
  try {
    const headers = { ...credentialHeader(), Accept: "text/event-stream" };
    if (stream.lastId) headers["Last-Event-ID"] = stream.lastId;
    const response = await fetch(root + "/v1/events" + query(stream.filter), {
      headers,
      signal: abort.signal,
      cache: "no-store",
    });
    if (!response.ok) return refusal(response, await response.text());
    const parse = parser(stream),
      decoder = new TextDecoder();
    for (const body = response.body.getReader(); ;) {
      const { value, done } = await body.read();
      if (done) return null;
      clearInterval(late);
      stream.heard = Date.now();
      if (first) stream.state(stream.lastId ? "resumed" : "open");
      [stream.pause, first] = [firstPause, false];
      parse(decoder.decode(value, { stream: true }));
    }
  } catch {
    return first && waited && abort.signal.aborted ? held : null; // the connection was cut
  } finally {
    clearInterval(watch);
    clearInterval(late);
  }
}

// parser returns a function that takes the text of a stream piece by piece.
function parser(stream) {
  let rest = "",
    type = "",
    data = "",
    id = "";
  return (text) => {
    const whole = (rest + text).split("\n");
    rest = whole.pop();
    for (const line of whole) {
      if (line.startsWith("data: ")) data += line.slice(6);
      else if (line.startsWith("event: ")) type = line.slice(7);
      else if (line.startsWith("id: ")) id = line.slice(4);
      else if (line === "") {
        stream.lastId = id || stream.lastId; // now that its event is complete
        if (type === "gap") stream.state("gap");
        else if (data && !stream.ended) deliver(stream, { type, ...parseJSON(data) });
        type = data = id = "";
      }
    }
  };
}

function deliver(stream, event) {
  if (service.fixture) noteTime(event.recorded_at);
  stream.onEvent(event);
}

// Commands to copy.

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'");

// curl returns a request as a command for the shell. Credentials are variables in it, because
// commands end up in histories and chats.
export function curl(method, path, body) {
  const parts = [`curl -sS${method === "GET" ? "" : " -X " + method} ${quoted(location.origin + root + path)}`];
  if (current?.kind === "key") parts.push(`-H "${service.keyHeader}: $STEPWELL_API_KEY"`);
  else if (current || service.auth) parts.push('-H "Authorization: Bearer $STEPWELL_AUTH_TOKEN"');
  if (body !== undefined) {
    parts.push("-H 'Content-Type: application/json'", "-d " + quoted(JSON.stringify(body)));
  }
  return parts.join(" \\\n  ");
}

// cli returns a call of the command line, such as cli("task", "show", id).
export function cli(...words) {
  const url = location.origin + root;
  const where = url === "http://127.0.0.1:8080" ? [] : ["--url", url];
  return ["stepwell", ...words, ...where].map((w) => quoted(String(w))).join(" ");
}
