// What of a data set is asked for: a group of cells, those that pass the filters, the tied best.

/** `1024x2048`: the name of a group's size. */
export function sizeOf(group) {
  return `${group.height}x${group.width}`;
}

/** The group of a part that the choice names; null where it has none. */
export function groupOf(part, choice) {
  if (part === null) return null;
  const named = part.groups.filter(
    (g) =>
      g.variant === choice.variant &&
      sizeOf(g) === choice.size &&
      g.cache_state === choice.cache &&
      g.timing_mode === choice.timing,
  );
  return named.find((g) => g.device_name === choice.device) ?? named[0] ?? null;
}

/** Launch parameters of a row as one text, by which cells of different types are found again. */
export function paramsKey(part, row) {
  return part.axes.map((axis) => `${axis}:${part.numbers(axis)[row]}`).join(",");
}

/** The axes that have several values in the group, with these, sorted; the longest first. */
export function varyingAxes(part, group) {
  const found = part.axes.map((axis) => {
    const values = new Set(part.numbers(axis).subarray(group.from, group.to));
    return { name: axis, values: [...values].filter(Number.isFinite).sort((a, b) => a - b) };
  });
  const longest = (a, b) => b.values.length - a.values.length || (a.name < b.name ? -1 : 1);
  return found.filter((axis) => axis.values.length > 1).sort(longest);
}

function rowsFrom(group) {
  return Array.from({ length: group.to - group.from }, (_, i) => group.from + i);
}

function fastestOf(part, rows) {
  const median = part.numbers("median_s");
  const order = part.numbers("#order");
  const before = (a, b) => median[a] - median[b] || order[a] - order[b];
  return rows.reduce((best, row) => (best === null || before(row, best) < 0 ? row : best), null);
}

/**
 * The cells that are statistically tied with the fastest, which stands first: the rule of analysis/best.py.
 * `rows` are those that compete; only verified ones can win.
 */
export function tiedBest(part, rows) {
  const ok = rows.filter((row) => part.status(row) === "ok");
  const fastest = fastestOf(part, ok);
  if (fastest === null) return [];
  const median = part.numbers("median_s");
  const order = part.numbers("#order");
  const low = part.numbers("group_low_s");
  const reach = part.numbers("group_high_s")[fastest];
  return ok
    .filter((row) => low[row] <= reach)
    .sort((a, b) => median[a] - median[b] || order[a] - order[b]);
}

/**
 * Launch parameters that come within `share` of the best of every type that has this group; the
 * parts of all types are given. A set of `paramsKey`.
 */
export function nearBestOfAll(parts, choice, share) {
  let common = null;
  for (const part of parts) {
    const group = groupOf(part, choice);
    if (group === null) continue;
    const ok = rowsFrom(group).filter((row) => part.status(row) === "ok");
    const time = part.numbers("median_s");
    const best = fastestOf(part, ok);
    const near = ok.filter((row) => (1 - share) * time[row] <= time[best]);
    const keys = new Set(near.map((row) => paramsKey(part, row)));
    common = common === null ? keys : new Set([...common].filter((key) => keys.has(key)));
  }
  return common ?? new Set();
}

/** A group seen through the choice's filters. `near` is what `nearBestOfAll` found, or null. */
export function view(part, choice, near) {
  const group = groupOf(part, choice);
  if (group === null) return null;
  const all = rowsFrom(group);
  const threads = part.numbers("threads_per_block");
  const passes = (row) =>
    (choice.threads === "" || threads[row] === Number(choice.threads)) &&
    (choice.only === "" || part.status(row) === choice.only) &&
    (near === null || near.has(paramsKey(part, row)));
  const rows = all.filter(passes);
  const tied = tiedBest(part, rows);
  return {
    part,
    group,
    all,
    rows,
    shown: new Set(rows),
    axes: varyingAxes(part, group),
    tied,
    isTied: new Set(tied),
    best: tied[0] ?? null,
    ok: rows.filter((row) => part.status(row) === "ok").length,
  };
}

/** Rows by their places on two axes. Places are numbered from 0; `at` gives null where no cell stands. */
export class Grid {
  constructor(part, x, y) {
    this.x = x;
    this.y = y;
    this.places = [x, y].map((axis) => new Map((axis?.values ?? []).map((value, i) => [value, i])));
    this.numbers = [x, y].map((axis) => (axis === null ? null : part.numbers(axis.name)));
    this.nx = x?.values.length ?? 1;
    this.ny = y?.values.length ?? 1;
    this.rows = new Int32Array(this.nx * this.ny).fill(-1);
  }

  /** Where a row stands, as two numbers. */
  placeOf(row) {
    return this.places.map((places, i) => (this.numbers[i] === null ? 0 : places.get(this.numbers[i][row]) ?? -1));
  }

  at(i, j) {
    const row = this.rows[j * this.nx + i];
    return row < 0 ? null : row;
  }

  put(i, j, row) {
    this.rows[j * this.nx + i] = row;
  }

  /** All rows that stand somewhere. */
  all() {
    return [...this.rows].filter((row) => row >= 0);
  }
}

/**
 * The row that stands at each place of the axes `x` and `y`, either of which may be null: of cells
 * that differ in other axes the fastest, or the one with the values that `fixed` names.
 */
export function points(seen, x, y, fixed) {
  const { part } = seen;
  const median = part.numbers("median_s");
  const grid = new Grid(part, x, y);
  const held = Object.entries(fixed).map(([axis, value]) => [part.numbers(axis), value]);
  const isBefore = (a, b) => {
    const shown = seen.shown.has(b) - seen.shown.has(a);
    const ok = (part.status(b) === "ok") - (part.status(a) === "ok");
    return (shown || ok || median[a] - median[b] || a - b) < 0;
  };
  for (const row of seen.all) {
    if (held.some(([values, value]) => values[row] !== value)) continue;
    const [i, j] = grid.placeOf(row);
    if (i < 0 || j < 0) continue;
    const there = grid.at(i, j);
    if (there === null || isBefore(row, there)) grid.put(i, j, row);
  }
  return grid;
}

/** The row of a part whose launch parameters are those of `key`; null where there is none. */
export function rowOf(seen, key) {
  return seen?.all.find((row) => paramsKey(seen.part, row) === key) ?? null;
}
