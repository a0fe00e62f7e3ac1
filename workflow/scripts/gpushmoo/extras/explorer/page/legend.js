// What the colours and marks of a map mean.

import { gradient } from "explorer/colours.js";
import { make } from "explorer/dom.js";
import { isFault, meaning } from "explorer/statuses.js";

/** The scale of a map, as drawn. */
export function scaleBar(map, quantity, choice) {
  if (!Number.isFinite(map.low)) return make("p", { class: "quiet" }, "No cell has a value.");
  const middle = choice.scale === "log" && map.low > 0 ? Math.sqrt(map.low * map.high) : (map.low + map.high) / 2;
  const label = `${quantity.label}${quantity.unit ? `, ${quantity.unit}` : ""}`;
  const ends = [map.low, middle, map.high].map((v) => make("span", {}, quantity.bare(v)));
  if (map.fromHalf && choice.scale === "linear") ends[0].prepend("≤ ");
  return make(
    "div",
    { class: "scale" },
    make("span", { class: "scale-name" }, `${label}${choice.scale === "log" ? " (logarithmic)" : ""}`),
    make("div", { class: "scale-bar", style: `background: ${gradient()}` }),
    make("div", { class: "scale-ends" }, ...ends),
  );
}

/** The marks, and the statuses that cells of the group have. */
export function markList(seen) {
  const statuses = [...new Set(seen.all.map((row) => seen.part.status(row)))].filter((s) => s !== "ok").sort();
  const items = [
    make("li", {}, make("span", { class: "key ring" }), "the fastest"),
    make("li", {}, make("span", { class: "key dot" }), "tied with it"),
    ...statuses.map((status) =>
      make("li", {}, make("span", { class: `key ${isFault(status) ? "fault" : "limit"}` }), `${status}: ${meaning(status)}`),
    ),
  ];
  return make("ul", { class: "marks" }, ...items);
}
