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

function signed(share) {
  return `${share < 0 ? "−" : "+"}${numbers.percent(Math.abs(share))}`;
}

/** Upright lines: intervals of the bests, and dashed where the mean changed, with by how much. */
function marks(line, name, colour) {
  return (plot) => {
    const pen = plot.ctx;
    const { top, height } = plot.bbox;
    pen.save();
    pen.strokeStyle = colour;
    pen.fillStyle = themed("--ink");
    pen.lineWidth = devicePixelRatio;
    pen.font = `${12 * devicePixelRatio}px system-ui`;
    pen.textAlign = "right";
    if (name === "best") {
      line.number.forEach((x, i) => {
        const at = Math.round(plot.valToPos(x, "x", true));
        pen.beginPath();
        pen.moveTo(at, plot.valToPos(line.low[i], "y", true));
        pen.lineTo(at, plot.valToPos(line.high[i], "y", true));
        pen.stroke();
      });
    }
    pen.strokeStyle = themed("--ink");
    pen.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const { number, change } of line.changes.filter((one) => one.of === name)) {
      const before = line.number[line.number.indexOf(number) - 1];
      const at = plot.valToPos((before + number) / 2, "x", true);
      pen.beginPath();
      pen.moveTo(at, top);
      pen.lineTo(at, top + height);
      pen.stroke();
      pen.fillText(signed(change), at - 4 * devicePixelRatio, top + 12 * devicePixelRatio);
    }
    pen.restore();
  };
}

function rangeOf(values) {
  const known = values.filter((value) => value !== null);
  const [from, to] = [Math.min(...known), Math.max(...known)];
  const room = 0.12 * (to - from || to);
  return [from - room, to + 2 * room];
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
      hooks: { draw: [marks(line, name, colour)] },
    },
    [line.number, line[name]],
    container,
  );
}

function changeWords({ run, number, change, cause, differences }) {
  const told = differences.length ? ` (${differences.join("; ")})` : "";
  return `From ${run} (${number}) on ${signed(change)}: ${cause}${told}.`;
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

/** Draw a group's line into `container`, with its change points in words. */
export function drawRuns(container, line, runs) {
  const best = container.appendChild(make("div", { class: "chart" }));
  chart(best, line, "best", { label: `best, ${line.unit}`, colour: themed("--measured"), height: 200 });
  if (line.copy.some((value) => value !== null)) {
    const copy = container.appendChild(make("div", { class: "chart" }));
    chart(copy, line, "copy", { label: "copy, GB/s", colour: themed("--second"), height: 130 });
  }
  const told = line.changes.filter((one) => one.of === "best").map((one) => make("li", {}, changeWords(one)));
  container.append(told.length ? make("ul", { class: "changes" }, ...told) : make("p", { class: "quiet" }, "The mean of this best did not change."), table(line, runs));
}
