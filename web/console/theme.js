// Sets the colours that the person chose before anything is drawn. The page of the API
// shares the choice.
try {
  const theme = localStorage.getItem("stepwell-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // The browser denies storage: the system's setting holds.
}
