// The map by keyboard. Keys count only where the map has the focus.

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
  const grid = page.points[page.views.indexOf(seen)];
  let [i, j] = grid.placeOf(page.row);
  const clamp = (v, count) => Math.min(count - 1, Math.max(0, v));
  i = clamp(i + right, grid.nx);
  j = clamp(j + up, grid.ny);
  // A place that was not swept is passed over, from an end towards the middle.
  const inward = Number.isFinite(right) ? 1 : -1;
  const [di, dj] = [Math.sign(right) * inward, Math.sign(up)];
  while (i >= 0 && j >= 0 && i < grid.nx && j < grid.ny) {
    if (grid.at(i, j) !== null) return grid.at(i, j);
    i += di;
    j += dj;
  }
  return page.row;
}
