// Stack traces: which lines of a text are frames, and which frames are of libraries. Nothing here touches the page.

// FRAME matches the first line of a frame: JavaScript, Java and .NET; Python; Ruby; PHP; Rust; Elixir; and places
// alone.
const FRAME = new RegExp(
  [
    /at \S/,
    /File ".*", line \d/,
    /from \S+:\d/,
    /#\d+ /,
    /\d+: \S/,
    /\(.+\) \S+:\d+: /,
    /\.\.\. \d+ more/,
    /\S+\.\w+:\d+(:|$| \+0x)/,
  ]
    .map((r) => "^\\s*" + r.source)
    .join("|"),
);
const GO = /^\t\S+\.\w+:\d+/; // below the line of its function

// LIBRARY matches what tells frames of libraries, runtimes and frameworks.
const LIBRARY = new RegExp(
  [
    /node_modules|(site|dist)-packages|\bnode:|<frozen |\/(rustc|gems|pkg\/mod|vendor|\.cargo|\.m2|deps)\//,
    /\/usr\/(local\/)?(lib|go|share)\/|\/lib\/(python|ruby)|\.\.\. \d+ more/,
    /\bat (?:\S+\/)?(javax?|jdk|sun|kotlinx?|scala|System|Microsoft)\./,
    /\bat (org\.(spring|apache|hibernate|junit)|io\.netty|com\.(sun|fasterxml))/,
    /\((elixir|stdlib|kernel|phoenix\w*|ecto\w*|plug\w*|cowboy|db_connection) \d/,
    /^(runtime|reflect|net|panic)[.(/]/,
  ]
    .map((r) => r.source)
    .join("|"),
);

const PYTHON = "Traceback (most recent call last):";

// headline returns the line that says what happened: what a Python traceback ends with, or the first one.
export function headline(text) {
  const at = text.lastIndexOf(PYTHON),
    rest = at < 0 ? text.trim() : text.slice(at + PYTHON.length);
  return ((at >= 0 && /\n(\S.*)/.exec(rest)?.[1]) || rest.trim().split("\n", 1)[0]).trim();
}

// causeOf returns the last cause of a chain of errors, as Java, JavaScript, .NET and Python print it; "" without one.
export function causeOf(text) {
  const [, first, ...more] = text.split(PYTHON);
  const found = [...text.matchAll(/(?:^\s*Caused by:|\[cause\]:|--->) (.+)$/gm)];
  const cause = more.length ? /\n(\S.*)/.exec(first)?.[1] : found.at(-1)?.[1];
  return cause && !headline(text).includes(cause.trim()) ? cause.trim() : "";
}

// withoutType returns a headline without the type of the error, which is shown beside it.
export function withoutType(text, type) {
  const [name, rest] = [text.split(": ", 1)[0], text.slice(text.indexOf(": ") + 2)];
  return name !== text && (name === type || (name.endsWith("." + type) && !name.includes(" "))) ? rest : text;
}

// readTrace returns {headline, parts, frames, libraries}: parts are the other lines, in their order, as {words} for
// lines between frames or {own, library} for frames that follow each other. frames and libraries count.
export function readTrace(text) {
  const lines = text.replace(/\s+$/, "").split(/\r?\n/),
    first = headline(text),
    parts = [];
  let frame,
    indent,
    frames = 0,
    libraries = 0,
    said = false;
  lines.forEach((line, i) => {
    const deep = line.search(/\S/);
    if (frame && deep > indent) return frame.push(line);
    frame = undefined;
    if (!said && line.trim() === first) return void (said = true);
    const framed = FRAME.test(line) || (deep === 0 && GO.test(lines[i + 1])),
      kind = framed ? "run" : "words";
    if (deep < 0 || line === PYTHON) return;
    if (!parts.at(-1)?.[kind]) parts.push({ [kind]: [] });
    parts.at(-1)[kind].push(framed ? (frame = [line]) : line);
    indent = deep;
  });
  const read = parts.map(({ words, run }) => {
    if (words) return { words: words.join("\n") };
    const texts = run.map((f) => f.join("\n")),
      library = texts.filter((f) => LIBRARY.test(f));
    frames += run.length;
    libraries += library.length;
    return { own: texts.filter((f) => !LIBRARY.test(f)), library };
  });
  return { headline: first, parts: read, frames, libraries };
}
