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
const begin = () => { for (const file of files) import("./" + file); };
if (document.hidden) begin(); // nothing is drawn in a tab that is not shown
else new PerformanceObserver((_, watch) => { watch.disconnect(); begin(); }).observe({ type: "paint", buffered: true });
