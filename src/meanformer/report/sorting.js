// A table in .sortable is sorted by the column whose heading is pressed, then the other way round.
for (const table of document.querySelectorAll(".sortable table")) {
  const headings = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = cell => {
    const power = cell.querySelector("sup")?.textContent ?? "", text = cell.textContent.replaceAll("−", "-").replaceAll(",", "");
    return power ? parseFloat(text) * 10 ** parseFloat(power.replace("−", "-")) : parseFloat(text);
  };
  headings.forEach((heading, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending", sign = up ? 1 : -1;
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = row => { const x = value(row.cells[k]); return Number.isNaN(x) ? Infinity : sign * x; };
      body.append(...[...body.rows].sort((a, b) => order(a) - order(b) || 0));
    });
  });
}
