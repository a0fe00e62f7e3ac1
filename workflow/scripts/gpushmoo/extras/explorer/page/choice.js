// What the reader has chosen, and the link that holds it.

import { groupOf, sizeOf, varyingAxes } from "explorer/select.js";

const PLAIN = ["kernel", "dtype", "variant", "size", "cache", "timing", "device", "x", "y"];
const DEFAULTS = { show: "bandwidth", scale: "linear", threads: "", only: "", near: "", cell: "", sort: "", fix: "" };

/** The choice in a link's fragment; what it does not say is empty. */
export function fromFragment(fragment) {
  const said = new URLSearchParams(fragment.replace(/^#/, ""));
  const choice = { ...DEFAULTS };
  for (const name of [...PLAIN, ...Object.keys(DEFAULTS)]) choice[name] = said.get(name) ?? DEFAULTS[name] ?? "";
  return choice;
}

/** The fragment of a link; what is by default does not stand in it. */
export function toFragment(choice) {
  const said = new URLSearchParams();
  for (const name of PLAIN) if (choice[name]) said.set(name, choice[name]);
  for (const [name, value] of Object.entries(DEFAULTS)) if (choice[name] !== value) said.set(name, choice[name]);
  return `#${said}`;
}

/** The values of axes that are held, as a mapping: from `block_x:32,unroll:2`. */
export function heldAxes(choice) {
  const pairs = choice.fix.split(",").filter(Boolean).map((text) => text.split(":"));
  return Object.fromEntries(pairs.map(([axis, value]) => [axis, Number(value)]));
}

export function heldText(held) {
  return Object.entries(held).map(([axis, value]) => `${axis}:${value}`).join(",");
}

function valid(value, offered) {
  return offered.includes(value) ? value : offered[0] ?? "";
}

const different = (values) => [...new Set(values)];

/** What can be chosen of each, where what stands before it is as in `choice`. */
export function offers(sets, choice) {
  const parts = sets.flatMap((set) => set.index.parts);
  const kernels = different(parts.map((p) => p.kernel)).sort();
  const ofKernel = parts.filter((p) => p.kernel === choice.kernel);
  const groups = ofKernel.filter((p) => p.dtype === choice.dtype).flatMap((p) => p.groups);
  const ofVariant = groups.filter((g) => g.variant === choice.variant);
  const ofSize = ofVariant.filter((g) => sizeOf(g) === choice.size);
  const ofState = ofSize.filter((g) => g.cache_state === choice.cache);
  const largest = (a, b) => b.height * b.width - a.height * a.width || b.height - a.height;
  return {
    kernel: kernels,
    dtype: different(ofKernel.map((p) => p.dtype)),
    variant: different(groups.map((g) => g.variant)),
    size: different([...ofVariant].sort(largest).map(sizeOf)),
    cache: different(ofSize.map((g) => g.cache_state)),
    timing: different(ofState.map((g) => g.timing_mode)),
    device: different(ofState.filter((g) => g.timing_mode === choice.timing).map((g) => g.device_name)),
  };
}

/** What a reader sees first: the first group of the report's first page; without a report the largest over two axes. */
function firstGroup(sets) {
  const { first } = sets[0].index;
  if (first) {
    const { kernel, dtype, variant, cache_state, timing_mode, device_name } = first;
    return { kernel, dtype, variant, size: sizeOf(first), cache: cache_state, timing: timing_mode, device: device_name };
  }
  // Of equally many cells those of the larger problem, and of the warm cache.
  const weight = ({ part, group: g }) =>
    (part.axes.length === 2 ? 1e9 : 0) + (g.to - g.from) + 1e-3 * Math.log2(g.height * g.width) + (g.cache_state === "warm" ? 1e-4 : 0);
  const all = sets[0].index.parts.flatMap((part) => part.groups.map((group) => ({ part, group })));
  const { part, group } = all.reduce((best, one) => (weight(one) > weight(best) ? one : best));
  return { kernel: part.kernel, dtype: part.dtype, variant: group.variant, size: sizeOf(group), cache: group.cache_state };
}

/** The choice with every name that nothing has replaced by one that there is. */
export function settled(sets, asked) {
  const choice = { ...asked, ...(asked.kernel ? {} : firstGroup(sets)) };
  for (const name of ["kernel", "dtype", "variant", "size", "cache", "timing", "device"]) {
    choice[name] = valid(choice[name], offers(sets, choice)[name]);
  }
  return choice;
}

/** The choice with axes that the group has, after its part was read. */
export function settledAxes(part, asked) {
  const choice = { ...asked };
  const group = groupOf(part, choice);
  const names = group === null ? [] : varyingAxes(part, group).map((axis) => axis.name);
  choice.x = valid(choice.x, inOrder(names));
  const rest = inOrder(names).filter((name) => name !== choice.x);
  choice.y = choice.y === "none" ? "none" : valid(choice.y, rest);
  const held = heldAxes(choice);
  const kept = Object.entries(held).filter(([axis]) => names.includes(axis) && ![choice.x, choice.y].includes(axis));
  choice.fix = heldText(Object.fromEntries(kept));
  return choice;
}

/** The two longest axes by name, then the others. */
function inOrder(names) {
  return [...names.slice(0, 2).sort(), ...names.slice(2)];
}
