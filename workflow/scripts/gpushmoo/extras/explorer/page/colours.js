// Colours of the map: viridis, as in the report's figures.

const STOPS = [
  [68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37],
];

/** The colour at `share` of the scale, 0 to 1, as red, green and blue. */
export function colourAt(share) {
  const place = Math.min(1, Math.max(0, share)) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(place));
  const part = place - low;
  return STOPS[low].map((v, i) => Math.round(v + part * (STOPS[low + 1][i] - v)));
}

// Texts are made once: a map has thousands of cells, and they have no more colours than this.
const SHADES = Array.from({ length: 512 }, (_, i) => `rgb(${colourAt(i / 511).join(" ")})`);

export function css(share) {
  return SHADES[Math.round(Math.min(1, Math.max(0, share)) * (SHADES.length - 1))];
}

/** Black or white, whichever is seen on the colour. */
export function inkOn(share) {
  const [r, g, b] = colourAt(share);
  return 0.299 * r + 0.587 * g + 0.114 * b > 130 ? "#000" : "#fff";
}

/** Where a value stands on a scale from `low` to `high`. */
export function shareOf(value, low, high, scale) {
  if (!(high > low)) return 1;
  if (scale === "log" && low > 0) return Math.log(value / low) / Math.log(high / low);
  return (value - low) / (high - low);
}

export function gradient() {
  return `linear-gradient(to right, ${STOPS.map((c) => `rgb(${c.join(" ")})`).join(", ")})`;
}

/** A colour of the style sheet, by its name. */
export function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
