// The controls above the map: what is shown, over which axes, through which filters.

import { heldAxes, heldText, offers } from "explorer/choice.js";
import { make } from "explorer/dom.js";
import { QUANTITIES, known } from "explorer/quantities.js";
import { meaning } from "explorer/statuses.js";

const LABELS = { kernel: "Kernel", dtype: "Type", variant: "Variant", size: "Size", cache: "Cache", timing: "Timing mode", device: "Device" };
const NEAR = "2";

function field(id, label, control) {
  control.id = `choose-${id}`;
  return make("div", { class: "field" }, make("label", { for: control.id }, label), control);
}

function select(id, label, value, options, change) {
  const control = make("select", { change: (event) => change(event.target.value) });
  for (const [key, text] of options) {
    control.append(make("option", { value: key, selected: key === value }, text));
  }
  return field(id, label, control);
}

const plain = (values) => values.map((v) => [String(v), String(v)]);

function groupFields(sets, choice, update) {
  const offered = offers(sets, choice);
  return Object.entries(LABELS)
    .filter(([name]) => !["timing", "device"].includes(name) || offered[name].length > 1)
    .map(([name, label]) => {
      const named = offered[name].map((v) => [v, name === "size" ? v.replace("x", " × ") : v]);
      return select(name, label, choice[name], named, (value) => update({ [name]: value }));
    });
}

function axisFields(seen, choice, update) {
  const names = seen.axes.map((axis) => axis.name).sort();
  const fields = [];
  if (names.length > 1) {
    // The two change places when one is given the other's axis.
    const swap = (mine, other) => (axis) => update(axis === choice[other] ? { [mine]: axis, [other]: choice[mine] } : { [mine]: axis });
    fields.push(select("x", "Across", choice.x, plain(names), swap("x", "y")));
    const upward = [...plain(names.filter((n) => n !== choice.x || choice.y === n)), ["none", "none: a curve"]];
    fields.push(select("y", "Upward", choice.y, upward, swap("y", "x")));
  }
  const held = heldAxes(choice);
  for (const { name, values } of seen.axes.filter((axis) => ![choice.x, choice.y].includes(axis.name))) {
    const options = [["", "the fastest"], ...plain(values)];
    const change = (value) => {
      const { [name]: _, ...others } = held;
      update({ fix: heldText(value === "" ? others : { ...others, [name]: value }) });
    };
    fields.push(select(`axis-${name}`, name, name in held ? String(held[name]) : "", options, change));
  }
  return fields;
}

function colourFields(seen, choice, update) {
  const names = known(seen);
  const quantities = names.map((name) => [name, QUANTITIES[name].label]);
  return [
    ...(names.length > 1 && choice.y && choice.y !== "none" ? [select("show", "Colour", choice.show, quantities, (show) => update({ show }))] : []),
    select("scale", "Scale", choice.scale, [["linear", "linear"], ["log", "logarithmic"]], (scale) => update({ scale })),
  ];
}

function filterFields(seen, choice, update) {
  const { part, all } = seen;
  const statuses = [...new Set(all.map((row) => part.status(row)))].sort();
  // A field and no list: a group has hundreds of numbers of threads, and as many options would be slow.
  const threads = make("input", {
    type: "number", min: "1", value: choice.threads, placeholder: "all",
    change: (event) => event.target.checkValidity() && update({ threads: event.target.value }),
  });
  const fields = [field("threads", "Threads in a block", threads)];
  if (statuses.length > 1) {
    const named = statuses.map((status) => [status, `${status}: ${meaning(status)}`]);
    fields.push(select("only", "Status", choice.only, [["", "all"], ...named], (only) => update({ only })));
  }
  const share = make("input", {
    type: "number", min: "0", max: "100", step: "0.1", value: choice.near || NEAR, id: "choose-near-share",
    "aria-label": "Percent of the best", disabled: choice.near === "",
    change: (event) => event.target.checkValidity() && event.target.value !== "" && update({ near: event.target.value }),
  });
  const near = make("input", {
    type: "checkbox", id: "choose-near", checked: choice.near !== "",
    change: (event) => update({ near: event.target.checked ? share.value || NEAR : "" }),
  });
  fields.push(
    make("div", { class: "field check" }, near, make("label", { for: "choose-near" }, "Within"), share, make("label", { for: "choose-near" }, "% of the best for all types")),
  );
  if (choice.threads || choice.only || choice.near) {
    fields.push(make("button", { type: "button", id: "clear", click: () => update({ threads: "", only: "", near: "" }) }, "All cells"));
  }
  return fields;
}

/** Draw the controls anew, with the focus where it was. `update(change)` is told of choices. */
export function drawControls(form, sets, seen, choice, update) {
  const focused = form.contains(document.activeElement) ? document.activeElement.id : null;
  const row = (legend, fields) => make("fieldset", {}, make("legend", { class: "unseen" }, legend), ...fields);
  // What is folded stays as the reader left it; a filter that is set is seen.
  const open = document.getElementById("more")?.open || Boolean(choice.threads || choice.only || choice.near || choice.fix);
  const more = seen === null ? [] : [
    make(
      "details",
      { id: "more", open },
      make("summary", {}, "Axes, colour, filters"),
      row("Axes and colour", [...axisFields(seen, choice, update), ...colourFields(seen, choice, update)]),
      row("Only show", filterFields(seen, choice, update)),
    ),
  ];
  form.replaceChildren(row("Group", groupFields(sets, choice, update)), ...more);
  if (focused) document.getElementById(focused)?.focus();
}
