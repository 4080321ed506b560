// Charts in SVG: stacked bars over time.

import { dayOf, fill, h, legend, timeOfDay } from "./ui.js";

const HEIGHT = 190,
  RIGHT = 8,
  TOP = 12,
  BOTTOM = 24;

// chart draws series over times and draws again when its width changes. Its options: label, times (milliseconds), step
// (of a bucket), series [{name, tone, values}] with null for nothing, and format(value). It ends with signal.
export function chart(options, signal) {
  const box = h("div.chart-box");
  const watch = new ResizeObserver(([e]) => {
    const width = Math.round(e.contentRect.width);
    if (width > 0) fill(box, draw(options, width));
  });
  watch.observe(box);
  signal.addEventListener("abort", () => watch.disconnect());
  return h(
    "figure.chart",
    { key: JSON.stringify(options), own: true },
    h("figcaption.row", h("h2", options.label), legend(options.series.map((one) => [one.tone, one.name]))),
    box,
  );
}

function draw({ label, times, step, series, format }, width) {
  const top = ceiling(Math.max(0, ...times.map((_, i) => sum(series, i))));
  const from = times[0],
    to = times.at(-1) + step;
  const marked = top === 1 ? [0, 1] : [0, 0.5, 1],
    left = 12 + 6.5 * Math.max(...marked.map((part) => format(top * part).length), 5);
  const x = (t) => left + ((t - from) / (to - from)) * (width - left - RIGHT),
    y = (v) => HEIGHT - BOTTOM - (v / top) * (HEIGHT - TOP - BOTTOM);
  const hits = times.map((t, i) =>
    h(
      "rect.hit",
      { x: x(t), y: TOP, width: x(t + step) - x(t), height: HEIGHT - TOP - BOTTOM },
      h(
        "title",
        [span(t, step), ...series.map((s) => `${s.name}: ${s.values[i] === null ? "–" : format(s.values[i])}`)].join(
          " · ",
        ),
      ),
    ),
  );
  return h(
    "svg",
    {
      width,
      height: HEIGHT,
      role: "img",
      "aria-label": `${label}, up to ${format(top)}. The figures are in the table below.`,
    },
    marked.map((part) => gridLine(y(top * part), format(top * part), left, width)),
    axis(from, to, step, x, left, width),
    bars(times, step, series, x, y),
    hits,
  );
}

const sum = (series, i) => series.reduce((n, s) => n + (s.values[i] ?? 0), 0);

// ceiling returns the next round number from a value on.
function ceiling(v) {
  if (v <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 4, 5, 8, 10].find((f) => f * power >= v * 0.9999) * power;
}

function bars(times, step, series, x, y) {
  const gap = Math.min(2, (x(times[0] + step) - x(times[0])) / 5);
  return times.map((t, i) => {
    let below = 0;
    return series
      .filter((s) => s.values[i])
      .map((s) => {
        const low = y(below),
          high = y((below += s.values[i]));
        return h("rect", {
          class: "bar-part " + s.tone,
          x: x(t) + gap / 2,
          y: high,
          width: Math.max(x(t + step) - x(t) - gap, 1),
          height: Math.max(low - high, 1),
        });
      });
  });
}

const gridLine = (y, text, left, width) => [
  h("line.grid", { x1: left, x2: width - RIGHT, y1: y, y2: y }),
  h("text.tick.end", { x: left - 6, y: y + 4 }, text),
];

const minute = 60_000,
  hour = 60 * minute,
  day = 24 * hour;

// span names a bucket of time.
export const span = (t, step) =>
  step >= day ? dayOf(t) : `${dayOf(t)} ${timeOfDay(t).slice(0, 5)}–${timeOfDay(t + step)}`;

// axis writes as many times as there is room for.
function axis(from, to, step, x, left, width) {
  const room = Math.max(Math.floor((width - left) / 76), 1),
    long = to - from > 2 * day;
  const every =
    [
      minute,
      2 * minute,
      5 * minute,
      10 * minute,
      15 * minute,
      30 * minute,
      hour,
      2 * hour,
      3 * hour,
      6 * hour,
      12 * hour,
      day,
      2 * day,
      5 * day,
      10 * day,
    ].find((e) => e >= (long ? day : step) && (to - from) / e <= room) || 10 * day;
  const texts = [];
  for (let t = every < hour ? Math.ceil(from / every) * every : from; t < to; t += every) {
    if (x(t) < width - 40) texts.push(h("text.tick", { x: x(t), y: HEIGHT - 6 }, (long ? dayOf : timeOfDay)(t)));
  }
  return texts;
}
