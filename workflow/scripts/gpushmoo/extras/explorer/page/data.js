// Data sets of the page: parts by kernel and type, decoded when they are first shown.

import { Block, inflated } from "explorer/columns.js";
import * as numbers from "explorer/numbers.js";

const NEEDED = [
  "#speed", "#speed_low", "#speed_high", "group_low_s", "group_high_s", "vs_memcpy", "#model_error",
  "#order", "threads_per_block", "registers", "sample_half_width",
];

/** One kernel and type: its cells in the order of its groups. */
export class Part {
  constructor(told, block) {
    Object.assign(this, told);
    this.block = block;
    this.derived = new Map();
    this.samplesRead = null;
  }

  /** A column as numbers: an axis, a figure, or what follows from figures. */
  numbers(name) {
    if (this.block.has(name)) return this.block.numbers(name);
    if (!this.derived.has(name)) this.derived.set(name, this.derive(name));
    return this.derived.get(name);
  }

  /** Decode what a map and its table need, before they are asked for. */
  warm() {
    for (const name of [...this.axes, ...NEEDED]) this.numbers(name);
    this.block.codes("status");
  }

  derive(name) {
    if (name === "bandwidth_gbs") {
      const read = this.numbers("bytes_read");
      const written = this.numbers("bytes_written");
      return this.numbers("median_s").map((s, i) => (read[i] + written[i] || NaN) / s / 1e9);
    }
    if (name.startsWith("#speed")) return this.speed(name.slice("#speed".length));
    if (name === "#model_error") {
      const measured = this.numbers("bandwidth_gbs");
      return this.numbers("#predicted_gbs").map((gbs, i) => measured[i] / gbs - 1);
    }
    throw new Error(`no column '${name}'`);
  }

  /** The figure of merit, or an end (`_low`, `_high`) of its interval: see core/metric.py. */
  speed(end) {
    if (this.merit.name === "bandwidth") return this.numbers(`bandwidth${end}_gbs`);
    if (this.merit.name === "time") return this.numbers(`median${end}_s`).map((s) => s * 1e6);
    const times = this.numbers(`median${{ _low: "_high", _high: "_low" }[end] ?? ""}_s`);
    return this.numbers("work").map((work, i) => work / times[i] / 1e9);
  }

  /** A value of the figure of merit with its unit. */
  speedText(value) {
    return Number.isFinite(value) ? `${numbers.significant(value)} ${this.merit.unit}` : numbers.MISSING;
  }

  /** A column of texts, of one row; null where there is none. */
  text(name, row) {
    return this.block.values(name)[this.block.codes(name)[row]];
  }

  status(row) {
    return this.text("status", row);
  }

  /** Logarithms of a cell's samples over its median, and of which repeat each is. */
  async samples(row) {
    this.samplesRead ??= inflated(this.samplesBlock).then((bytes) => new Block(bytes));
    const block = await this.samplesRead;
    const counts = block.list("repeat_samples", row);
    const repeats = counts.flatMap((count, repeat) => Array(count).fill(repeat));
    return { steps: block.list("samples_s", row), repeats };
  }
}

/** All cells of a run. */
export class DataSet {
  constructor(index) {
    this.index = index;
    this.name = index.name;
    this.loading = new Map();
    this.loaded = new Map();
  }

  get kernels() {
    return [...new Set(this.index.parts.map((part) => part.kernel))];
  }

  types(kernel) {
    return this.index.parts.filter((p) => p.kernel === kernel).map((p) => p.dtype);
  }

  told(kernel, dtype) {
    return this.index.parts.find((p) => p.kernel === kernel && p.dtype === dtype) ?? null;
  }

  /** The part, or null where this data set has none; inflated once. */
  async part(kernel, dtype) {
    const told = this.told(kernel, dtype);
    if (told === null) return null;
    const key = `${kernel}/${dtype}`;
    if (!this.loading.has(key)) {
      const { figures, samples, ...rest } = told;
      const made = inflated(figures).then((bytes) => {
        const part = new Part({ ...rest, samplesBlock: samples }, new Block(bytes));
        this.loaded.set(key, part);
        return part;
      });
      this.loading.set(key, made);
    }
    return this.loading.get(key);
  }

  /** What is known of the code that ran a cell: lines of text. */
  codeFacts(part, row, variant) {
    const known = this.index.codes[`${part.kernel}/${part.dtype}`];
    if (!known) return [];
    const fits = (version) => {
      if (version !== variant && !version.startsWith(`${variant} `)) return false;
      const settings = version.slice(variant.length).split(" ").filter(Boolean);
      return settings.every((text) => {
        const [axis, value] = text.split("=");
        return part.axes.includes(axis) && part.numbers(axis)[row] === Number(value);
      });
    };
    const version = Object.keys(known.versions).filter(fits).sort((a, b) => b.length - a.length)[0];
    return version === undefined ? [] : known.facts[known.versions[version]];
  }
}

/** The data sets that the page holds: one, or two. */
export function dataSets() {
  const index = JSON.parse(document.getElementById("index").textContent);
  return index.map((told) => new DataSet(told));
}
