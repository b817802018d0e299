// The theme: ?theme=dark or light, else what was chosen here before, else that of the system.
const root = document.documentElement;
const remembered = () => { try { return localStorage.getItem("meanformer-theme"); } catch { return null; } };
const asked = new URLSearchParams(location.search).get("theme") || remembered();
if (asked === "dark" || asked === "light") root.dataset.theme = asked;
addEventListener("DOMContentLoaded", () => {
  document.querySelector(".theme").addEventListener("click", () => {
    const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("meanformer-theme", root.dataset.theme); } catch { /* a file without storage */ }
  });
  for (const button of document.querySelectorAll(".code button")) {
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("pre").textContent;
      try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
      catch {
        const range = document.createRange();
        range.selectNodeContents(button.parentElement.querySelector("pre"));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = document.execCommand("copy") ? "copied" : "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }
  for (const image of document.querySelectorAll("figure img"))
    image.addEventListener("click", () => image.parentElement.classList.toggle("large"));
});
addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details")) d.open = true; });
