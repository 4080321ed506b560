// As much of a document as the modules under test need: elements, texts, listeners, the focus and what is wrong at an
// input.

class Node {
  childNodes = [];
  parentNode = null;

  get children() { return this.childNodes.filter((c) => c instanceof Element); }
  get isConnected() { return this === document.body || Boolean(this.parentNode?.isConnected); }
  contains(other) { return other === this || this.childNodes.some((c) => c.contains(other)); }
  remove() {
    if (this.contains(document.activeElement)) document.activeElement = document.body;
    this.parentNode?.childNodes.splice(this.parentNode.childNodes.indexOf(this), 1);
    this.parentNode = null;
  }
  insertBefore(node, next) {
    document.moves++;
    node.remove();
    this.childNodes.splice(next ? this.childNodes.indexOf(next) : this.childNodes.length, 0, node);
    node.parentNode = this;
  }
  append(...nodes) { for (const n of nodes) this.insertBefore(n, null); }
  replaceWith(node) {
    this.parentNode.insertBefore(node, this);
    this.remove();
  }
}

class Text extends Node {
  nodeType = 3;
  nodeName = "#text";
  constructor(data) { super(); this.data = data; }
  replaceData(at, count, text) { this.data = this.data.slice(0, at) + text + this.data.slice(at + count); }
  get textContent() { return this.data; }
}

class Element extends Node {
  nodeType = 1;
  attributes = new Map();
  listeners = new Map();
  checked = false;
  constructor(tag) { super(); this.localName = tag; this.nodeName = tag.toUpperCase(); }
  get textContent() { return this.childNodes.map((c) => c.textContent).join(""); }
  set textContent(text) { this.childNodes = text ? [new Text(text)] : []; }
  get open() { return this.attributes.has("open"); }
  setAttribute(name, value) { this.attributes.set(name, String(value)); }
  removeAttribute(name) { this.attributes.delete(name); }
  getAttribute(name) { return this.attributes.get(name) ?? null; }
  addEventListener(type, f) { this.listeners.set(type, (this.listeners.get(type) ?? new Set()).add(f)); }
  emit(type) { for (const f of this.listeners.get(type) ?? []) f({ type, currentTarget: this }); }
  focus() { document.activeElement = this; }
  hasAttribute(name) { return this.attributes.has(name); }
  set ariaInvalid(value) {
    if (value === null) this.removeAttribute("aria-invalid");
    else this.setAttribute("aria-invalid", value);
  }
  get id() { return this.getAttribute("id") ?? ""; }
  set id(value) { this.setAttribute("id", value); }
  get ownerDocument() { return document; }
  matches(selector) {
    if (selector.startsWith("#")) return this.id === selector.slice(1);
    return selector.startsWith("[") ? this.hasAttribute(selector.slice(1, -1)) : selector.includes(this.localName);
  }
  querySelector(selector) { return this.children.map((c) => (c.matches(selector) ? c : c.querySelector(selector)))
    .find(Boolean) ?? null; }
  closest() { return null; }
}

const document = {
  moves: 0,
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
  createTextNode: (data) => new Text(data),
  getElementById: (id) => document.body.querySelector("#" + id),
  querySelector: () => ({ dataset: {} }), // what the service says of itself
};
document.body = document.activeElement = new Element("body");
globalThis.document = document;
const every = setInterval;
globalThis.setInterval = (f, ms) => every(f, ms).unref(); // so that no interval keeps the tests going
