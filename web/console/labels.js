// Labels in drawings, cut to the room that they have.

import { visible } from "./ui.js";

const pen = document.createElement("canvas").getContext("2d"),
  known = new Map();

// shorten cuts a text in its middle until it is as wide as the room, in pixels at a size of the font; end is what
// follows it in any case.
export function shorten(text, room, size, bold = false, end = "") {
  const key = [text, room, size, bold, end].join("\n");
  if (known.has(key)) return known.get(key);
  const all = [...visible(text)],
    width = (t) => (pen.measureText(t + end).width * size) / 100;
  const cut = (n) => [...all.slice(0, Math.ceil(n / 2)), "…", ...all.slice(all.length - Math.floor(n / 2))].join("");
  pen.font = `${bold ? 600 : 400} 100px ${getComputedStyle(document.body).fontFamily}`;
  let short = all.join("");
  if (width(short) > room) {
    let low = 1;
    for (let high = all.length; low < high;) {
      const middle = (low + high + 1) >> 1;
      if (width(cut(middle)) <= room) low = middle;
      else high = middle - 1;
    }
    short = cut(low);
  }
  if (known.size > 5000) known.clear();
  known.set(key, short + end);
  return short + end;
}
