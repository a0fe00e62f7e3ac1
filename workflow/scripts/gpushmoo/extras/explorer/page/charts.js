// Cross-sections and curves: measured speed over one axis, with the model over it. Drawn by uPlot.

import { themed } from "explorer/colours.js";
import { significant } from "explorer/numbers.js";

/* global uPlot */

// A logarithmic scale of less would have no tick.
const WIDE = 20;

/** The cells of a cross-section: `row` moved along `axis`, all other axes as they are. */
export function along(seen, row, axis) {
  const { part } = seen;
  const others = part.axes.filter((name) => name !== axis).map((name) => part.numbers(name));
  const same = (values, other) => values[other] === values[row] || (Number.isNaN(values[other]) && Number.isNaN(values[row]));
  const place = part.numbers(axis);
  return seen.all
    .filter((other) => others.every((values) => same(values, other)))
    .sort((a, b) => place[a] - place[b]);
}

function series(seen, rows, name) {
  const values = seen.part.numbers(name);
  return rows.map((row) => (Number.isFinite(values[row]) ? values[row] : null));
}

function aligned(xs, seen, rows, axis, name) {
  if (!seen) return xs.map(() => null);
  const place = seen.part.numbers(axis);
  const values = seen.part.numbers(name);
  const found = new Map(rows.map((row) => [place[row], values[row]]));
  return xs.map((x) => (Number.isFinite(found.get(x)) ? found.get(x) : null));
}

/** From the least to the greatest of measured values, their intervals and the model, with some room. */
function rangeOf(data, low, high) {
  const values = [...data.slice(1).flat(), ...low, ...high].filter((v) => v !== null);
  const [from, to] = [Math.min(...values), Math.max(...values)];
  const room = 0.06 * (to - from || to);
  return [from > room ? from - room : 0.9 * from, to + room];
}

/** Intervals as upright lines through the points of the first series. */
function intervals(low, high) {
  return (plot) => {
    const pen = plot.ctx;
    pen.save();
    pen.strokeStyle = themed("--measured");
    pen.lineWidth = devicePixelRatio;
    plot.data[0].forEach((x, i) => {
      if (low[i] === null || high[i] === null) return;
      const at = Math.round(plot.valToPos(x, "x", true));
      pen.beginPath();
      pen.moveTo(at, plot.valToPos(low[i], "y", true));
      pen.lineTo(at, plot.valToPos(high[i], "y", true));
      pen.stroke();
    });
    pen.restore();
  };
}

/** The cell that is looked at, and the tied ones, as rings. */
function marks(rows, seen, current) {
  return (plot) => {
    const pen = plot.ctx;
    pen.save();
    rows.forEach((row, i) => {
      const value = plot.data[1][i];
      if (value === null || (row !== current && !seen.isTied.has(row))) return;
      pen.beginPath();
      const radius = (row === current ? 6 : 3.5) * devicePixelRatio;
      pen.arc(plot.valToPos(plot.data[0][i], "x", true), plot.valToPos(value, "y", true), radius, 0, 7);
      pen.lineWidth = 2 * devicePixelRatio;
      pen.strokeStyle = row === current ? themed("--accent") : themed("--ink");
      pen.stroke();
    });
    pen.restore();
  };
}

function isGeometric(xs) {
  return xs.length > 3 && xs[0] > 0 && xs.at(-1) / xs[0] >= 32 && xs[1] / xs[0] >= 1.5;
}

/**
 * Draw a cross-section into `container`; `onPick(row)` is told what is clicked. `second` is the
 * other data set's cells of it, or null.
 */
export function drawSection(container, { seen, rows, axis, current, second, scale, height, onPick }) {
  const place = seen.part.numbers(axis);
  const xs = rows.map((row) => place[row]);
  const model = series(seen, rows, "#predicted_gbs");
  const low = series(seen, rows, "#speed_low");
  const high = series(seen, rows, "#speed_high");
  const ink = themed("--ink");
  const line = { stroke: ink, grid: { stroke: themed("--line"), width: 1 }, ticks: { show: false } };
  const shown = [
    { label: axis },
    { label: seen.name, stroke: themed("--measured"), width: 1, points: { show: true, size: 5, fill: themed("--measured") } },
  ];
  const data = [xs, series(seen, rows, "#speed")];
  if (model.some((v) => v !== null)) {
    shown.push({ label: "model", stroke: themed("--model"), width: 2, dash: [6, 4], points: { show: false } });
    data.push(model);
  }
  if (second) {
    shown.push({ label: second.seen.name, stroke: themed("--second"), width: 1, points: { show: true, size: 5 } });
    data.push(aligned(xs, second.seen, second.rows, axis, "#speed"));
  }
  const range = rangeOf(data, low, high);
  const plot = new uPlot(
    {
      width: Math.max(220, container.clientWidth),
      height,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: {
        x: { time: false, distr: isGeometric(xs) ? 3 : 1, log: 2 },
        y: { distr: scale === "log" && range[1] > WIDE * range[0] ? 3 : 1, range: () => range },
      },
      axes: [
        { ...line, label: axis, labelSize: 18, size: 30, labelFont: "12px system-ui", font: "12px system-ui" },
        {
          ...line,
          label: seen.part.merit.unit,
          labelSize: 18,
          size: 52,
          labelFont: "12px system-ui",
          font: "12px system-ui",
          values: (_, ticks) => ticks.map((v) => (v === null ? "" : significant(v, 4).replace(/\.0+$|(\.\d*?)0+$/, "$1"))),
        },
      ],
      series: shown,
      hooks: { draw: [intervals(low, high), marks(rows, seen, current)] },
    },
    data,
    container,
  );
  plot.over.addEventListener("click", () => {
    const index = plot.cursor.idx;
    if (index !== null && index !== undefined) onPick(rows[index]);
  });
  return plot;
}
