"use strict";
// What is here only makes the page pleasanter: all of it works without.

// The token is behind the # of the address, which no browser sends anywhere; it goes in by the form.
const login = document.getElementById("login");
if (login && location.hash.length > 1) {
  document.getElementById("token").value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname + location.search);
  login.submit();
}

// Does something again and again, each time after what it said last, in milliseconds; but nothing
// while the page is not to be seen.
function whileSeen(act, milliseconds) {
  let timer = 0, busy = false;
  async function turn() {
    busy = true;
    const pause = await act();
    busy = false;
    wait(pause);
  }
  function wait(pause) {
    clearTimeout(timer);
    if (!document.hidden && !busy) timer = setTimeout(turn, pause);
  }
  document.addEventListener("visibilitychange", () => wait(0));
  wait(milliseconds);
}

// Every two seconds the page is asked for again, and what is new in it takes the place of what was
// there; but nothing that somebody has open, in focus, selected or half filled in.
const EVERY = 2000, SLOW = 5000, FAILURES = 3;
let tag = "", failures = 0;
const told = document.getElementById("polling");

function isFilledIn(field) {
  if (field.type === "hidden") return false;
  if (field.tagName === "SELECT") return [...field.options].some((one) => one.selected && one.index > 0);
  return field.value !== field.defaultValue;
}

function inUse(node) {
  const focus = document.activeElement;
  if (focus && focus !== document.body && node.contains(focus) && focus.id !== "main") return true;
  if (node.matches("details[open]") || node.querySelector("details[open]")) return true;
  if ([...node.querySelectorAll("input, select")].some(isFilledIn)) return true;
  const chosen = document.getSelection();
  return Boolean(chosen && !chosen.isCollapsed && chosen.containsNode(node, true));
}

function renew(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (!inUse(old)) {
    old.replaceWith(document.importNode(fresh, true));
    return;
  }
  // What is in use stays, and what is beside it may go on.
  const ours = [...old.children], theirs = [...fresh.children];
  if (old.matches("details, form, a, button, summary") || ours.length !== theirs.length) return;
  ours.forEach((one, index) => {
    if (one.tagName === theirs[index].tagName) renew(one, theirs[index]);
  });
}

function take(fresh) {
  for (const old of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(old.id);
    if (other) renew(old, other);
  }
  if (document.title !== fresh.title) document.title = fresh.title;
}

function poll() {
  const began = performance.now();
  const ask = new XMLHttpRequest();
  ask.open("GET", location.pathname + location.search);
  // Parsed by the browser, without running anything; what came as text would be refused here.
  ask.responseType = "document";
  ask.timeout = 15000;
  if (tag) ask.setRequestHeader("If-None-Match", tag);
  return new Promise((done) => {
    ask.onloadend = () => {
      const came = ask.status === 200 || ask.status === 304;
      // The session is over: the page asks for a token again.
      if (came && ask.response && ask.response.getElementById("login")) location.reload();
      if (ask.status === 200 && ask.response) {
        tag = ask.getResponseHeader("ETag") || "";
        take(ask.response);
      }
      failures = came ? 0 : failures + 1;
      if (failures === 0) told.dataset.at = new Date().toLocaleTimeString();
      told.hidden = failures < FAILURES;
      told.textContent = `▲ not updated since ${told.dataset.at || "it was opened"}: no answer`;
      done(performance.now() - began > EVERY ? SLOW : EVERY);
    };
    ask.send();
  });
}

if (told && document.querySelector("[data-live]")) whileSeen(poll, EVERY);

// A log that follows: windows of bytes, shown as text, of which the last lines are kept.
const log = document.getElementById("log"), LINES = 2000;
let from = null, file = 0, rest = "";

function lastLines(text) {
  return text.split("\n").slice(-LINES).join("\n");
}

function show(text) {
  const chosen = document.getSelection();
  // Somebody who marks a line wants it to stay.
  if (chosen && !chosen.isCollapsed && log.contains(chosen.anchorNode)) {
    rest = lastLines(text);
    return;
  }
  const follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  log.textContent = lastLines(log.textContent + text);
  if (follows) log.scrollTop = log.scrollHeight;
}

async function follow() {
  const state = document.getElementById("log-state");
  let soon = 1000;
  try {
    const place = from === null ? "" : `&from=${from}&file=${file}`;
    const said = await fetch(log.dataset.log + place);
    const piece = await said.json();
    if (said.ok) {
      log.hidden = false;
      const text = rest + piece.data;
      rest = "";
      if (text) show(text);
      if (piece.end < piece.size && piece.end !== from) soon = 50;
      else if (piece.ended) soon = 5000;
      from = piece.end;
      file = piece.inode;
      state.textContent = piece.ended ? "Its process has ended: this is all." : "It follows what is printed.";
    } else {
      state.textContent = piece.error;
      soon = 3000;
    }
  } catch {
    state.textContent = "No answer; it is tried again.";
    soon = 5000;
  }
  return soon;
}

if (log) whileSeen(follow, 0);
