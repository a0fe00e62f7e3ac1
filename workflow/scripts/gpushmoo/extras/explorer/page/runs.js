// A group's best over runs in the order of time, the memcpy baseline below it. Drawn by uPlot.

import { themed } from "explorer/colours.js";
import { make } from "explorer/dom.js";
import * as numbers from "explorer/numbers.js";

/* global uPlot */

const FONT = "12px system-ui";

/** A group's line in a data set's history, by the names that the choice has; null where there is none. */
export function lineOf(set, part, group) {
  if (!set.index.history || part === null || group === null) return null;
  const names = { ...group, kernel: part.kernel, dtype: part.dtype };
  return set.index.history.groups[set.index.group.map((name) => names[name]).join("\n")] ?? null;
}

/** Upright lines: intervals of the bests. */
function intervals(line, colour) {
  return (plot) => {
    const pen = plot.ctx;
    pen.save();
    pen.strokeStyle = colour;
    pen.lineWidth = devicePixelRatio;
    line.number.forEach((x, i) => {
      const at = Math.round(plot.valToPos(x, "x", true));
      pen.beginPath();
      pen.moveTo(at, plot.valToPos(line.low[i], "y", true));
      pen.lineTo(at, plot.valToPos(line.high[i], "y", true));
      pen.stroke();
    });
    pen.restore();
  };
}

function rangeOf(values) {
  const known = values.filter((value) => value !== null);
  const [from, to] = [Math.min(...known), Math.max(...known)];
  const room = 0.12 * (to - from || to);
  return [from - room, to + room];
}

function chart(container, line, name, { label, colour, height }) {
  const range = rangeOf(name === "best" ? [...line.low, ...line.high] : line[name]);
  const plain = { stroke: themed("--ink"), grid: { stroke: themed("--line"), width: 1 }, ticks: { show: false }, font: FONT, labelFont: FONT, labelSize: 18 };
  return new uPlot(
    {
      width: Math.max(220, container.clientWidth),
      height,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, range: [line.number[0] - 0.5, line.number.at(-1) + 0.5] }, y: { range: () => range } },
      axes: [
        { ...plain, label: "run", size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
        { ...plain, label, size: 58, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : numbers.significant(tick, 4).replace(/\.0+$|(\.\d*?)0+$/, "$1"))) },
      ],
      series: [{ label: "run" }, { label, stroke: colour, width: 1, points: { show: true, size: 5, fill: colour } }],
      hooks: { draw: name === "best" ? [intervals(line, colour)] : [] },
    },
    [line.number, line[name]],
    container,
  );
}

function table(line, runs) {
  const named = new Map(runs.map((run) => [run.number, run]));
  const rows = line.number.map((number, i) =>
    make(
      "tr",
      {},
      ...[`${number}`, named.get(number).run, named.get(number).day, line.params[i], numbers.significant(line.best[i]), line.copy[i] === null ? numbers.MISSING : numbers.significant(line.copy[i])].map((text) => make("td", {}, text)),
    ),
  );
  const heads = ["", "run", "day", "best", line.unit, "copy, GB/s"].map((text) => make("th", { scope: "col" }, text));
  return make(
    "details",
    {},
    make("summary", {}, `All ${numbers.plural(rows.length, "run")} as a table`),
    make("div", { class: "scroll" }, make("table", { class: "runs" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows))),
  );
}

/** Draw a group's line into `container`. */
export function drawRuns(container, line, runs) {
  const best = container.appendChild(make("div", { class: "chart" }));
  chart(best, line, "best", { label: `best, ${line.unit}`, colour: themed("--measured"), height: 200 });
  if (line.copy.some((value) => value !== null)) {
    const copy = container.appendChild(make("div", { class: "chart" }));
    chart(copy, line, "copy", { label: "copy, GB/s", colour: themed("--second"), height: 130 });
  }
  container.append(table(line, runs));
}
