// Only what Markdown has marked as a formula, and the entries of the navigation, which repeat headings.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]] },
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex|md-ellipsis" },
  svg: { fontCache: "global", scale: 0.95 },
  startup: {
    pageReady: () => window.MathJax.startup.defaultPageReady().then(() => {
      boxWide();
      window.addEventListener("resize", boxWide);
    }),
  },
};

// A formula in the text that is wider than its column gets a box of its own, in which it scrolls.
function boxWide() {
  for (const formula of document.querySelectorAll("mjx-container:not([display])")) {
    const column = formula.closest("p, li, dd, td, th, h1, h2, h3, h4, div");
    const width = formula.querySelector("svg").getBoundingClientRect().width;
    formula.classList.toggle("wide", width > column.clientWidth);
  }
}
