// The page: holds the choice, reads what it needs and draws it.

import { answer } from "explorer/answer.js";
import { along, drawSection } from "explorer/charts.js";
import { fromFragment, heldAxes, settled, settledAxes, toFragment } from "explorer/choice.js";
import { drawControls } from "explorer/controls.js";
import { dataSets } from "explorer/data.js";
import { paramsText, showCell, spoken } from "explorer/detail.js";
import { byId, make, say } from "explorer/dom.js";
import { HeatMap } from "explorer/heatmap.js";
import { listenToKeys } from "explorer/keys.js";
import { markList, scaleBar } from "explorer/legend.js";
import * as numbers from "explorer/numbers.js";
import { QUANTITIES, known } from "explorer/quantities.js";
import { drawRuns, lineOf } from "explorer/runs.js";
import { groupOf, nearBestOfAll, paramsKey, points, rowOf, view } from "explorer/select.js";
import { BY_SPEED, PAGE_ROWS, asCsv, columnsOf, drawTable, sortedRows } from "explorer/table.js";

/** What is drawn at the moment. Of two data sets `views` has two entries, null where one has none. */
const page = { sets: [], choice: {}, views: [], maps: [], plots: [], row: null, tablePage: 0, turn: 0 };

/** Begin: read the link, draw, and inflate the rest when there is time. */
export async function start() {
  page.sets = dataSets();
  byId("run").textContent = page.sets.map((set) => set.name).join(" and ");
  tellProgress();
  listen();
  await choose(fromFragment(location.hash));
  // So that keys count without a click. The page stays at its top.
  byId("maps").focus({ preventScroll: true });
  document.documentElement.dataset.ready = "true";
  for (const set of page.sets) {
    for (const { kernel, dtype } of set.index.parts) (await set.part(kernel, dtype)).warm();
  }
  document.documentElement.dataset.loaded = "true";
}

function tellProgress() {
  const going = page.sets.filter((set) => set.index.progress);
  byId("progress").hidden = going.length === 0;
  byId("progress").textContent = going
    .map(({ name, index: { cells, progress: p } }) =>
      `${name} was still being measured: ${numbers.whole(cells)} of ${p.about ? "about " : ""}${numbers.plural(p.planned_cells, "cell")} ` +
      `are in, from ${p.shards} of ${numbers.plural(p.planned_shards, "shard")}.`)
    .join(" ");
  const total = page.sets.reduce((sum, set) => sum + set.index.cells, 0);
  byId("run").append(` · ${numbers.plural(total, "cell")}`);
}

function listen() {
  addEventListener("hashchange", (event) => follow(new URL(event.newURL).hash));
  addEventListener("resize", () => drawPictures());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawPictures());
  byId("copy-csv").addEventListener("click", copyCsv);
  byId("copy-link").addEventListener("click", () => copy(location.href.split("#")[0] + toFragment(page.choice), "The link was copied."));
  byId("page-back").addEventListener("click", () => turnPage(-1));
  byId("page-on").addEventListener("click", () => turnPage(1));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  listenToKeys(byId("maps"), page, pick);
}

/** Draw what a link asks for. The address may hold the choice before it by now, which was yet to be noted. */
function follow(fragment) {
  clearTimeout(page.noting);
  return choose(fromFragment(fragment));
}

/** Have the address hold what is chosen; a browser takes its time for that, so not before it is drawn. */
function noteLink() {
  clearTimeout(page.noting);
  page.noting = setTimeout(() => history.replaceState(null, "", toFragment(page.choice)), 80);
}

/** Take over a change of the choice. */
function update(change) {
  // What was chosen within a group means nothing in another one, but its launch may be there too.
  const leaves = "kernel" in change ? { x: "", y: "", fix: "", cell: "", sort: "", threads: "", only: "", near: "" } : {};
  return choose({ ...page.choice, ...leaves, ...change });
}

/** Draw what is asked; of what is asked meanwhile the last one counts. */
async function choose(asked) {
  page.turn += 1;
  const turn = page.turn;
  const choice = settled(page.sets, asked);
  const parts = await Promise.all(page.sets.map((set) => set.part(choice.kernel, choice.dtype)));
  const nears = await Promise.all(page.sets.map((set) => nearOf(set, choice)));
  if (turn !== page.turn) return;
  const whole = settledAxes(parts.find((part) => part !== null), choice);
  page.views = page.sets.map((set, i) => {
    const seen = parts[i] === null ? null : view(parts[i], whole, nears[i]);
    return seen && Object.assign(seen, { name: set.name, sampleStep: set.index.sample_step });
  });
  const lead = leading();
  page.choice = whole;
  if (lead && !known(lead).includes(whole.show)) whole.show = known(lead)[0] ?? "bandwidth";
  page.row = lead && (rowOf(lead, whole.cell) ?? lead.best ?? lead.all[0] ?? null);
  page.tablePage = 0;
  page.points = page.views.map((seen) => seen && points(seen, axisNamed(seen, whole.x), axisNamed(seen, upward(whole)), heldAxes(whole)));
  draw();
}

async function nearOf(set, choice) {
  if (choice.near === "") return null;
  const parts = await Promise.all(set.types(choice.kernel).map((dtype) => set.part(choice.kernel, dtype)));
  return nearBestOfAll(parts, choice, Number(choice.near) / 100);
}

/** The view whose cells the cursor and the table are of. */
function leading() {
  return page.views.find((seen) => seen !== null) ?? null;
}

const leadingSet = () => page.sets[page.views.indexOf(leading())];

function upward(choice) {
  return choice.y && choice.y !== "none" ? choice.y : null;
}

/** The same cell in the other data set, where there are two. */
function secondOf(row) {
  const lead = leading();
  const at = page.views.findIndex((seen) => seen !== null && seen !== lead);
  if (at < 0 || row === null) return null;
  const found = rowOf(page.views[at], paramsKey(lead.part, row));
  return found === null ? null : { set: page.sets[at], seen: page.views[at], row: found };
}

function draw() {
  noteLink();
  drawControls(byId("controls"), page.sets, leading(), page.choice, update);
  const named = page.sets.length > 1;
  byId("answer").replaceChildren(...page.sets.map((set, i) => answer(set, page.views[i], page.choice, named)));
  drawMaps();
  drawCell(page.row);
  drawRest();
  drawHistory();
}

function drawPictures() {
  drawMaps();
  drawCell(page.row);
  drawSections();
  drawHistory();
}

/** Cross-sections and the table: after the answer and the map are on the screen. */
function drawRest() {
  const root = document.documentElement.dataset;
  root.busy = "true";
  clearTimeout(page.resting);
  cancelAnimationFrame(page.restFrame);
  page.restFrame = requestAnimationFrame(() => {
    page.resting = setTimeout(() => {
      drawSections();
      drawListing();
      delete root.busy;
    });
  });
}

function drawMaps() {
  const { choice, views } = page;
  const container = byId("maps");
  container.replaceChildren();
  page.maps = [];
  const axes = leading()?.axes.length ?? 0;
  const flat = axes > 0 && upward(choice) !== null;
  byId("map-area").dataset.kind = flat ? "map" : axes > 0 ? "curve" : "point";
  byId("map-title").textContent = flat ? `${choice.y} over ${choice.x}` : axes > 0 ? `Over ${choice.x}` : "A single cell";
  byId("legend").replaceChildren();
  container.setAttribute("aria-label", mapLabel(flat));
  const frames = [];
  views.forEach((seen, i) => {
    if (seen === null || !flat) return;
    const title = page.sets.length > 1 ? [make("p", { class: "set" }, page.sets[i].name)] : [];
    const frame = make("div", { class: "canvas" });
    const figure = make("div", { class: "map" }, ...title, frame);
    container.append(figure);
    frames.push(() => drawMap(frame, figure, seen, i));
  });
  // All frames stand before the first is drawn: how wide one is depends on how many there are.
  for (const drawn of frames) drawn();
  if (axes > 0 && !flat) drawCurve(container);
  if (axes === 0) container.append(make("p", { class: "quiet" }, "No launch parameter was swept in this group."));
  const lead = leading();
  if (lead && axes > 0) byId("legend").append(markList(lead));
  byId("hint").textContent = axes > 0 ? hint(flat) : "";
}

function hint(flat) {
  const others = leading().axes.filter((axis) => ![page.choice.x, upward(page.choice)].includes(axis.name));
  const held = heldAxes(page.choice);
  const free = others.filter((axis) => !(axis.name in held)).map((axis) => axis.name);
  const fastest = free.length && flat ? ` Each place shows the fastest over ${free.join(" and ")}.` : "";
  return `Arrow keys move; B goes to the fastest, N and P through the tied cells.${fastest}`;
}

function mapLabel(flat) {
  const { choice } = page;
  const what = flat ? `Heat map of ${choice.y} over ${choice.x}` : `Curve over ${choice.x || "nothing"}`;
  return `${what}: ${choice.kernel}, ${choice.dtype}, ${choice.variant}, ${choice.size}, ${choice.cache}. Arrow keys move from cell to cell.`;
}

/** An axis with its values in this data set, which may be one alone; null for no axis. */
function axisNamed(seen, name) {
  if (!name) return null;
  const swept = () => [...new Set(seen.all.map((row) => seen.part.numbers(name)[row]))].sort((a, b) => a - b);
  return seen.axes.find((axis) => axis.name === name) ?? { name, values: swept() };
}

function drawMap(frame, figure, seen, i) {
  const { choice } = page;
  const quantity = QUANTITIES[choice.show];
  const picked = (row) => pick(i === page.views.indexOf(leading()) ? row : rowOf(leading(), paramsKey(seen.part, row)));
  const map = new HeatMap(frame, { onPoint: (row, event) => point(seen, i, row, event), onPick: picked });
  map.draw({
    seen,
    points: page.points[i],
    values: quantity.of(seen),
    scale: choice.scale,
    fromHalf: quantity.fromHalf,
  });
  figure.append(scaleBar(map.map, quantity, choice));
  page.maps[i] = map;
}

function drawCurve(container) {
  const lead = leading();
  const shown = page.points[page.views.indexOf(lead)].all();
  const place = lead.part.numbers(page.choice.x);
  const rows = shown.sort((a, b) => place[a] - place[b]);
  const frame = container.appendChild(make("div", { class: "canvas curve" }));
  const second = secondRows((seen, i) => page.points[i].all());
  drawSection(frame, { seen: lead, rows, axis: page.choice.x, current: page.row, second, scale: page.choice.scale, height: 360, onPick: pick });
}

function secondRows(rows) {
  const at = page.views.findIndex((seen) => seen !== null && seen !== leading());
  return at < 0 ? null : { seen: page.views[at], rows: rows(page.views[at], at) };
}

/** What the pointer is over: a short note beside it, and all of it in the panel. */
function point(seen, i, row, event) {
  const tip = byId("tip");
  tip.hidden = row === null;
  if (row === null) {
    drawCell(page.row);
    return;
  }
  tip.replaceChildren(make("b", {}, paramsText(seen.part, row)), make("br"), spoken(seen, row).slice(paramsText(seen.part, row).length + 2));
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.transform = `translate(${Math.max(4, left)}px, ${event.clientY + 16}px)`;
  drawCell(i === page.views.indexOf(leading()) ? row : rowOf(leading(), paramsKey(seen.part, row)));
}

/** Choose a cell. */
function pick(row, aloud = false) {
  if (row === null || row === undefined) return;
  page.row = row;
  page.choice.cell = paramsKey(leading().part, row);
  noteLink();
  if (byId("map-area").dataset.kind === "curve") drawMaps();
  drawCell(row);
  drawRest();
  if (aloud) say(spoken(leading(), row));
}

function drawCell(row) {
  const lead = leading();
  if (lead === null) return;
  showCell(byId("cell"), leadingSet(), lead, row, secondOf(row));
  page.maps.forEach((map, i) => {
    const there = page.views[i] === lead ? row : secondOf(row)?.row ?? null;
    map.cursor(there);
  });
}

function drawSections() {
  const container = byId("charts");
  container.replaceChildren();
  const lead = leading();
  // A curve is its own cross-section.
  const axes = lead && byId("map-area").dataset.kind === "map" ? lead.axes : [];
  byId("sections").hidden = axes.length === 0 || page.row === null;
  if (byId("sections").hidden) return;
  const frames = axes.map(() => container.appendChild(make("div", { class: "chart" })));
  axes.forEach((axis, i) => {
    const rows = along(lead, page.row, axis.name);
    const second = secondRows((seen) => {
      const there = secondOf(page.row)?.row;
      return there === undefined ? [] : along(seen, there, axis.name);
    });
    drawSection(frames[i], { seen: lead, rows, axis: axis.name, current: page.row, second, scale: page.choice.scale, height: 220, onPick: (row) => pick(row) });
  });
  const model = lead.rows.some((row) => Number.isFinite(lead.part.numbers("#predicted_gbs")[row]));
  byId("charts-note").textContent =
    `Through ${paramsText(lead.part, page.row)}. Upright lines are 95 % intervals, rings tied cells${model ? ", the dashed line is the model" : ""}.`;
}

/** The group over earlier runs, of each data set that knows them. */
function drawHistory() {
  const container = byId("runs");
  container.replaceChildren();
  const lines = page.sets.map((set, i) => {
    const part = page.views[i]?.part ?? null;
    return lineOf(set, part, groupOf(part, page.choice));
  });
  const why = page.sets.map((set) => set.index.history?.why).filter(Boolean);
  byId("over-runs").hidden = why.length === 0 && lines.every((line) => line === null);
  container.append(...why.map((sentence) => make("p", { class: "quiet" }, sentence)));
  lines.forEach((line, i) => {
    if (line === null) return;
    if (page.sets.length > 1) container.append(make("p", { class: "set" }, page.sets[i].name));
    drawRuns(container.appendChild(make("div", {})), line, page.sets[i].index.history.runs);
  });
}

function drawListing() {
  const seen = leading();
  if (seen === null) return;
  const columns = columnsOf(seen);
  const sort = page.choice.sort || BY_SPEED;
  page.listed = sortedRows(seen, columns, sort);
  const last = Math.max(0, Math.ceil(page.listed.length / PAGE_ROWS) - 1);
  page.tablePage = Math.min(page.tablePage, last);
  const from = page.tablePage * PAGE_ROWS;
  drawTable(byId("table"), { seen, columns, rows: page.listed, sort, page: page.tablePage, current: page.row, onSort: sortBy, onPick: (row) => pick(row) });
  const to = Math.min(page.listed.length, from + PAGE_ROWS);
  byId("table-count").textContent = page.listed.length === 0 ? "No cell passes the filters." : `${numbers.whole(from + 1)} to ${numbers.whole(to)} of ${numbers.plural(page.listed.length, "cell")}`;
  byId("page-back").disabled = page.tablePage === 0;
  byId("page-on").disabled = page.tablePage === last;
}

function sortBy(sort) {
  page.choice.sort = sort;
  page.tablePage = 0;
  noteLink();
  drawListing();
  byId("table").querySelector(`[data-sort="${CSS.escape(sort.replace(/^-/, ""))}"], [data-sort="-${CSS.escape(sort.replace(/^-/, ""))}"]`)?.focus();
}

function turnPage(step) {
  page.tablePage += step;
  drawListing();
}

function copyCsv() {
  const text = asCsv(leading(), page.listed);
  copy(text, `${numbers.plural(page.listed.length, "row")} copied as CSV.`);
}

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Where the browser has no clipboard for files: by a field that is selected.
    const field = document.body.appendChild(make("textarea", { class: "unseen" }));
    field.value = text;
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(done);
  byId("table-count").textContent = done;
}

