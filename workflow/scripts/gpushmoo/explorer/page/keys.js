// The map by keyboard. Keys count only where the map has the focus.

import { pointKey } from "explorer/select.js";

const STEPS = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1],
  PageUp: [0, 8], PageDown: [0, -8], Home: [-Infinity, 0], End: [Infinity, 0],
};

/** Listen on `area`; `page` is what is drawn, `pick(row, aloud)` chooses a cell. */
export function listenToKeys(area, page, pick) {
  area.tabIndex = 0;
  area.setAttribute("role", "application");
  area.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = target(page, event.key);
    if (row === undefined) return;
    event.preventDefault();
    pick(row, true);
  });
}

/** The row that a key leads to; undefined where it leads nowhere. */
function target(page, key) {
  const seen = page.views.find((v) => v !== null);
  if (!seen || page.row === null || seen.axes.length === 0) return undefined;
  if (key in STEPS) return moved(page, seen, STEPS[key]);
  const letter = key.toLowerCase();
  if (letter === "b") return seen.best ?? undefined;
  if (letter === "n" || letter === "p") {
    const at = seen.tied.indexOf(page.row);
    const step = letter === "n" ? 1 : -1;
    return seen.tied.at((at + (at < 0 && step < 0 ? 0 : step)) % seen.tied.length);
  }
  return undefined;
}

function moved(page, seen, [right, up]) {
  const { x, y } = page.choice;
  const points = page.points[page.views.indexOf(seen)];
  const across = valuesOf(seen, x);
  const upward = y && y !== "none" ? valuesOf(seen, y) : [0];
  const [atX, atY] = pointKey(seen.part, page.row, x, y === "none" ? null : y || null).split("|").map(Number);
  let i = across.indexOf(atX);
  let j = upward.indexOf(atY);
  const clamp = (v, most) => Math.min(most, Math.max(0, v));
  const end = (step, count) => (step > 0 ? count - 1 : 0);
  if (!Number.isFinite(right)) i = end(right, across.length);
  else i = clamp(i + right, across.length - 1);
  j = clamp(j + up, upward.length - 1);
  // A place that was not swept is passed over.
  const [di, dj] = [Math.sign(right) * (Number.isFinite(right) ? 1 : -1), Math.sign(up)];
  while (i >= 0 && j >= 0 && i < across.length && j < upward.length) {
    const found = points.get(`${across[i]}|${upward[j]}`);
    if (found !== undefined) return found;
    i += di;
    j += dj;
  }
  return page.row;
}

function valuesOf(seen, name) {
  const swept = seen.axes.find((axis) => axis.name === name);
  return swept ? swept.values : [NaN];
}
