// The data of the page, and the statistics that the charts show. A missing value is NaN here and a gap in a chart.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const PAGE = JSON.parse($("#drawing").textContent);
const LEAST_TRIALS = 3; // trials with data in a second; a median of fewer is a gap

const decoded = new Map();
// Decode a column to one Float64Array for each trial of the group. It has 16-bit scaled integers, little-endian; 65535
// is a missing value.
function column(group, key) {
  const id = group.id + " " + key;
  if (decoded.has(id)) return decoded.get(id);
  const [every, length, low, step, text] = group.series[key];
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  const rows = group.trials.map((_, r) => Float64Array.from({ length }, (_, i) => {
    const cell = view.getUint16(2 * (r * length + i), true);
    return cell === 65535 ? NaN : low + cell * step;
  }));
  decoded.set(id, { every, length, rows });
  return decoded.get(id);
}

function quantile(sorted, p) {
  if (!sorted.length) return NaN;
  const at = (sorted.length - 1) * p, i = Math.floor(at);
  return sorted[i] + (sorted[Math.min(i + 1, sorted.length - 1)] - sorted[i]) * (at - i);
}
const ascending = (values) => values.filter((v) => v === v).sort((a, b) => a - b);

const bands = new Map();
// For each second, over the used trials of an arm: median, p10, p90 and mean; and the number of used trials.
function band(group, key, arm) {
  const id = group.id + " " + key + " " + arm;
  if (bands.has(id)) return bands.get(id);
  const { length, rows } = column(group, key);
  const mine = rows.filter((_, r) => group.trials[r].arm === arm && group.trials[r].used);
  const found = { median: [], low: [], high: [], mean: [], trials: mine.length };
  for (let i = 0; i < length; i++) {
    const values = ascending(mine.map((row) => row[i]));
    const enough = values.length >= Math.min(LEAST_TRIALS, mine.length) && values.length > 0;
    found.median.push(enough ? quantile(values, 0.5) : NaN);
    found.low.push(enough ? quantile(values, 0.1) : NaN);
    found.high.push(enough ? quantile(values, 0.9) : NaN);
    found.mean.push(enough ? values.reduce((a, b) => a + b, 0) / values.length : NaN);
  }
  bands.set(id, found);
  return found;
}

// Means of `width` values without gaps; a mean of gaps only is a gap.
function thinned(values, width) {
  if (width <= 1) return Array.from(values);
  const means = [];
  for (let i = 0; i < values.length; i += width) {
    let sum = 0, n = 0;
    for (let j = i; j < Math.min(i + width, values.length); j++) if (values[j] === values[j]) { sum += values[j]; n++; }
    means.push(n ? sum / n : NaN);
  }
  return means;
}
