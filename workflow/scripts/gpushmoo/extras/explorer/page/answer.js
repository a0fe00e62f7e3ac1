// The answer, at the top: the best launch of a group, how sure that is, and what ties with it.

import { paramsText } from "explorer/detail.js";
import { make } from "explorer/dom.js";
import * as numbers from "explorer/numbers.js";

function filtered(choice) {
  const said = [];
  if (choice.threads) said.push(`of ${choice.threads} threads`);
  if (choice.only) said.push(`of status ${choice.only}`);
  if (choice.near) said.push(`within ${choice.near} % of the best for all types`);
  return said.length ? ` among cells ${said.join(", ")}` : "";
}

/** Fill `container` for the data set `set`; `named` says whether its name belongs there. */
export function answer(set, seen, choice, named) {
  const name = named ? [make("p", { class: "set" }, set.name)] : [];
  if (seen === null) return make("div", {}, ...name, make("p", {}, "This data set has no such group."));
  const { part, best, tied, ok } = seen;
  if (best === null) {
    const none = seen.rows.length === 0 ? "No cell passes the filters." : "No cell of this group was verified.";
    return make("div", {}, ...name, make("p", { class: "best" }, none));
  }
  const at = (column) => part.numbers(column)[best];
  const copy = at("vs_memcpy");
  const others = tied.length === 1
    ? `None of the other ${numbers.plural(ok - 1, "verified cell")} is tied with it`
    : `${numbers.whole(tied.length)} of ${numbers.plural(ok, "verified cell")} are statistically tied with the fastest`;
  const alone = filtered(choice) ? "It is the only one that is left" : "It is the only verified cell";
  const single = ok === 1 ? alone : others;
  return make(
    "div",
    { "data-best": paramsText(part, best), "data-tied": tied.length },
    ...name,
    make("p", { class: "best" }, make("span", { class: "launch" }, paramsText(part, best)), " ", make("span", { class: "speed" }, part.speedText(at("#speed")))),
    make(
      "p",
      {},
      `Fastest${filtered(choice)}. 95 % interval ${numbers.significant(at("#speed_low"))} to ${numbers.significant(at("#speed_high"))} ${part.merit.unit}, ` +
        `${numbers.seconds(at("median_s"))} a launch${Number.isFinite(copy) ? `, ${numbers.significant(copy, 3)} × memcpy` : ""}. ${single}.`,
    ),
  );
}
