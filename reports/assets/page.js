// State, drawing, and what the buttons do. The state is in the address after #, so that a view can be sent to someone.
const SWITCHES = ["relative", "log", "trials", "full", "everything"];
const state = { group: 0, hidden: new Set(), range: null, at: null, theme: "", relative: false, log: false, trials: false, full: false, everything: false };
let printing = false;

function readState() {
  const text = location.hash.slice(1);
  if (!text.includes("=")) return false;
  const given = new URLSearchParams(text), which = PAGE.groups.findIndex((g) => g.id === given.get("c"));
  state.group = which < 0 ? 0 : which;
  const group = PAGE.groups[state.group], wanted = new Set((given.get("fs") || "").split(",").filter((n) => /^\d+$/.test(n) && group && +n < group.arms.length).map(Number));
  state.hidden = new Set(wanted.size ? group.arms.filter((_, arm) => !wanted.has(arm)) : []);
  for (const name of SWITCHES) state[name] = given.get(name) === "1";
  const zoom = /^(\d+)-(\d+)$/.exec(given.get("s") || "");
  state.range = zoom && +zoom[2] > +zoom[1] ? [+zoom[1], +zoom[2]] : null;
  state.at = /^\d+$/.test(given.get("at") || "") ? +given.get("at") : null;
  if (/^(light|dark)$/.test(given.get("theme") || "")) state.theme = given.get("theme");
  return true;
}

function writeState() {
  const group = PAGE.groups[state.group], parts = [];
  if (!group) return;
  if (state.group) parts.push("c=" + group.id);
  const shown = shownArms(group);
  if (shown.length < group.arms.length) parts.push("fs=" + shown.join(","));
  for (const name of SWITCHES) if (state[name]) parts.push(name + "=1");
  if (state.range) parts.push("s=" + state.range.join("-"));
  if (state.at !== null) parts.push("at=" + state.at);
  if (state.theme) parts.push("theme=" + state.theme);
  history.replaceState(null, "", parts.length ? "#" + parts.join("&") : location.pathname + location.search);
}

// The arms of a group (as indices in it) that are not hidden; all arms if all are hidden.
function shownArms(group) {
  const all = group.arms.map((_, arm) => arm), shown = all.filter((arm) => !state.hidden.has(group.arms[arm]));
  return shown.length ? shown : all;
}

const isDark = () => !printing && (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
const groupOf = (box) => PAGE.groups[+box.closest(".timelines").dataset.group];

// --- drawing: each chart is drawn by one call at a time, because two can hang plotly with a new logarithmic axis ---
const drawn = new Map(); // box -> { busy, again }

function draw(box) {
  const known = drawn.get(box) || { busy: false, again: false };
  if (known.busy && !printing) { known.again = true; return; }
  const group = groupOf(box), chart = group.charts.find((c) => c.id === box.dataset.chart);
  const width = printing ? 1010 : Math.max(280, box.clientWidth);
  const { data, layout } = figure(group, chart, { state, width, dark: isDark(), shown: shownArms(group) }), first = !drawn.has(box);
  drawn.set(box, known);
  known.busy = true;
  (first ? Plotly.newPlot : Plotly.react)(box, data, layout, CONFIG).then(() => { box.dataset.drawn = "1"; }).finally(() => { // an error of plotly must not freeze the chart
    known.busy = false;
    if (known.again) { known.again = false; draw(box); }
  });
  if (first) { box.style.minHeight = "0"; listen(box); }
}

const CONFIG = { displayModeBar: false, showSendToCloud: false, responsive: false, doubleClick: false, scrollZoom: false };

// Save a timeline as it is seen.
function saveTimeline(box, format, name) {
  const group = groupOf(box), chart = group.charts.find((c) => c.id === box.dataset.chart), added = coloured(PAGE.picture, isDark());
  added.title.text = escaped(`${chart.title} · ${group.title} · ${PAGE.about}`);
  const layout = { ...box.layout, ...added, height: box.layout.height + 40, margin: { ...box.layout.margin, t: box.layout.margin.t + 40 } };
  Plotly.downloadImage({ data: box.data, layout }, { format, width: layout.width, height: layout.height, scale: format === "png" ? 2 : 1, filename: name });
}

function listen(box) {
  box.on("plotly_relayout", (change) => {
    for (const key in change) {
      const found = /^(xaxis\d*)\.range\[0\]$/.exec(key);
      if (found) return zoom([change[key], change[found[1] + ".range[1]"]]);
    }
  });
  box.on("plotly_doubleclick", () => { zoom(null); return false; });
  box.on("plotly_hover", (event) => crosshair(event.xvals && event.xvals[0], box));
  box.on("plotly_unhover", () => crosshair(null));
}

function zoom(range) {
  const group = PAGE.groups[state.group];
  const whole = range && [Math.max(0, Math.round(range[0] + 0.5)), Math.min(group.seconds, Math.round(range[1] + 0.5))];
  state.range = whole && whole[1] - whole[0] >= 2 && (whole[0] > 0 || whole[1] < group.seconds) ? whole : null;
  if (!state.range) state.at = null;
  update();
}

// A vertical line in every drawn timeline at the second under the pointer.
function crosshair(second, source) {
  for (const box of drawn.keys()) {
    const full = box._fullLayout;
    if (!full || !box.offsetParent) continue;
    full._subplots.xaxis.forEach((id, i) => {
      const line = $$(".crosshair", box)[i] || box.appendChild(Object.assign(document.createElement("div"), { className: "crosshair" }));
      const x = full[id.replace("x", "xaxis")], y = full[x.anchor.replace("y", "yaxis")];
      const off = typeof second !== "number" || box === source || second < x.range[0] || second > x.range[1];
      line.style.cssText = off ? "display:none" : `display:block;left:${x._offset + x.l2p(second)}px;top:${y._offset}px;height:${y._length}px`;
    });
  }
}

let queued = false;
function update() {
  label();
  writeState();
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; for (const box of drawn.keys()) if (box.offsetParent) draw(box); else box.dataset.stale = "1"; });
}

const watcher = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) if (isIntersecting && (!drawn.has(target) || target.dataset.stale)) { delete target.dataset.stale; draw(target); }
}, { rootMargin: "300px 0px" });

function label() {
  const group = PAGE.groups[state.group], root = document.documentElement;
  if (state.theme) root.dataset.theme = state.theme; else delete root.dataset.theme;
  root.classList.toggle("everything", state.everything);
  $("#theme").textContent = "Theme: " + (state.theme || "auto");
  $$(".timelines").forEach((box, i) => box.classList.toggle("shown", i === state.group));
  if (!group) return;
  if ($("#which")) $("#which").value = group.id;
  const shown = new Set(shownArms(group).map((arm) => group.arms[arm]));
  for (const chip of $$("[data-arm]")) { chip.hidden = !group.arms.includes(+chip.dataset.arm); chip.setAttribute("aria-pressed", shown.has(+chip.dataset.arm)); }
  for (const button of $$("[data-switch]")) button.setAttribute("aria-pressed", state[button.dataset.switch]);
  $('[data-switch="relative"]').textContent = group.relative;
  $("#range").textContent = !group.seconds ? "" : state.range ? `${state.range[0]}–${state.range[1]} s of ${group.seconds}` : `0–${group.seconds} s`;
}

// --- controls ---
$("#theme").addEventListener("click", () => { state.theme = { "": "dark", dark: "light", light: "" }[state.theme]; update(); });
if ($("#which")) $("#which").addEventListener("change", (event) => {
  state.group = PAGE.groups.findIndex((g) => g.id === event.target.value);
  state.range = state.at = null;
  update();
});
$("#chips").addEventListener("click", (event) => {
  const chip = event.target.closest("button");
  if (!chip) return;
  const mark = +chip.dataset.arm, group = PAGE.groups[state.group], shown = shownArms(group).map((arm) => group.arms[arm]);
  if (!shown.includes(mark)) state.hidden.delete(mark); else if (shown.length > 1) state.hidden.add(mark);
  update();
});
for (const button of $$("[data-switch]")) button.addEventListener("click", () => { state[button.dataset.switch] = !state[button.dataset.switch]; update(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
addEventListener("hashchange", () => { if (readState()) { update(); $("#timelines").scrollIntoView(); } });
let lastWidth = innerWidth, resizing;
addEventListener("resize", () => {
  if (innerWidth === lastWidth || printing) return;
  lastWidth = innerWidth;
  clearTimeout(resizing);
  resizing = setTimeout(update, 120);
});
addEventListener("beforeprint", () => {
  printing = true;
  for (const fold of $$(state.everything ? "details" : "details.part")) { fold.dataset.was = fold.open ? "1" : ""; fold.open = true; }
  $$(state.everything ? ".chart" : ".chart.headline").forEach(draw);
});
addEventListener("afterprint", () => {
  printing = false;
  for (const fold of $$("details[data-was]")) fold.open = !!fold.dataset.was;
  update();
});

// --- tables: sorting and copying; CSV has a raw number in each column ---
function csv(table) {
  const { columns, rows } = PAGE.groups[+table.dataset.group].table;
  const cell = (v) => v === null ? "" : /[",\r\n]/.test(v) ? '"' + String(v).replace(/"/g, '""') + '"' : String(v);
  return [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

let silence;
function say(text) {
  $("#said").textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => { $("#said").textContent = ""; }, 2500);
}

function copy(text, what) {
  const by_hand = () => {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    say(what + " copied");
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => say(what + " copied"), by_hand); else by_hand();
}

for (const button of $$("[data-copy]")) button.addEventListener("click", () => copy(csv($("#" + button.dataset.table)), "Table"));
$("#copy-answer").addEventListener("click", () => copy($("#answer-markdown").textContent, "Answer"));
$("#copy-command").addEventListener("click", () => copy($$(".command").map((c) => c.textContent).join("\n") + "\n", "Command"));
function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

$("#save-json").addEventListener("click", () => save(new Blob([JSON.stringify(JSON.parse($("#results-data").textContent), null, 1) + "\n"], { type: "application/json" }), "dbbench-results.json"));

for (const heading of $$("th[data-sort]")) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: heading.textContent });
  heading.replaceChildren(button);
  button.addEventListener("click", () => {
    const up = heading.getAttribute("aria-sort") === "descending", at = heading.cellIndex, table = heading.closest("table");
    for (const other of $$("th[aria-sort]", table)) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.cells[at].dataset.value === "" ? null : +row.cells[at].dataset.value;
    for (const body of table.tBodies) { // each durability class is a body and is sorted separately
      const rows = [...body.rows].filter((row) => !row.matches(".why"));
      rows.sort((a, b) => (value(a) === null) - (value(b) === null) || (up ? 1 : -1) * (value(a) - value(b)));
      body.append(...rows);
    }
  });
}

// --- a phone: sections are closed, and a wide table has three columns until it is tapped ---
for (const box of $$(".scroll:has(table:not(.facts))")) {
  for (const row of $$("tr", box)) [...row.cells].forEach((cell, at) => { if (at > 2) cell.classList.add("more"); });
  if (!$(".more", box)) continue;
  const button = Object.assign(document.createElement("button"), { type: "button", className: "wider", textContent: "All columns" });
  button.addEventListener("click", () => { button.textContent = box.classList.toggle("all") ? "Fewer columns" : "All columns"; });
  box.after(button);
}
// The first section stays open: it is the answer, or all that a run of the power-loss lab has.
if (innerWidth <= 620) for (const fold of $$("details.part")) fold.open = fold.matches("main > section:first-of-type > .part");

readState();
label();
$$(".chart").forEach((box) => watcher.observe(box));
if (/[#&](at|s|c)=/.test(location.hash)) $("#timelines").scrollIntoView();
