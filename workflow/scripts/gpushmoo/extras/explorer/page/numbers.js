// Numbers as a reader wants them.

export const MISSING = "–";
const GROUPED = new Intl.NumberFormat("en-GB");

/** `value` to so many significant digits, without an exponent; digits before the point all stand. */
export function significant(value, digits = 4) {
  if (!Number.isFinite(value)) return MISSING;
  if (value === 0) return "0";
  const text = value.toPrecision(digits);
  return text.includes("e") ? String(Number(text)) : text;
}

export function seconds(value) {
  if (!Number.isFinite(value)) return MISSING;
  for (const [factor, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (value >= factor) return `${significant(scaled(value, factor))} ${unit}`;
  }
  return `${significant(scaled(value, 1e-9))} ns`;
}

// By the decimal, so that what was rounded to four digits is not rounded again.
function scaled(value, factor) {
  return Number(shifted(value, -Math.round(Math.log10(factor))));
}

function shifted(value, places) {
  const [digits, exponent = "0"] = String(value).split("e");
  return `${digits}e${Number(exponent) + places}`;
}

export function gbs(value) {
  return Number.isFinite(value) ? `${significant(value)} GB/s` : MISSING;
}

export function percent(share, digits = 3) {
  return Number.isFinite(share) ? `${significant(Number(shifted(share, 2)), digits)} %` : MISSING;
}

export function whole(value) {
  return Number.isFinite(value) ? GROUPED.format(value) : MISSING;
}

export function bytes(value) {
  if (!Number.isFinite(value)) return MISSING;
  let rest = value;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (rest < 1024) return `${significant(rest, rest < 10 ? 3 : 4)} ${unit}`;
    rest /= 1024;
  }
  return `${significant(rest)} GiB`;
}

export function plural(count, word) {
  return `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
}
