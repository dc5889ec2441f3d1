// One function for each kind of chart: (group, chart, view) -> { data, layout }. A view has state, width, look and the
// shown arms, so that screen, phone and paper use the same code.
const KINDS = { headline, stack, grid };

function figure(group, chart, view) {
  return KINDS[chart.kind](group, chart, view);
}

function frame(view, height, margin) {
  return { template: view.look.template, width: view.width, height, margin: { l: 56, r: 14, t: 10, b: 30, ...margin }, shapes: [], annotations: [] };
}

const armName = (group, arm) => PAGE.arms[group.arms[arm]].name;
const armColour = (group, arm, dark) => PAGE.arms[group.arms[arm]][dark ? "dark" : "light"];

// Large lines with names at their ends. The strip above them has a row for each arm: a tick is a stalled second, a pale
// bar is missing data.
function headline(group, chart, view) {
  const { state, look, dark, shown, width } = view, narrow = width < 620, panel = { ...chart.panels[0], fine: true };
  const recorded = [panel.key, "user"].filter((key) => key in group.series); // columns of the load generator and of sar
  const missing = new Map(shown.map((arm) => [arm, recorded.flatMap((key) => gaps(group, key, arm))]));
  const stalled = (arm) => group.trials.filter((t) => t.arm === arm && t.used).flatMap((t) => t.stalls.map((s) => [s, t.block]));
  const warned = group.warnings.filter(([, , arm]) => shown.includes(arm));
  const rows = shown.filter((arm) => missing.get(arm).length || stalled(arm).length);
  const checkpoints = group.trials.filter((t) => shown.includes(t.arm) && t.used).flatMap((t) => t.checkpoints.map((s) => [s, `${armName(group, t.arm)} block ${t.block}`]));
  if (checkpoints.length) rows.push(CHECKPOINTS);
  const strip = rows.length ? 13 * rows.length + 14 : 0, plot = chart.id === "tps" ? 280 : 220, top = warned.length ? 38 : 22;
  const longest = Math.max(0, ...shown.map((arm) => armName(group, arm).length));
  const layout = frame(view, plot + strip + top + 30, { t: top, r: narrow ? 8 : 14 + 7.6 * Math.min(longest, 24), l: rows.length && !narrow ? Math.max(56, 12 + 6.4 * Math.min(longest, 20)) : 56 });
  const cut = strip ? plot / (plot + strip) : 1, found = lines(group, panel, "", view);
  layout.xaxis = xAxis(group, state, { anchor: "y", nticks: narrow ? 5 : 9 });
  layout.yaxis = yAxis(found.range, state.log, { domain: [0, cut], ticksuffix: state.relative ? " %" : "" });
  layout.shapes.push(...furniture(group, state, look, ""));
  if (rows.length) addStrip(group, rows, { missing, stalled, checkpoints }, layout, found.traces, view, cut, strip / (plot + strip));
  const above = (x, text, more) => layout.annotations.push({ xref: "x", yref: "paper", x, y: 1, yanchor: "bottom", xanchor: "left", text, font: { size: 11.5, color: look.muted }, ...more });
  const inside = (second) => !state.range || (second >= state.range[0] && second < state.range[1]);
  const wide = (group.warmup / (state.range ? state.range[1] - state.range[0] : group.seconds)) * width > 80; // space for the word "warm-up"
  if (group.warmup && wide && inside(0)) above(-0.5, "warm-up");
  if (inside(group.warmup)) above(group.warmup - 0.5, "window");
  for (const [id, second] of distinct(warned)) if (inside(second)) above(second, "▾ " + id, { xanchor: "center", yshift: 16, font: { size: 11, color: look.warn } });
  if (!found.range) layout.annotations.push({ xref: "x domain", yref: "y domain", x: 0.5, y: 0.5, text: "no data of these fs setups" + (state.relative ? " and of their baseline" : "") });
  if (!narrow && found.range) nameEnds(found, layout, plot, state);
  return { data: found.traces, layout };
}

const distinct = (warned) => [...new Map(warned.map((w) => [w[0] + w[1], w])).values()].slice(0, 8);

const CHECKPOINTS = -1; // the row of the strip for checkpoints, which is not an arm

function addStrip(group, rows, { missing, stalled, checkpoints }, layout, traces, { dark, look }, cut, height) {
  const name = (arm) => (arm === CHECKPOINTS ? "checkpoint" : armName(group, arm));
  layout.yaxis2 = { domain: [cut + height * 0.12, 1], range: [rows.length - 0.4, -0.6], tickmode: "array", tickvals: rows.map((_, i) => i), ticktext: rows.map((arm) => escaped(name(arm))), tickfont: { size: 11 }, showgrid: false, showline: false, ticks: "", anchor: "x" };
  rows.forEach((arm, i) => {
    layout.shapes.push({ type: "line", xref: "x domain", yref: "y2", x0: 0, x1: 1, y0: i, y1: i, line: { color: look.rule, width: 1 }, layer: "below" });
    const strokes = (points, text, colour) => traces.push({ x: points.map(([s]) => s), y: points.map(() => i), text: points.map(([, whose]) => whose), xaxis: "x", yaxis: "y2", mode: "markers", name: escaped(name(arm)), hovertemplate: text, marker: { symbol: "line-ns", size: 9, line: { width: 1.8, color: colour } } });
    if (arm === CHECKPOINTS) return strokes(checkpoints, "begins, %{text}", look.muted);
    for (const [from, to] of missing.get(arm)) layout.shapes.push({ type: "rect", xref: "x", yref: "y2", x0: from - 0.5, x1: to - 0.5, y0: i - 0.32, y1: i + 0.32, fillcolor: look.kinds[2], opacity: 0.75, line: { width: 0 } });
    strokes(stalled(arm), "stalled, block %{text}", armColour(group, arm, dark));
  });
}

// Names at the ends of the lines, moved apart so that they do not overlap.
function nameEnds(found, layout, plot, state) {
  const range = layout.yaxis.range, log = state.log, seen = new Map();
  for (const end of found.ends) if (end.at === end.at && !seen.has(end.arm)) seen.set(end.arm, end);
  const placed = [...seen.values()].map((end) => ({ ...end, y: (((log ? Math.log10(end.at) : end.at) - range[0]) / (range[1] - range[0])) * plot })).sort((a, b) => a.y - b.y);
  for (const [i, end] of placed.entries()) end.y = Math.min(Math.max(end.y, i ? placed[i - 1].y + 15 : 6), plot + 15 * i);
  for (const end of placed) layout.annotations.push({ xref: "x domain", yref: "paper", x: 1, xanchor: "left", yanchor: "middle", xshift: 7, y: (end.y / plot) * layout.yaxis.domain[1], text: escaped(end.name), font: { size: 12.5, color: end.colour } });
}

// plotly interprets some tags in texts, so names are escaped.
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// The layout of small multiples: each has its own y axis, and all share the x axis.
function cells(group, view, titles, heights, top) {
  const { width, state } = view, columns = width < 520 ? 1 : Math.min(titles.length, width < 860 ? 2 : 3), rows = Math.ceil(titles.length / columns);
  const gapX = columns > 1 ? 58 / (width - 70) : 0, plot = rows * heights + (rows - 1) * 52, layout = frame(view, plot + top + 30, { t: top, l: 50 });
  const w = (1 - gapX * (columns - 1)) / columns, h = heights / plot;
  titles.forEach(([title, unit], i) => {
    const n = i ? String(i + 1) : "", left = (i % columns) * (w + gapX), up = 1 - Math.floor(i / columns) * ((heights + 52) / plot);
    layout["xaxis" + n] = xAxis(group, state, { domain: [left, Math.min(1, left + w)], anchor: "y" + n, nticks: 5, ...(i ? { matches: "x" } : {}) });
    layout["yaxis" + n] = { domain: [Math.max(0, up - h), up], anchor: "x" + n };
    layout.annotations.push({ xref: "paper", yref: "paper", x: left, y: up, xanchor: "left", yanchor: "bottom", yshift: 4, text: `<b>${escaped(title)}</b>${unit ? " " + escaped(unit) : ""}`, font: { size: 12.5, color: view.look.ink } });
    layout.shapes.push(...furniture(group, state, view.look, n));
  });
  return layout;
}

function grid(group, chart, view) {
  const data = [], found = chart.panels.map((panel, i) => lines(group, panel, i ? String(i + 1) : "", view));
  const titles = chart.panels.map((panel, i) => [panel.title || chart.title, (view.state.relative ? "% of " + armName(group, group.baseline) : panel.title ? panel.unit : "") + (panel.note ? ", " + panel.note : "") + (found[i].width > 1 ? `, ${found[i].width}-s means` : "")]);
  const layout = cells(group, view, titles, 178, 26);
  chart.panels.forEach((panel, i) => {
    const n = i ? String(i + 1) : "";
    data.push(...found[i].traces);
    Object.assign(layout["yaxis" + n], yAxis(found[i].range, view.state.log, { nticks: 5 }));
    if (found[i].width > 1) layout["xaxis" + n].unifiedhovertitle = { text: "around second %{x:.0f}" };
    if (!found[i].range) layout.annotations.push({ xref: "x" + n + " domain", yref: "y" + n + " domain", x: 0.5, y: 0.5, text: "no data of these fs setups" });
  });
  return { data, layout };
}

// Stacked areas, one plot for each arm, in greys only: user, system, iowait (hatched), steal. They have steps, because a
// value is the mean of its seconds.
function stack(group, chart, view) {
  const { look, shown, width } = view, data = [], top = 46, layout = cells(group, view, shown.map((arm) => [armName(group, arm), ""]), 150, top);
  const seen = view.state.range ? view.state.range[1] - view.state.range[0] : group.seconds;
  let means = 1;
  shown.forEach((arm, i) => {
    const n = i ? String(i + 1) : "", axes = { xaxis: "x" + n, yaxis: "y" + n };
    let below = null;
    chart.panels.forEach((panel, k) => {
      const { every } = column(group, panel.key), size = Math.max(1, Math.ceil(seen / every / 120)), kind = look.kinds[["user", "system", "iowait", "steal"].indexOf(panel.key)];
      const values = thinned(band(group, panel.key, arm).mean, size), step = every * size, x = places(values.length, step);
      means = step;
      const floor = below || values.map((v) => (v === v ? 0 : NaN)), ceiling = values.map((v, j) => floor[j] + v);
      data.push({ ...between(x, floor, ceiling, step / 2), ...axes, mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: kind, hoverinfo: "skip", name: panel.key,
        ...(panel.key === "iowait" ? { fillpattern: { shape: "/", fgcolor: look.kinds[1], bgcolor: look.kinds[2], size: 5, solidity: 0.28 } } : {}) });
      data.push({ x, y: ceiling.map(NO_DATA), ...axes, mode: "lines", line: { width: 0, color: kind }, customdata: values.map(NO_DATA), name: panel.title, hovertemplate: "%{customdata:.1f}\u202f%" });
      below = ceiling;
    });
    if (!below.some((v) => v === v)) layout.annotations.push({ xref: "x" + n + " domain", yref: "y" + n + " domain", x: 0.5, y: 0.5, text: "no data" });
    if (means > 1) layout["xaxis" + n].unifiedhovertitle = { text: "around second %{x:.0f}" };
    Object.assign(layout["yaxis" + n], { range: [0, 100], tickmode: "array", tickvals: [0, 25, 50, 75, 100], ticksuffix: " %" });
  });
  const key = chart.panels.map((panel) => { const k = ["user", "system", "iowait", "steal"].indexOf(panel.key); return `<span style="color:${look.kinds[k === 2 ? 1 : k]}">${k === 2 ? "▨" : "■"}</span> ${panel.title}`; }).join("   ");
  layout.annotations.push({ xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "bottom", yshift: 22, text: key + (means > 1 ? `   (${means}-s means)` : ""), font: { size: 12.5, color: look.ink } });
  return { data, layout };
}
