// Menus of the header, and dialogs.

import { append, clear, freshId, h } from "./dom.js";

/**
 * A button with a menu. `items()` is asked when the menu opens: [{label, hint, reason, run}], where a `reason` says why
 * the item cannot be used now.
 */
export function menuButton(label, name, items) {
  const id = freshId("menu");
  const list = h("div", { class: "menu-list", role: "menu", id, "aria-label": label, hidden: true });
  const button = h("button", {
    type: "button", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": id, "data-testid": name,
  }, label);
  const menu = h("div", { class: "menu" }, button, list);

  const close = (focus = true) => {
    if (list.hidden) return;
    list.hidden = true;
    button.setAttribute("aria-expanded", "false");
    if (focus) button.focus();
  };
  const open = (last = false) => {
    append(clear(list), items().map((item) => menuItem(item, name, close)));
    list.hidden = false;
    button.setAttribute("aria-expanded", "true");
    list.children[last ? list.children.length - 1 : 0]?.focus();
  };

  button.addEventListener("click", () => (list.hidden ? open() : close()));
  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    open(event.key === "ArrowUp");
  });
  list.addEventListener("keydown", (event) => moveInMenu(event, list, close));
  menu.addEventListener("focusout", (event) => !menu.contains(event.relatedTarget) && close(false));
  document.addEventListener("pointerdown", (event) => !menu.contains(event.target) && close(false));
  return menu;
}

function menuItem({ label, hint, reason, run, id }, name, close) {
  const attributes = { type: "button", role: "menuitem", tabindex: "-1", "data-testid": `${name}-${id}` };
  const click = () => {
    if (reason) return;
    close();
    run();
  };
  return h(
    "button", { ...attributes, "aria-disabled": reason ? "true" : null, title: reason, onclick: click },
    label, h("span", { class: "hint" }, reason || hint),
  );
}

function moveInMenu(event, list, close) {
  const items = [...list.children];
  const now = items.indexOf(document.activeElement);
  const places = { ArrowDown: now + 1, ArrowUp: now - 1 + items.length, Home: 0, End: items.length - 1 };
  const starts = (item) => item.textContent.toLowerCase().startsWith(event.key.toLowerCase());
  if (event.key === "Escape") close();
  else if (event.key in places) items[places[event.key] % items.length].focus();
  else if (/^\w$/.test(event.key) && items.some(starts)) items.find(starts).focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Show a dialog with a title and children; it is removed when closed. Returns the element, with `.close()`. */
export function showDialog(title, ...children) {
  const id = freshId("dialog");
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": id });
  const leave = h("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Close");
  append(dialog, h("div", { class: "dialog-head" }, h("h2", { id }, title), leave), children);
  dialog.addEventListener("close", () => dialog.remove());
  closeByBackdrop(dialog);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** A press beside a dialog closes it. */
export function closeByBackdrop(dialog) {
  dialog.addEventListener("pointerdown", (event) => {
    const box = dialog.getBoundingClientRect();
    const [x, y] = [event.clientX, event.clientY];
    const beside = x < box.left || x > box.right || y < box.top || y > box.bottom;
    if (event.target === dialog && beside) dialog.close();
  });
}
