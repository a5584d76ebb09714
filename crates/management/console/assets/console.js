// SPDX-License-Identifier: Apache-2.0
// Keeps the page current and adds keys. Everything works without it, a reload at a time.
"use strict";

const pulse = document.getElementById("pulse");

function put(piece) {
  const there = document.getElementById(piece.id);
  if (!there) return;
  if (piece.inside) {
    if (busy(there)) return;
    const open = [...there.querySelectorAll("details")].map((d) => d.open);
    const focus = there.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const places = [...there.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
    there.innerHTML = piece.html;
    there.querySelectorAll("details").forEach((d, i) => { if (open[i]) d.open = true; });
    there.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = places[i] || 0; });
    if (focus) [...there.querySelectorAll("a")].find((a) => a.getAttribute("href") === focus)?.focus();
  } else {
    const focused = there === document.activeElement;
    there.outerHTML = piece.html;
    if (focused) document.getElementById(piece.id)?.focus();
  }
}

// Somebody who is about to click must find what they aimed at, and somebody who marks a text must be able to copy it:
// news wait for them.
const waiting = new Map();
let pressed = false;

function held() {
  const marked = getSelection();
  return pressed || (marked && !marked.isCollapsed && document.getElementById("content")?.contains(marked.anchorNode));
}

function take(pieces) {
  for (const piece of pieces) {
    waiting.delete(piece.id);
    waiting.set(piece.id, piece);
  }
  flush();
}

function flush() {
  if (held()) return;
  waiting.forEach(put);
  waiting.clear();
}

function release() {
  pressed = false;
  setTimeout(flush, 50);
}

addEventListener("pointerdown", () => { pressed = true; }, true);
addEventListener("pointerup", release, true);
addEventListener("pointercancel", release, true);
addEventListener("blur", release);
document.addEventListener("selectionchange", flush);

// Somebody who is typing must not lose what they typed.
function busy(element) {
  const active = document.activeElement;
  return element.contains(active) && ["INPUT", "SELECT", "TEXTAREA"].includes(active.tagName);
}

function follow(page) {
  const source = new EventSource("/live?page=" + encodeURIComponent(page));
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "reload to go on" : "connecting"));
  source.addEventListener("pieces", (event) => {
    take(JSON.parse(event.data));
    say("live");
  });
  addEventListener("pagehide", () => source.close());
}

function say(text) {
  if (pulse && pulse.textContent !== text) pulse.textContent = text;
  if (pulse) pulse.dataset.state = text;
}

// A link printed at start carries a code after '#', which browsers keep to themselves.
function signIn(form) {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.token.value = code;
  form.submit();
}

function step(from, key) {
  const tiles = [...document.querySelectorAll(".tile")];
  const box = from.getBoundingClientRect();
  const sideways = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  if (sideways) return tiles[tiles.indexOf(from) + sign];
  const rows = tiles
    .map((tile) => ({ tile, at: tile.getBoundingClientRect() }))
    .filter(({ at }) => (at.top - box.top) * sign > 1);
  rows.sort((a, b) => Math.abs(a.at.top - box.top) - Math.abs(b.at.top - box.top) || Math.abs(a.at.left - box.left) - Math.abs(b.at.left - box.left));
  return rows[0]?.tile;
}

const keys = document.getElementById("keys");
const keysButton = document.getElementById("keys-button");
if (keys && keysButton) {
  keysButton.hidden = false;
  keysButton.addEventListener("click", () => keys.showModal());
}

// Rows are walked by their first link or, where they have none, not at all.
function row(sign) {
  const links = [...document.querySelectorAll("main tbody tr")].map((tr) => tr.querySelector("a[href]")).filter(Boolean);
  const stops = links.length ? links : [...document.querySelectorAll(".tile")];
  const here = document.activeElement.closest?.("tr")?.querySelector("a[href]") || document.activeElement;
  const at = stops.indexOf(here);
  return at < 0 ? stops[0] : stops[at + sign];
}

// "g" and a letter lead to a place; the letters are those of the list of keys.
let going = -Infinity;
function go(letter) {
  const link = keys?.querySelector(`[data-go="${CSS.escape(letter)}"]`);
  if (link) location.href = link.getAttribute("href");
  return Boolean(link);
}

function plainKey(event) {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  return !typing && !event.ctrlKey && !event.metaKey && !event.altKey && !keys?.open;
}

function act(event) {
  if (event.timeStamp - going < 1500) {
    going = -Infinity;
    return go(event.key);
  }
  switch (event.key) {
    case "g":
      going = event.timeStamp;
      return true;
    case "?":
      keys?.showModal();
      return true;
    case "j":
    case "k": {
      const next = row(event.key === "j" ? 1 : -1);
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
      return true;
    }
    case "/": {
      const search = document.querySelector("[data-search]");
      if (search) search.focus();
      else location.href = "/hypervisors";
      return true;
    }
  }
  return false;
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches("input, select")) {
    event.target.blur();
  } else if (event.key.startsWith("Arrow") && event.target.classList.contains("tile")) {
    const next = step(event.target, event.key);
    if (next) {
      event.preventDefault();
      next.focus();
    }
  } else if (plainKey(event) && act(event)) {
    event.preventDefault();
  }
});

const form = document.querySelector("[data-sign-in]");
if (form) signIn(form);
if (document.body.dataset.live) follow(document.body.dataset.live);
