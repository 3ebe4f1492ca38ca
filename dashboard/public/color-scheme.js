// Runs before the first paint, so that the page never flashes in the wrong theme. A file, not inline: a strict CSP allows it.
(function () {
  var stored = window.localStorage.getItem("paceline-color-scheme");
  var dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  var scheme = stored === "light" || stored === "dark" ? stored : dark ? "dark" : "light";
  document.documentElement.setAttribute("data-mantine-color-scheme", scheme);
})();
