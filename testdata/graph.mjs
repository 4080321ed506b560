// Draws the graph of a template, read as JSON from standard input, as the console lays it out.
import { readFileSync } from "node:fs";

const page = { addEventListener() {}, querySelector: () => ({ dataset: {} }) };
Object.assign(globalThis, { document: page, addEventListener() {}, setInterval() {} }); // what the modules ask of a browser
const { layout } = await import("../web/console/layout.js");
const { KINDS } = await import("../web/console/model.js");

const template = JSON.parse(readFileSync(0));
const after = (step) => step.dependencies ?? step.depends_on ?? [];
const shape = layout(template.steps.map((s) => ({ id: s.name })), template.steps.flatMap((s) => after(s).map((d) => [d, s.name])));
const width = Math.ceil(shape.width) + 20, height = Math.ceil(shape.height) + 20;

const line = ([[x, y], ...rest]) => `M${x} ${y}` + rest.map(([to, at], i) => {
  const middle = (x + to) / 2, part = i % 2 ? `L${to} ${at}` : `C${middle} ${y} ${middle} ${at} ${to} ${at}`;
  [x, y] = [to, at];
  return part;
}).join("") + `m-6 -4l6 4l-6 4`;
const text = (kind, x, y, words) => `<text class="${kind}" x="${x}" y="${y}">${words}</text>`;
const node = ({ id, x, y }, i) => {
  const { type, handler } = template.steps[i], note = KINDS[type];
  return `<rect x="${x}" y="${y}" width="192" height="50" rx="9"/>` + text("label", x + 14, y + 21, id) +
    text("soft", x + 14, y + 37, handler.callable) + (note ? text("soft end", x + 182, y + 17, note) : "");
};
console.log(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">
<title>${template.name}</title>
<style>
  text { font: 11.5px system-ui, sans-serif } .label { font-weight: 600; font-size: 13.5px; fill: #16211f }
  .soft { fill: #566461 } .end { text-anchor: end; font-size: 10px } path { fill: none; stroke: #7d8b88; stroke-width: 1.5 }
  rect { fill: #fff; stroke: #8aa39e; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    .label { fill: #e6edeb } .soft { fill: #9baaa7 } path { stroke: #6d7d79 } rect { fill: #171e1d; stroke: #4b615c }
  }
</style>
<g transform="translate(10 10)">
${shape.edges.map((e) => `<path d="${line(e.points)}"/>`).join("\n")}
${shape.nodes.map(node).join("\n")}
</g>
</svg>`);
