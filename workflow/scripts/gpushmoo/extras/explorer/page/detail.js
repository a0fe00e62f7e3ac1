// All that is known of one cell: figures, samples, status, machine code.

import { themed } from "explorer/colours.js";
import { make } from "explorer/dom.js";
import * as numbers from "explorer/numbers.js";
import { meaning } from "explorer/statuses.js";

/** `block_x 32, block_y 8`. */
export function paramsText(part, row) {
  const said = part.axes.filter((axis) => Number.isFinite(part.numbers(axis)[row]));
  return said.map((axis) => `${axis} ${part.numbers(axis)[row]}`).join(", ") || "no launch parameters";
}

/** One sentence for readers of the screen. */
export function spoken(seen, row) {
  const { part } = seen;
  const status = part.status(row);
  const params = paramsText(part, row);
  if (status !== "ok") return `${params}: ${meaning(status)}.`;
  const rank = row === seen.best ? ", the fastest" : seen.isTied.has(row) ? ", tied with the fastest" : "";
  const out = seen.shown.has(row) ? "" : ", left out by a filter";
  return `${params}: ${part.speedText(part.numbers("#speed")[row])}${rank}${out}.`;
}

function range(part, low, high, row, text) {
  const [from, to] = [part.numbers(low)[row], part.numbers(high)[row]];
  return Number.isFinite(from) ? `${text(from)} to ${text(to)}` : numbers.MISSING;
}

/** Heading and text of every figure. */
function figures(seen, row) {
  const { part } = seen;
  const at = (name) => part.numbers(name)[row];
  const count = (name) => numbers.whole(at(name));
  const repeats = part.block.list("repeat_medians_s", row);
  const copies = part.block.list("repeat_memcpy_gbs", row);
  const best = seen.best === null ? NaN : part.numbers("median_s")[seen.best];
  const isTime = part.merit.name === "time";
  return [
    [part.merit.name === "rate" ? "Rate" : "Bandwidth", isTime ? numbers.MISSING : part.speedText(at("#speed"))],
    ["95 % interval", isTime ? numbers.MISSING : range(part, "#speed_low", "#speed_high", row, numbers.significant) ],
    ["Share of the best", numbers.percent(best / at("median_s"), 4)],
    ["Time of a launch", numbers.seconds(at("median_s"))],
    ["95 % interval", range(part, "median_low_s", "median_high_s", row, numbers.seconds)],
    ["Compared by", range(part, "group_low_s", "group_high_s", row, numbers.seconds)],
    ["Model", numbers.gbs(at("#predicted_gbs"))],
    ["Measured over model", numbers.percent(at("#model_error"))],
    ["Coverage of the interval", numbers.percent(at("coverage"))],
    ["Half width within a run", numbers.percent(at("sample_half_width"))],
    ["Spread between repeats", numbers.percent(at("repeat_rsd"))],
    ["Repeats", repeats.map(numbers.seconds).join(", ") || numbers.MISSING],
    ["Launches a sample", count("launches_per_sample")],
    ["Relative to memcpy", Number.isFinite(at("vs_memcpy")) ? `${numbers.significant(at("vs_memcpy"))} ×` : numbers.MISSING],
    ["Memcpy baseline", numbers.gbs(at("memcpy_gbs"))],
    ["Memcpy baseline of each repeat", copies.map(numbers.gbs).join(", ") || numbers.MISSING],
    ["Read", numbers.bytes(at("bytes_read"))],
    ["Written", numbers.bytes(at("bytes_written"))],
    ["Working set over cache", numbers.significant(at("working_set_over_cache"))],
    ["Threads in a block", count("threads_per_block")],
    ["Blocks", count("blocks")],
    ["Tiles", count("tiles")],
    ["Multiprocessors", count("multiprocessors")],
    ["Blocks held by each", count("resident_blocks")],
    ["Registers of a thread", count("registers")],
    ["Words verified", count("verified_words")],
    ["Words wrong", count("wrong_words")],
    ["Measured", part.text("measured_at", row) ?? numbers.MISSING],
    ["Device", `${seen.group.device_name}, ${part.text("device_uuid", row)}`],
    ["Backend", part.text("backend", row)],
  ];
}

function statusLine(seen, row) {
  const status = seen.part.status(row);
  const rank = row === seen.best ? " · the fastest" : seen.isTied.has(row) ? " · tied with the fastest" : "";
  const out = seen.shown.has(row) ? "" : " · left out by a filter";
  return make("p", { class: `status status-${status}` }, make("b", {}, status), ` ${meaning(status)}${rank}${out}`);
}

/** Samples as dots in the order taken, each repeat in a shade; the median as a line. */
async function drawSamples(canvas, seen, row) {
  const { steps, repeats } = await seen.part.samples(row);
  canvas.dataset.samples = steps.length;
  if (steps.length === 0) return;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  const pen = canvas.getContext("2d");
  pen.scale(devicePixelRatio, devicePixelRatio);
  const median = seen.part.numbers("median_s")[row];
  const band = ["group_low_s", "group_high_s"].map((name) => Math.log(seen.part.numbers(name)[row] / median));
  const values = steps.map((v) => v * seen.sampleStep);
  const low = Math.min(...values, band[0]);
  const high = Math.max(...values, band[1], low + 1e-6);
  const y = (v) => height - 6 - ((v - low) / (high - low)) * (height - 12);
  pen.fillStyle = themed("--band");
  pen.fillRect(0, y(band[1]), width, Math.max(1, y(band[0]) - y(band[1])));
  pen.fillStyle = themed("--ink");
  pen.fillRect(0, y(0) - 0.5, width, 1);
  const shades = [themed("--measured"), themed("--second"), themed("--model")];
  values.forEach((value, i) => {
    pen.fillStyle = shades[repeats[i] % shades.length];
    pen.beginPath();
    pen.arc(6 + (i / Math.max(1, values.length - 1)) * (width - 12), y(value), 2.6, 0, 7);
    pen.fill();
  });
  const ends = [low, high].map((v) => numbers.seconds(median * Math.exp(v)));
  canvas.setAttribute("aria-label", `${values.length} samples, ${ends[0]} to ${ends[1]}`);
  canvas.nextElementSibling.textContent = `${numbers.plural(values.length, "sample")} in ${numbers.plural(Math.max(...repeats) + 1, "repeat")}, in the order taken: ${ends[0]} to ${ends[1]}; the band is what cells are compared by.`;
}

/** Fill `container` with a cell; `second` is the same cell of the other data set, or null. */
export function showCell(container, set, seen, row, second) {
  if (row === null) {
    container.replaceChildren(make("p", { class: "quiet" }, "No cell is chosen."));
    return;
  }
  const { part, group } = seen;
  const told = figures(seen, row);
  const other = second ? figures(second.seen, second.row) : null;
  const known = told.map((pair, i) => [...pair, other?.[i][1] ?? ""]).filter(([, a, b]) => a !== numbers.MISSING || (b && b !== numbers.MISSING));
  const head = second
    ? make("thead", {}, make("tr", {}, make("td"), make("th", { scope: "col" }, set.name), make("th", { scope: "col" }, second.set.name)))
    : null;
  const lines = known.map(([name, a, b]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, a), second ? make("td", {}, b) : null),
  );
  const canvas = make("canvas", { class: "samples", role: "img", "aria-label": "samples" });
  const message = part.text("message", row);
  const facts = set.codeFacts(part, row, group.variant);
  container.replaceChildren(
    make("p", { class: "params" }, paramsText(part, row)),
    statusLine(seen, row),
    ...(message ? [make("p", { class: "message" }, message)] : []),
    ...(second ? [make("p", {}, ratioText(seen, row, second))] : []),
    ...(part.status(row) === "ok" ? [canvas, make("p", { class: "quiet samples-note" })] : []),
    make("table", { class: "figures" }, make("caption", { class: "unseen" }, "Figures of the cell"), head, make("tbody", {}, ...lines)),
    ...(facts.length ? [make("h3", {}, "Machine code"), make("ul", { class: "code" }, ...facts.map((line) => make("li", {}, line)))] : []),
  );
  if (part.status(row) === "ok") drawSamples(canvas, seen, row);
}

function ratioText(seen, row, second) {
  const ratio = seen.part.numbers("median_s")[row] / second.seen.part.numbers("median_s")[second.row];
  return Number.isFinite(ratio) ? `The second is ${numbers.significant(ratio)} times as fast.` : "Only one of the two has a time.";
}
