// Fills the figures of dbbench for a view: values, ranges of the axes, and what the buttons show and hide. How a chart
// looks and what `meta` and `name` mean is in dbbench/report/page/charts/: traces.py, figures.py. A view has state, width,
// dark and the shown arms, so that screen, phone and paper use the same code.
const words = (item) => (item.name || "").split(" ");
const NO_DATA = (v) => (v === v ? v : null);
// plotly interprets some tags in texts.
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// A copy of a figure, or of a part, in the colours of the look.
function coloured(figure, dark) {
  return JSON.parse(JSON.stringify(figure).replace(/#[0-9a-f]{6}|rgba\([^)]*\)/g, (colour) => (dark && PAGE.dark[colour]) || colour));
}

function figure(group, chart, view) {
  const { state, shown, width } = view, narrow = width < 620 && chart.narrow;
  const { data, layout } = coloured({ data: chart.data, layout: { ...(narrow || chart.layout), template: PAGE.template } }, view.dark);
  const traces = data.filter(({ meta }) => shown.includes(meta.arm) && (meta.trials === undefined || meta.trials === state.trials));
  const seen = state.range || [0, group.seconds], { every } = column(group, traces[0].meta.key || traces[0].meta.keys[0]);
  const size = layout.meta.points ? Math.max(1, Math.ceil((seen[1] - seen[0]) / every / layout.meta.points)) : 1; // values in a point
  for (const trace of traces) fill(trace, group, state, size);
  for (const x of new Set(traces.map((trace) => trace.xaxis))) layout[x.replace("x", "xaxis")].range = [seen[0] - 0.5, seen[1] - 0.5];
  const empty = new Set(), cut = new Map(); // highest value of each plot whose axis ends below it
  for (const y of new Set(traces.map((trace) => trace.yaxis))) {
    const axis = layout[y.replace("y", "yaxis")], mine = traces.filter((trace) => trace.yaxis === y);
    if (mine.every((trace) => trace.y.every((v) => v === null))) empty.add(y + " domain");
    if (axis.range) continue;
    const [low, top] = extent(mine, state), highest = mine.flatMap((trace) => trace.y).reduce((a, b) => Math.max(a, b), -Infinity);
    Object.assign(axis, yAxis([low, top], state.log), state.relative ? { ticksuffix: PAGE.relative.ticksuffix } : {});
    if (highest > top) cut.set(y + " domain", highest);
  }
  const ofShown = (item) => { const arm = /\barm (\d+)/.exec(item.name); return !arm || shown.includes(+arm[1]); };
  layout.shapes = layout.shapes.filter((shape) => ofShown(shape) && (state.at !== null || !words(shape).includes("marked")));
  for (const shape of layout.shapes) if (words(shape).includes("marked")) shape.x0 = shape.x1 = state.at;
  layout.annotations = layout.annotations.filter((item) => ofShown(item) && !words(item).includes(state.relative ? "absolute" : "relative") && (empty.has(item.yref) || !words(item).includes("empty")) && (cut.has(item.yref) || !words(item).includes("cut")));
  for (const item of layout.annotations) if (words(item).includes("means") && every * size > 1) item.text += `, ${every * size}-s means`;
  for (const item of layout.annotations) if (words(item).includes("cut")) item.text += ` ${Number(cut.get(item.yref).toPrecision(3)).toLocaleString("en").replace(/,/g, "\u202f")}${state.relative ? " %" : ""}`;
  layout.width = width;
  if (layout.grid) arrange(layout, [...new Set(traces.map((trace) => trace.xaxis + trace.yaxis))]);
  else placeEnds(layout, traces, seen[1]);
  return { data: traces, layout };
}

// Put the plots of small multiples in as many columns as there is space for.
function arrange(layout, plots) {
  const { columns: widths, height, gap } = layout.meta, columns = Math.min(plots.length, 1 + widths.filter((width) => layout.width >= width).length), rows = Math.ceil(plots.length / columns);
  layout.grid.subplots = Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, i) => plots[row * columns + i] || ""));
  layout.height = rows * (height + gap) - gap + layout.margin.t + layout.margin.b;
}

// Move the names to the ends of the lines, apart so that they do not overlap. An end is the median of the last twelve
// visible values.
function placeEnds(layout, traces, end) {
  const { range, domain, type } = layout.yaxis, plot = (layout.height - layout.margin.t - layout.margin.b) * domain[1], placed = [];
  for (const item of layout.annotations.filter((item) => words(item).includes("end"))) {
    const line = traces.find(({ meta, x, y }) => meta.trials === undefined && meta.arm === +words(item)[2] && x.some((v, i) => v < end && y[i] !== null));
    const last = line && quantile(ascending(line.y.filter((v, i) => line.x[i] < end).slice(-12).map((v) => v ?? NaN)), 0.5);
    const at = line ? (((type === "log" ? Math.log10(last) : last) - range[0]) / (range[1] - range[0])) * plot : NaN;
    if (at === at) placed.push([at, item]);
  }
  placed.sort((a, b) => a[0] - b[0]);
  let below = -9;
  placed.forEach(([at, item], i) => { below = Math.min(Math.max(at, below + 15), plot + 15 * i); item.y = below / plot; });
  layout.annotations = layout.annotations.filter((item) => !words(item).includes("end") || placed.some(([, other]) => other === item));
}

// --- values of a trace; `size` values are a point ---
function fill(trace, group, state, size) {
  const { of, key, arm, rows, keys } = trace.meta;
  if (of === "stalls" || of === "checkpoints") return fillEvents(trace, group);
  const step = column(group, key || keys[0]).every * size;
  if (of === "area" || of === "sum") return fillArea(trace, keys.map((part) => thinned(band(group, part, arm).mean, size)), step);
  const reference = state.relative ? smooth(band(group, key, group.baseline).median) : null;
  const points = (values) => thinned(reference ? smooth(values).map((v, i) => (v / reference[i]) * 100) : values, size);
  if (state.relative && trace.hovertemplate) trace.hovertemplate = PAGE.relative.hovertemplate;
  if (of === "band") {
    const { low, high } = band(group, key, arm), top = points(high);
    trace.meta.height = quantile(ascending(top), 0.7);
    return Object.assign(trace, between(places(top.length, step), points(low), top, 0));
  }
  const lines = (of === "median" ? [band(group, key, arm).median] : rows.map((row) => column(group, key).rows[row])).map(points), y = lines.flatMap((line) => [...line, NaN]).slice(0, -1);
  Object.assign(trace.meta, { height: tall(y), low: quantile(ascending(y), of === "median" ? 0.02 : 0) });
  Object.assign(trace, { x: lines.flatMap((line) => [...places(line.length, step), null]).slice(0, -1), y: y.map(NO_DATA) });
}

function fillEvents(trace, group) {
  const { of, arm, row } = trace.meta, trials = group.trials.filter((trial) => trial.arm === arm && trial.used);
  const points = trials.flatMap((trial) => trial[of].map((second) => [second, trial.block]));
  Object.assign(trace, { x: points.map(([x]) => x), y: points.map(() => row), text: points.map(([, block]) => block) });
}

// `parts` are the values of the areas below and, last, of this one. The ends of the steps are half a `step` away.
function fillArea(trace, parts, step) {
  const own = parts.at(-1), ceiling = own.map((_, i) => parts.reduce((sum, part) => sum + part[i], 0)), x = places(own.length, step);
  if (trace.meta.of === "sum") Object.assign(trace, { x, y: ceiling.map(NO_DATA), customdata: own.map(NO_DATA) });
  else Object.assign(trace, between(x, ceiling.map((v, i) => v - own[i]), ceiling, step / 2));
}

// x of the points of a line: each is the middle of its `step` seconds. The first second is from -0.5 to 0.5.
const places = (n, step) => Array.from({ length: n }, (_, i) => i * step + (step - 1) / 2);

// The area between two lines, as a closed shape for each stretch without a gap. plotly's fill "tonexty" would also fill
// the gaps.
function between(x, low, high, half) {
  const px = [], py = [];
  for (let a = 0; a < x.length; a++) {
    let b = a;
    while (b < x.length && low[b] + high[b] === low[b] + high[b]) b++;
    if (b === a) continue;
    const corners = (values) => x.slice(a, b).flatMap((v, i) => (half ? [[v - half, values[a + i]], [v + half, values[a + i]]] : [[v, values[a + i]]]));
    const up = corners(high);
    for (const [vx, vy] of [...(px.length ? [[null, null]] : []), ...up, ...corners(low).reverse(), up[0]]) { px.push(vx); py.push(vy); }
    a = b;
  }
  return { x: px, y: py };
}

// --- ranges of the vertical axes ---
// For a logarithmic axis, range and ticks are computed here, because plotly may hang while it searches for them.
function yAxis([low, high], log) {
  if (!log) return { range: [0, high] };
  const range = [Math.log10(low), Math.log10(high)], ticks = [];
  for (let power = Math.floor(range[0]) - 1; power <= Math.ceil(range[1]) && ticks.length < 14; power++)
    for (const digit of range[1] - range[0] > 2.2 ? [1] : [1, 2, 5]) {
      const at = Math.log10(digit) + power;
      if (at >= range[0] && at <= range[1]) ticks.push(+(digit * 10 ** power).toPrecision(3));
    }
  return { type: "log", range, tickmode: "array", tickvals: ticks };
}

// The height that must be visible: the maximum, or p95 plus 6 % if the maximum is more than 2.5 times p95.
function tall(values) {
  const known = ascending(values), most = quantile(known, 0.95);
  return known.at(-1) > 2.5 * most ? most * 1.06 : known.at(-1) ?? NaN;
}

// What the medians need, so that a stall does not flatten the lines; everything with state.full. The lower end is above
// zero, because the axis may be logarithmic.
function extent(traces, state) {
  const values = traces.flatMap((trace) => trace.y).filter((v) => v !== null), known = (name) => ascending(traces.map(({ meta }) => meta[name] ?? NaN));
  const most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity), least = (list) => list.reduce((a, b) => (b > 0 ? Math.min(a, b) : a), Infinity);
  if (!values.length) return [0.1, 1];
  const heights = known("height"), top = state.full || !heights.length ? most(values) : most(heights), lows = known("low");
  const low = state.full || least(lows) === Infinity ? least(values) : Math.min(least(lows), top);
  return [(low > 0 && isFinite(low) ? low : top / 1000 || 1e-3) * 0.85, (top > 0 ? top : 1) * 1.08];
}

// Mean of each value and its two neighbours on each side, so that a ratio does not depend on a single second.
function smooth(values) {
  return Array.from(values, (v, i) => {
    if (v !== v) return NaN;
    const near = ascending(Array.from(values.slice(Math.max(0, i - 2), i + 3)));
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}
