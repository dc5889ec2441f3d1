// Parts of a figure: axes, lines, bands, areas, the strip of stalls. All of them draw a gap as a gap.
const NO_DATA = (v) => (v === v ? v : null);
const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

// x of a line's points: the middle of the stretch that a value stands for, whose first second is -0.5 .. 0.5.
const places = (n, width) => Array.from({ length: n }, (_, i) => i * width + (width - 1) / 2);

// Stretches without a gap: [first, last] indices.
function stretches(values) {
  const found = [];
  values.forEach((v, i) => {
    if (v !== v) return;
    if (found.length && found.at(-1)[1] === i - 1) found.at(-1)[1] = i;
    else found.push([i, i]);
  });
  return found;
}

// The area between two lines as closed shapes, one a stretch: a fill "to the next line" would bridge the gaps.
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

// `range` in data units. On a log axis it and the ticks are worked out here: plotly's own search of them can hang.
function yAxis(range, log, more) {
  if (!range) return { range: [0, 1], ...more };
  if (!log) return { range: [0, range[1]], ...more };
  const logs = [Math.log10(range[0]), Math.log10(range[1])];
  return { type: "log", range: logs, tickmode: "array", tickvals: logTicks(logs), ...more };
}

// Warm-up shaded, the marked second, in the plot of axes `n` ("" for the first).
function furniture(group, state, look, n) {
  const upright = { xref: "x" + n, yref: "y" + n + " domain", y0: 0, y1: 1 }, shapes = [];
  if (group.warmup > 0)
    shapes.push({ ...upright, type: "rect", x0: -0.5, x1: group.warmup - 0.5, fillcolor: look.shade, line: { width: 0 }, layer: "below" });
  if (state.at !== null)
    shapes.push({ ...upright, type: "line", x0: state.at, x1: state.at, line: { color: look.warn, width: 1.6 } });
  return shapes;
}

// The lines of one measure: { traces, range, ends }. `ends` are the last values, for names at the lines' ends.
function lines(group, panel, n, { state, look, dark, shown }) {
  const { every, rows } = column(group, panel.key), axes = { xaxis: "x" + n, yaxis: "y" + n };
  const reference = state.relative ? smooth(band(group, panel.key, group.baseline).median) : null;
  const scaled = (values) => reference ? smooth(values).map((v, i) => (v / reference[i]) * 100) : values;
  const seen = state.range ? state.range[1] - state.range[0] : group.seconds;
  const width = panel.fine ? 1 : Math.max(1, Math.ceil(seen / every / 120)); // more points in a small panel are only noise
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

// What of a line has to be in sight: all of it, unless its highest twentieth towers above the rest.
function tall(values) {
  const known = ascending(values), most = quantile(known, 0.95);
  return known.at(-1) > 2.5 * most ? most * 1.06 : known.at(-1) ?? NaN;
}

// Mean of a value and its two neighbours on each side, so that a ratio is not one second's accident.
function smooth(values) {
  return Array.from(values, (v, i) => {
    if (v !== v) return NaN;
    const near = ascending(Array.from(values.slice(Math.max(0, i - 2), i + 3)));
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

// The median of the last values in sight.
function lastOf(values, x, state) {
  const end = state.range ? state.range[1] : Infinity;
  return quantile(ascending(values.filter((_, i) => x[i] < end).slice(-12)), 0.5);
}

// From what the medians need, so that one stall does not flatten all the rest; everything when asked for.
function extent(traces, heights, lows, state) {
  const known = heights.filter((v) => v === v), seen = lows.filter((v) => v > 0);
  let highest = -Infinity, lowest = Infinity; // lowest: of the positive ones, for the log axis
  for (const trace of traces) for (const v of trace.y) if (v !== null) { highest = Math.max(highest, v); if (v > 0) lowest = Math.min(lowest, v); }
  if (highest === -Infinity) return null;
  const top = state.full || !known.length ? highest : Math.max(...known);
  const low = state.full || !seen.length ? lowest : Math.min(...seen, top);
  return [(low > 0 && isFinite(low) ? low : top / 1000 || 1e-3) * 0.85, (top > 0 ? top : 1) * 1.08];
}
