// What the map's colours can show.

import * as numbers from "explorer/numbers.js";

/** Name, heading, the value of a row, and its text. Greater is brighter; `fromHalf`: see `rangeOf`. */
export const QUANTITIES = {
  bandwidth: {
    label: "Bandwidth",
    unit: "GB/s",
    fromHalf: true,
    of: (seen) => seen.part.numbers("bandwidth_gbs"),
    text: numbers.gbs,
    bare: (v) => numbers.significant(v, 4),
  },
  rate: {
    label: "Rate of work (10⁹ a second)",
    unit: "",
    fromHalf: true,
    of: (seen) => (seen.part.merit.name === "rate" ? seen.part.numbers("#speed") : new Float64Array(seen.part.rows).fill(NaN)),
    text: (v) => numbers.significant(v, 4),
    bare: (v) => numbers.significant(v, 4),
  },
  time: {
    label: "Time of a launch",
    unit: "",
    of: (seen) => seen.part.numbers("median_s"),
    text: numbers.seconds,
    bare: numbers.seconds,
  },
  best: {
    label: "Share of the best",
    unit: "%",
    fromHalf: true,
    of: (seen) => {
      const time = seen.part.numbers("median_s");
      const shares = new Float64Array(time.length).fill(NaN);
      for (const row of seen.all) shares[row] = time[seen.best ?? 0] / time[row];
      return shares;
    },
    text: (v) => numbers.percent(v),
    bare: (v) => numbers.significant(100 * v, 3),
  },
  copy: {
    label: "Of the runtime’s copy",
    unit: "×",
    fromHalf: true,
    of: (seen) => seen.part.numbers("vs_memcpy"),
    text: (v) => `${numbers.significant(v)} ×`,
    bare: (v) => numbers.significant(v, 3),
  },
  spread: {
    label: "Half width of the interval",
    unit: "%",
    of: (seen) => seen.part.numbers("sample_half_width"),
    text: (v) => numbers.percent(v),
    bare: (v) => numbers.significant(100 * v, 3),
  },
  model: {
    label: "Measured over the model, less one",
    unit: "%",
    of: (seen) => seen.part.numbers("#model_error"),
    text: (v) => numbers.percent(v),
    bare: (v) => numbers.significant(100 * v, 3),
  },
};

/** The quantities of which a group has a value. */
export function known(seen) {
  seen.quantities ??= Object.keys(QUANTITIES).filter((name) => {
    const values = QUANTITIES[name].of(seen);
    return seen.all.some((row) => Number.isFinite(values[row]));
  });
  return seen.quantities;
}
