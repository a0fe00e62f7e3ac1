// The map: a canvas of cells over two axes, with a second canvas for the cursor.

import { css, inkOn, shareOf, themed } from "explorer/colours.js";
import { isFault } from "explorer/statuses.js";

const MARGIN = { left: 52, right: 8, top: 6, bottom: 40 };
const MOST_HEIGHT = 560;
const LEAST_SIDE = 3;
const FONT = "12px system-ui, sans-serif";
// Cells that a filter leaves out stay as a shade.
const FAINT = 0.16;

/**
 * The map's range of values: of all verified cells of the group, so that filters move no colour. Where more
 * is better it begins at half of the best, as in the report; what is less is as dark.
 */
export function rangeOf(map) {
  const values = map.rows().map((row) => map.values[row]).filter(Number.isFinite);
  if (values.length === 0) return [NaN, NaN];
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return [map.fromHalf && map.scale === "linear" ? Math.max(least, most / 2) : least, most];
}

/** One map. `onPoint(row, event)` is told what the pointer is over, `onPick(row)` what is clicked. */
export class HeatMap {
  constructor(container, { onPoint, onPick }) {
    this.base = container.appendChild(document.createElement("canvas"));
    this.over = container.appendChild(document.createElement("canvas"));
    this.over.className = "cursor";
    this.container = container;
    const at = (event) => this.rowAt(event);
    this.over.addEventListener("pointermove", (event) => onPoint(at(event), event));
    this.over.addEventListener("pointerleave", (event) => onPoint(null, event));
    this.over.addEventListener("click", (event) => at(event) !== null && onPick(at(event)));
  }

  /** Show `map`: seen, points (a Grid), values, scale, fromHalf. */
  draw(map) {
    this.map = map;
    map.rows = () => map.seen.all.filter((row) => map.seen.part.status(row) === "ok");
    [map.low, map.high] = rangeOf(map);
    this.place();
    const pen = this.pen(this.base);
    this.cells(pen);
    this.axes(pen);
    this.cursor(null);
  }

  place() {
    const width = Math.max(240, this.container.clientWidth);
    this.nx = this.map.points.nx;
    this.ny = this.map.points.ny;
    const plot = width - MARGIN.left - MARGIN.right;
    const side = Math.max(LEAST_SIDE, plot / this.nx);
    const most = MOST_HEIGHT - MARGIN.top - MARGIN.bottom;
    const high = Math.min(most, Math.max(this.ny * Math.min(side, 34), Math.min(plot, most) * 0.5));
    this.width = width;
    this.height = high + MARGIN.top + MARGIN.bottom;
    this.cw = plot / this.nx;
    this.ch = high / this.ny;
    for (const canvas of [this.base, this.over]) {
      canvas.width = this.width * devicePixelRatio;
      canvas.height = this.height * devicePixelRatio;
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${this.height}px`;
    }
    this.container.style.height = `${this.height}px`;
  }

  pen(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = FONT;
    return pen;
  }

  box(i, j) {
    const left = MARGIN.left + i * this.cw;
    const top = MARGIN.top + (this.ny - 1 - j) * this.ch;
    return [left, top, this.cw, this.ch];
  }

  cells(pen) {
    const { seen, points, values, low, high, scale } = this.map;
    const gap = this.cw > 12 && this.ch > 12 ? 1 : 0;
    const limit = hatch(pen, themed("--quiet"));
    const fault = hatch(pen, themed("--fault"));
    for (let i = 0; i < this.nx; i += 1) {
      for (let j = 0; j < this.ny; j += 1) {
        const row = points.at(i, j);
        if (row === null) continue;
        const [left, top, w, h] = this.box(i, j);
        const status = seen.part.status(row);
        const share = shareOf(values[row], low, high, scale);
        pen.globalAlpha = seen.shown.has(row) ? 1 : FAINT;
        if (status === "ok" && Number.isFinite(values[row])) pen.fillStyle = css(share);
        else pen.fillStyle = isFault(status) ? fault : limit;
        // Half a pixel more hides the seams between cells without a gap.
        const seam = gap === 0 && pen.globalAlpha === 1 ? 0.5 : -gap;
        pen.fillRect(left, top, w + seam, h + seam);
        pen.globalAlpha = 1;
        if (seen.isTied.has(row)) this.mark(pen, [left, top, w - gap, h - gap], row, inkOn(share));
      }
    }
  }

  /** A dot on a tied cell, a ring on the fastest. */
  mark(pen, [left, top, w, h], row, ink) {
    const radius = Math.min(5, Math.max(1.2, Math.min(w, h) * 0.17));
    const fastest = row === this.map.seen.best;
    pen.beginPath();
    pen.arc(left + w / 2, top + h / 2, fastest ? radius * 1.7 : radius, 0, 2 * Math.PI);
    if (fastest) {
      pen.strokeStyle = ink;
      pen.lineWidth = Math.max(1.5, radius * 0.6);
      pen.stroke();
    } else {
      pen.fillStyle = ink;
      pen.fill();
    }
  }

  axes(pen) {
    const { x, y } = this.map.points;
    pen.fillStyle = themed("--ink");
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const below = this.height - MARGIN.bottom + 5;
    for (const i of ticks(x.values, this.cw, 34)) {
      pen.fillText(String(x.values[i]), MARGIN.left + (i + 0.5) * this.cw, below);
    }
    pen.fillText(x.name, MARGIN.left + (this.nx * this.cw) / 2, below + 18);
    if (!y) return;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const j of ticks(y.values, this.ch, 20)) {
      pen.fillText(String(y.values[j]), MARGIN.left - 5, MARGIN.top + (this.ny - j - 0.5) * this.ch);
    }
    pen.save();
    pen.translate(9, MARGIN.top + (this.ny * this.ch) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(y.name, 0, 0);
    pen.restore();
  }

  /** Frame a row's place; null takes the frame away. */
  cursor(row) {
    const pen = this.pen(this.over);
    if (row === null) return;
    const [i, j] = this.map.points.placeOf(row);
    if (i < 0 || j < 0) return;
    const [left, top, w, h] = this.box(i, j);
    for (const [colour, width, out] of [[themed("--paper"), 4, 2], [themed("--accent"), 2, 2]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.strokeRect(left - out, top - out, w + 2 * out, h + 2 * out);
    }
  }

  rowAt(event) {
    const frame = this.over.getBoundingClientRect();
    const i = Math.floor((event.clientX - frame.left - MARGIN.left) / this.cw);
    const up = Math.floor((event.clientY - frame.top - MARGIN.top) / this.ch);
    const j = this.ny - 1 - up;
    return i < 0 || j < 0 || i >= this.nx || j >= this.ny ? null : this.map.points.at(i, j);
  }
}

/** Which values get a label: as many as have room, at even distances. */
function ticks(values, side, room) {
  const longest = Math.max(...values.map((v) => String(v).length)) * 7 + 6;
  const step = Math.max(1, Math.ceil(Math.max(room === 34 ? longest : room, 14) / side));
  return values.map((_, i) => i).filter((i) => i % step === 0);
}

/** Stripes, for cells that have no time. */
function hatch(pen, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const ink = tile.getContext("2d");
  ink.fillStyle = themed("--hatch");
  ink.fillRect(0, 0, 6, 6);
  ink.strokeStyle = colour;
  ink.lineWidth = 1;
  ink.beginPath();
  for (const shift of [-6, 0, 6]) {
    ink.moveTo(shift, 6);
    ink.lineTo(shift + 6, 0);
  }
  ink.stroke();
  return pen.createPattern(tile, "repeat");
}
