// Elements: how they are made, and how one that is shown becomes another while it keeps the focus, what is typed,
// selected, scrolled and opened. Text becomes text nodes, never markup.

const svgTags = new Set([
  "svg",
  "path",
  "rect",
  "circle",
  "line",
  "g",
  "text",
  "title",
  "polyline",
  "polygon",
  "defs",
  "marker",
  "use",
  "tspan",
  "clipPath",
  "pattern",
]);

const kinds = new WeakMap(); // what matches an element with its successor
const given = new WeakMap(); // the properties that h gave an element

// visible escapes the characters of a text that mislead its reader; a pre keeps its lines.
export const visible = (text, tag) =>
  text.replace(/[\p{Cc}\p{Bidi_C}\u2028\u2029]/gu, (c) =>
    tag === "pre" && "\n\t".includes(c) ? c : "\\u" + c.charCodeAt().toString(16).padStart(4, 0),
  );

// h makes an element: h("p.soft", {id}, "text") has a class and properties, which may be left out. One that begins
// with "on" is a listener; one that is true is an empty attribute; false, null and undefined are left out. Children
// are nodes, texts or lists of them. Two properties are for patch: key tells an element from its siblings, and own says
// that the content changes only with the key, since the element itself changes it meanwhile. A listener finds its
// element in event.currentTarget, because patch hands it to the element that is shown.
export function h(kind, props, ...children) {
  const [tag, ...classes] = kind.split(".");
  const e = svgTags.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  if (props?.constructor !== Object) [props, children] = [{}, [props, children]];
  if (classes.length) props = { ...props, class: props.class ?? classes.join(" ") };
  kinds.set(e, `${kind} ${props.key ?? props.type ?? ""}`);
  given.set(e, props);
  for (const name of Object.keys(props))
    if (name !== "value" && (props[name] ?? false) !== false) give(e, name, props[name]);
  e.append(...contents(children, tag));
  if ((props.value ?? false) !== false) e.value = props.value; // which a list can have only once it has its options
  return e;
}

const contents = (children, tag) =>
  children
    .flat(Infinity)
    .filter((c) => (c ?? false) !== false)
    .map((c) => (c.nodeType ? c : document.createTextNode(visible(String(c), tag))));

const run = (event) => given.get(event.currentTarget)["on" + event.type]?.(event);

// give gives an element one property.
function give(e, name, value) {
  if (name === "key" || name === "own") return;
  if (name.startsWith("on"))
    e.addEventListener(name.slice(2), run); // which is once, however often
  else if (name === "value") e.value = value ?? "";
  else if (name === "checked") e.checked = Boolean(value);
  else if ((value ?? false) === false) e.removeAttribute(name);
  else e.setAttribute(name, value === true ? "" : /^(title|aria-label)$/.test(name) ? visible(value) : value);
}

// patch makes an element what another one is, which is not used further. It returns the element that is shown: the old
// one, unless the two differ in tag, fixed classes or key.
export function patch(old, fresh) {
  const same = kindOf(old) === kindOf(fresh);
  keepFocus(old, () => (same ? change(old, fresh) : old.replaceWith(fresh)));
  return same ? old : fresh;
}

// fill is replaceChildren by patches. Elements that are already in the place stay as they are; of others, it is not
// known whether they or what they patch is shown.
export function fill(place, ...children) {
  keepFocus(place, () => fillWith(place, contents(children, place.localName)));
}

const kindOf = (node) => kinds.get(node) ?? node.nodeName;

function change(old, fresh) {
  if (old === fresh) return;
  if (old.nodeType === 3) return changeText(old, fresh.data);
  const was = given.get(old) ?? {},
    is = given.get(fresh) ?? {};
  given.set(old, is);
  for (const name of new Set([...Object.keys(was), ...Object.keys(is)])) {
    if (
      name !== "value" &&
      (name.startsWith("on") ? !was[name] : was[name] !== is[name] && !touched(old, name, was[name]))
    )
      give(old, name, is[name]);
  }
  const typed = touched(old, "value", was.value);
  if (!is.own) fillWith(old, [...fresh.childNodes]);
  if (was.value !== is.value && !typed) give(old, "value", is.value);
}

// touched reports whether a person has changed what the page gave.
const touched = (e, name, was) =>
  name === "value"
    ? String(e.value) !== String(was ?? "")
    : (name === "checked" || name === "open") && e[name] !== Boolean(was);

// changeText replaces only what differs, so that a selection in the rest stays.
function changeText(node, text) {
  const before = node.data,
    short = Math.min(before.length, text.length);
  let from = 0,
    end = 0;
  if (before === text) return;
  while (from < short && before[from] === text[from]) from++;
  while (end < short - from && before.at(-1 - end) === text.at(-1 - end)) end++;
  node.replaceData(from, before.length - end - from, text.slice(from, text.length - end));
}

function fillWith(place, fresh) {
  const old = [...place.childNodes],
    index = new Map(old.map((node, i) => [node, i])),
    same = new Set(fresh),
    free = new Map();
  for (const node of old) {
    if (!same.has(node)) free.get(kindOf(node))?.push(node) ?? free.set(kindOf(node), [node]);
  }
  const from = fresh.map((node) => index.get(node) ?? index.get(free.get(kindOf(node))?.shift()) ?? -1);
  const kept = new Set(from),
    stays = rising(from);
  old.forEach((node, i) => kept.has(i) || node.remove());
  for (let i = fresh.length - 1, next = null; i >= 0; i--) {
    const node = old[from[i]] ?? fresh[i];
    if (from[i] >= 0) change(node, fresh[i]);
    if (!stays.has(i)) move(place, node, next);
    next = node;
  }
}

const move = (place, node, next) =>
  node.isConnected && place.moveBefore ? place.moveBefore(node, next) : place.insertBefore(node, next);

// rising returns the indexes of as many numbers as possible that rise from one to the next, without those below 0.
function rising(numbers) {
  const ends = [],
    before = [];
  numbers.forEach((n, i) => {
    if (n < 0) return;
    let low = 0;
    for (let high = ends.length; low < high;) {
      const middle = (low + high) >> 1;
      if (numbers[ends[middle]] < n) low = middle + 1;
      else high = middle;
    }
    before[i] = ends[low - 1];
    ends[low] = i;
  });
  const found = new Set();
  for (let i = ends.at(-1); i !== undefined; i = before[i]) found.add(i);
  return found;
}

const control = ":is(a[href], button, input, select, textarea, summary):not(:disabled)"; // what can have the focus

// keepFocus makes a change in a place and leaves the focus where it is. If its element goes, the one that takes its
// place gets it.
function keepFocus(place, makeChange) {
  /** @type {any} */
  const active = document.activeElement;
  const around = [];
  if (!place.contains(active)) return makeChange();
  for (let e = active; e.parentNode; e = e.parentNode)
    around.push([e.parentNode, [...e.parentNode.children].indexOf(e)]);
  makeChange();
  if (active === document.activeElement) return;
  if (active.isConnected) return active.focus({ preventScroll: true });
  const [parent, i] = around.find(([e]) => e.isConnected),
    next = parent.children[Math.min(i, parent.children.length - 1)];
  (next?.matches(control) ? next : (next?.querySelector(control) ?? parent.closest("[tabindex]")))?.focus({
    preventScroll: true,
  });
}
