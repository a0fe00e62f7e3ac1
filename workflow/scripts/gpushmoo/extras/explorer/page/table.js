// The table of cells: sorted by any column, a page at a time, and as CSV.

import { make } from "explorer/dom.js";
import * as numbers from "explorer/numbers.js";

export const PAGE_ROWS = 50;
// The fastest first.
export const BY_SPEED = "median_s";
// Figures that a spreadsheet is given, with their names in the data set.
const EXPORTED = [
  "bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "median_s", "median_low_s", "median_high_s",
  "group_low_s", "group_high_s", "vs_memcpy", "threads_per_block", "registers", "#predicted_gbs",
];

/** Columns of the table: name, heading, number to sort by, text. */
export function columnsOf(seen) {
  const { part } = seen;
  const figure = (name, label, text) => {
    const values = part.numbers(name);
    return { name, label, value: (row) => values[row], text: (row) => text(values[row]) };
  };
  const time = part.numbers("median_s");
  const best = seen.best === null ? NaN : time[seen.best];
  const rank = (row) => (row === seen.best ? "fastest" : seen.isTied.has(row) ? "tied" : "");
  const found = [
    ...part.axes.map((axis) => figure(axis, axis, (v) => (Number.isFinite(v) ? String(v) : numbers.MISSING))),
    figure("#speed", part.merit.unit, (v) => numbers.significant(v)),
    { name: "interval", label: "95 % interval", value: (row) => part.numbers("#speed_low")[row], text: (row) => interval(part, row) },
    { name: "share", label: "of best", value: (row) => best / time[row], text: (row) => numbers.percent(best / time[row], 4) },
    figure("median_s", "time", numbers.seconds),
    { name: "tied", label: "tied", value: (row) => (rank(row) === "" ? 0 : rank(row) === "tied" ? 1 : 2), text: rank },
    { name: "status", label: "status", value: (row) => part.status(row), text: (row) => part.status(row) },
    figure("threads_per_block", "threads in block", numbers.whole),
    figure("registers", "registers", numbers.whole),
    figure("vs_memcpy", "× memcpy", (v) => (Number.isFinite(v) ? `${numbers.significant(v, 3)} ×` : numbers.MISSING)),
    figure("#predicted_gbs", "model GB/s", (v) => numbers.significant(v)),
  ];
  const always = new Set([...part.axes, "#speed", "median_s", "tied", "status"]);
  return found.filter((c) => always.has(c.name) || seen.rows.some((row) => ![numbers.MISSING, ""].includes(c.text(row))));
}

function interval(part, row) {
  const [low, high] = ["#speed_low", "#speed_high"].map((n) => part.numbers(n)[row]);
  return Number.isFinite(low) ? `${numbers.significant(low)} to ${numbers.significant(high)}` : numbers.MISSING;
}

/** The rows in the order that `sort` asks (`column` or `-column`); what has no value comes last. */
export function sortedRows(seen, columns, sort) {
  const [name, falling] = sort.startsWith("-") ? [sort.slice(1), true] : [sort, false];
  const column = columns.find((c) => c.name === name);
  if (!column) return sortedRows(seen, columns, BY_SPEED);
  const keyed = seen.rows.map((row) => [column.value(row), row]);
  const none = (v) => v === null || Number.isNaN(v);
  const ordered = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  keyed.sort(([a, i], [b, j]) => none(a) - none(b) || (falling ? ordered(b, a) : ordered(a, b)) || i - j);
  return keyed.map(([, row]) => row);
}

/** Draw a page of the table. `onSort(sort)` and `onPick(row)` are told what is asked. */
export function drawTable(table, { seen, columns, rows, sort, page, current, onSort, onPick }) {
  const heads = columns.map(({ name, label }) => {
    const order = sort === name ? "ascending" : sort === `-${name}` ? "descending" : "none";
    const arrow = { ascending: " ▲", descending: " ▼", none: "" }[order];
    const next = order === "descending" ? name : `-${name}`;
    const button = make("button", { type: "button", click: () => onSort(next), "data-sort": name }, label, make("span", { "aria-hidden": "true" }, arrow));
    return make("th", { scope: "col", "aria-sort": order }, button);
  });
  const lines = rows.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS).map((row) => {
    const cells = columns.map((column, i) =>
      i === 0
        ? make("th", { scope: "row" }, make("button", { type: "button", class: "pick", "data-row": row }, column.text(row)))
        : make("td", {}, column.text(row)),
    );
    return make("tr", { click: () => onPick(row), "aria-current": row === current ? "true" : null, class: seen.isTied.has(row) ? "tied" : null }, ...cells);
  });
  table.replaceChildren(
    make("caption", { class: "unseen" }, "Cells of the group that pass the filters"),
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...lines),
  );
}

/** All rows, not only the page's, as CSV with the names of the data set. */
export function asCsv(seen, rows) {
  const { part } = seen;
  const group = { kernel: part.kernel, dtype: part.dtype, variant: seen.group.variant, height: seen.group.height, width: seen.group.width, cache_state: seen.group.cache_state, timing_mode: seen.group.timing_mode, device_name: seen.group.device_name };
  const head = [...Object.keys(group), ...part.axes, "status", "tied", ...EXPORTED.map((n) => n.replace("#", ""))];
  const number = (name, row) => {
    const value = part.numbers(name)[row];
    if (!Number.isFinite(value)) return "";
    return name === "bandwidth_gbs" ? String(Number(value.toPrecision(12))) : String(value);
  };
  const lines = rows.map((row) => [
    ...Object.values(group), ...part.axes.map((axis) => number(axis, row)),
    part.status(row), String(seen.isTied.has(row)), ...EXPORTED.map((name) => number(name, row)),
  ]);
  return `${[head, ...lines].map((line) => line.map(quoted).join(",")).join("\n")}\n`;
}

function quoted(value) {
  const text = String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
