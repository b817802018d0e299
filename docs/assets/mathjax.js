// Only what Markdown has marked as a formula, and the entries of the navigation, which repeat headings.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]] },
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex|md-ellipsis" },
  svg: { fontCache: "global", scale: 0.95 },
};
