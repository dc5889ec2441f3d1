// Parts of a figure: axes, lines, bands and areas. A gap in the data is a gap in each of them.
const NO_DATA = (v) => (v === v ? v : null);
const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

// x of the points of a line: each is the middle of its `width` seconds. The first second is from -0.5 to 0.5.
const places = (n, width) => Array.from({ length: n }, (_, i) => i * width + (width - 1) / 2);

// The stretches without a gap, as [first, last] indices.
function stretches(values) {
  const found = [];
  values.forEach((v, i) => {
    if (v !== v) return;
    if (found.length && found.at(-1)[1] === i - 1) found.at(-1)[1] = i;
    else found.push([i, i]);
  });
  return found;
}

// The area between two lines, as a closed shape for each stretch. plotly's fill "tonexty" would also fill the gaps.
function between(x, low, high, half) {
  const px = [], py = [];
  for (const [a, b] of stretches(low.map((v, i) => v + high[i]))) {
    if (px.length) { px.push(null); py.push(null); }
    const seconds = Array.from({ length: b - a + 1 }, (_, k) => a + k);
    const edge = (i, values) => half ? [[x[i] - half, values[i]], [x[i] + half, values[i]]] : [[x[i], values[i]]];
    const up = seconds.flatMap((i) => edge(i, high)), down = seconds.flatMap((i) => edge(i, low)).reverse();
    for (const [vx, vy] of [...up, ...down, up[0]]) { px.push(vx); py.push(vy); }
  }
  return { x: px, y: py };
}

function xAxis(group, state, more) {
  const range = state.range ? [state.range[0] - 0.5, state.range[1] - 0.5] : [-0.5, group.seconds - 0.5];
  return { range, unifiedhovertitle: { text: "second %{x}" }, ...more };
}

function logTicks([low, high]) {
  const ticks = [];
  for (let power = Math.floor(low) - 1; power <= Math.ceil(high) && ticks.length < 14; power++)
    for (const digit of high - low > 2.2 ? [1] : [1, 2, 5]) {
      const at = Math.log10(digit) + power;
      if (at >= low && at <= high) ticks.push(+(digit * 10 ** power).toPrecision(3));
    }
  return ticks;
}

// `range` is in data units. For a logarithmic axis, range and ticks are computed here, because plotly may hang while it
// searches for them.
function yAxis(range, log, more) {
  if (!range) return { range: [0, 1], ...more };
  if (!log) return { range: [0, range[1]], ...more };
  const logs = [Math.log10(range[0]), Math.log10(range[1])];
  return { type: "log", range: logs, tickmode: "array", tickvals: logTicks(logs), ...more };
}

// The shaded warm-up and the line at the marked second, in the plot with the axes `n` ("" for the first).
function furniture(group, state, look, n) {
  const upright = { xref: "x" + n, yref: "y" + n + " domain", y0: 0, y1: 1 }, shapes = [];
  if (group.warmup > 0)
    shapes.push({ ...upright, type: "rect", x0: -0.5, x1: group.warmup - 0.5, fillcolor: look.shade, line: { width: 0 }, layer: "below" });
  if (state.at !== null)
    shapes.push({ ...upright, type: "line", x0: state.at, x1: state.at, line: { color: look.warn, width: 1.6 } });
  return shapes;
}

// The lines of a panel: { traces, range, ends }. `ends` are the last values, next to which the names are.
function lines(group, panel, n, { state, look, dark, shown }) {
  const { every, rows } = column(group, panel.key), axes = { xaxis: "x" + n, yaxis: "y" + n };
  const reference = state.relative ? smooth(band(group, panel.key, group.baseline).median) : null;
  const scaled = (values) => reference ? smooth(values).map((v, i) => (v / reference[i]) * 100) : values;
  const seen = state.range ? state.range[1] - state.range[0] : group.seconds;
  const width = panel.fine ? 1 : Math.max(1, Math.ceil(seen / every / 120)); // more points are not legible in a small panel
  const drawn = (values) => thinned(scaled(Array.from(values)), width);
  const traces = [], heights = [], lows = [], ends = [];
  const unit = state.relative ? "%" : panel.unit, hover = `%{y:,.${state.relative ? 0 : panel.digits}f}\u202f${unit}`;
  for (const arm of shown) {
    const mark = PAGE.arms[group.arms[arm]], label = escaped(mark.name), colour = dark ? mark.dark : mark.light, one = band(group, panel.key, arm);
    const single = one.trials < LEAST_TRIALS, median = drawn(one.median), x = places(median.length, every * width);
    if (!single && !state.trials) {
      const low = drawn(one.low), high = drawn(one.high);
      traces.push({ ...between(x, low, high, 0), ...axes, mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: faded(colour, dark ? 0.2 : 0.15), hoverinfo: "skip" });
      heights.push(quantile(ascending(high), 0.7));
    }
    group.trials.forEach((trial, r) => {
      if (trial.arm !== arm || !(state.trials || (single && trial.used))) return;
      const y = drawn(rows[r]), name = `${label} block ${trial.block}${trial.used ? "" : ", excluded"}`;
      traces.push({ x, y: y.map(NO_DATA), ...axes, mode: "lines", name, hovertemplate: hover,
        line: { color: single ? colour : faded(colour, trial.used ? 0.55 : 1), width: single ? 1.6 : 1.1, dash: trial.used ? mark.dash : "2px,2px" }, ...(single || !trial.used ? {} : { hoverinfo: "skip", hovertemplate: undefined }) });
      heights.push(tall(y));
      lows.push(...ascending(y).slice(0, 1));
      if (single && trial.used) ends.push({ arm, name: mark.name, colour, at: lastOf(y, x, state) });
    });
    if (!single) {
      traces.push({ x, y: median.map(NO_DATA), ...axes, mode: "lines", name: label, hovertemplate: hover, line: { color: colour, width: state.trials ? 1.4 : 2, dash: mark.dash } });
      heights.push(tall(median));
      lows.push(quantile(ascending(median), 0.02));
      ends.push({ arm, name: mark.name, colour, at: lastOf(median, x, state) });
    }
  }
  return { traces, range: extent(traces, heights, lows, state), ends, width: width * every };
}

// The height that must be visible: the maximum, or p95 plus 6 % if the maximum is more than 2.5 times p95.
function tall(values) {
  const known = ascending(values), most = quantile(known, 0.95);
  return known.at(-1) > 2.5 * most ? most * 1.06 : known.at(-1) ?? NaN;
}

// Mean of each value and its two neighbours on each side, so that a ratio does not depend on a single second.
function smooth(values) {
  return Array.from(values, (v, i) => {
    if (v !== v) return NaN;
    const near = ascending(Array.from(values.slice(Math.max(0, i - 2), i + 3)));
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

// The median of the last twelve visible values.
function lastOf(values, x, state) {
  const end = state.range ? state.range[1] : Infinity;
  return quantile(ascending(values.filter((_, i) => x[i] < end).slice(-12)), 0.5);
}

// The range of the axis: what the medians need, so that a stall does not flatten the lines; everything with state.full.
function extent(traces, heights, lows, state) {
  const known = heights.filter((v) => v === v), seen = lows.filter((v) => v > 0);
  let highest = -Infinity, lowest = Infinity; // `lowest` is the lowest positive value, because the axis may be logarithmic
  for (const trace of traces) for (const v of trace.y) if (v !== null) { highest = Math.max(highest, v); if (v > 0) lowest = Math.min(lowest, v); }
  if (highest === -Infinity) return null;
  const top = state.full || !known.length ? highest : Math.max(...known);
  const low = state.full || !seen.length ? lowest : Math.min(...seen, top);
  return [(low > 0 && isFinite(low) ? low : top / 1000 || 1e-3) * 0.85, (top > 0 ? top : 1) * 1.08];
}
