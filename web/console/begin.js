// Sets the colours that the person chose before anything is drawn (the page of the API shares the
// choice), and loads the modules of the console once its frame is drawn.
try {
  const theme = localStorage.getItem("stepwell-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // The browser denies storage: the system's setting holds.
}
const files = ["main.js", "api.js", "ui.js", "patch.js"];
if (/\/(console|tasks)\/?$/.test(location.pathname)) files.push("tasks.js"); // the first page that most people open
const say = (text) => {
  document.querySelector(".loading")?.replaceChildren(text); // main.js replaces it once it shows a page
};
const begin = () => {
  if (!CSS.supports("color", "light-dark(red, red)") || !Map.groupBy || !Set.prototype.union) {
    return say(
      "This browser is too old for the console, which needs Chrome or Edge 123, Firefox 127 or Safari " +
        "17.5, or a later one.",
    );
  }
  for (const file of files)
    import("./" + file).catch((e) =>
      say(`The console cannot be loaded: ${e.message}. Is the service running? Load the page again.`),
    );
};
if (document.hidden)
  begin(); // nothing is drawn in a tab that is not shown
else {
  setTimeout(begin, 1000); // for browsers that do not tell when they have drawn; a module is loaded once
  new PerformanceObserver((_, watch) => {
    watch.disconnect();
    begin();
  }).observe({ type: "paint", buffered: true });
}
