// What the pages need beyond htmx: times in the browser's zone, search, keys, and a sign
// that the stream is lost. Without this script the pages still show everything.
"use strict";
(() => {
  const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" });
  const clock = new Intl.DateTimeFormat("en-GB", {
    hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
  });
  const day = new Intl.DateTimeFormat("en-GB", {
    day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
  });
  const utc = ["UTC", "Etc/UTC", "GMT"].includes(zone.resolvedOptions().timeZone);

  // The server writes UTC; this adds the browser's zone behind it.
  function addZones() {
    if (utc) return;
    for (const t of document.querySelectorAll("time[datetime]")) {
      if (t.querySelector(".local")) continue;
      const at = new Date(t.dateTime);
      const local = document.createElement("span");
      local.className = "local";
      local.textContent = "· " + (t.textContent.length > 12 ? day : clock).format(at);
      t.append(" ", local); // a copied text has the space
    }
  }

  const search = () => document.getElementById("search");
  const rows = () => [...document.querySelectorAll("[data-row]:not([hidden])")];

  let typed = null; // null until somebody types

  function filter() {
    const box = search();
    if (!box) return;
    if (typed !== null && box.value !== typed) box.value = typed;
    const wanted = box.value.toLowerCase();
    for (const row of document.querySelectorAll("[data-row]")) {
      row.hidden = !row.dataset.row.toLowerCase().includes(wanted);
    }
  }

  function move(step) {
    const all = rows();
    if (all.length === 0) return;
    const at = all.indexOf(document.activeElement.closest("[data-row]"));
    const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1);
    all[to].focus();
  }

  function key(event) {
    const typing = event.target.matches("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing && event.key === "Escape") event.target.blur();
    if (typing || document.querySelector("dialog[open]")) return;
    switch (event.key) {
      case "/": if (!search()) return; search().focus(); search().select(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "?": document.getElementById("help").showModal(); break;
      case "Enter": {
        const open = event.target.matches("[data-row]") && event.target.querySelector("a[href]");
        if (!open) return;
        open.click();
        break;
      }
      default: return;
    }
    event.preventDefault();
  }

  // The command of an action's page follows what is typed.
  function command(form) {
    const base = form.dataset.base;
    let text = base ?? form.dataset.command.split(" --in-redis")[0] + " --in-redis";
    for (const input of form.querySelectorAll("[data-flag]")) {
      const value = input.value.trim();
      const word = "'" + value.replaceAll("'", "'\\''") + "'";
      const flag = input.dataset.at && /^\d{4}-|^\d{10,}$/.test(value) ? input.dataset.at : input.dataset.flag;
      if (value) text += " " + flag + (base ? "=" + (/^\d+$/.test(value) ? value : word) : " " + word);
    }
    form.querySelector(".command").textContent = text + (form.dataset.tail ?? "");
  }

  // What a person typed or opened stays: only the server's other values change.
  if (window.Idiomorph) {
    Idiomorph.defaults.ignoreActiveValue = true;
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
      !(name === "open" && node.matches("details") || ["value", "selected", "checked"].includes(name) && node.closest("form.find"));
  }
  document.addEventListener("htmx:sseMessage", () => { filter(); addZones(); });
  document.addEventListener("htmx:sseOpen", () => document.body.classList.remove("offline"));
  document.addEventListener("htmx:sseError", () => document.body.classList.add("offline"));
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-command], form[data-base]");
    if (form) command(form);
    if (event.target.id !== "search") return;
    typed = event.target.value;
    filter();
  });
  document.addEventListener("submit", (event) => { if (event.target.matches("form.search")) event.preventDefault(); });
  document.addEventListener("keydown", key);
  addZones();
})();
