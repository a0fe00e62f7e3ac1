"""A few launches that serve all sizes within a loss, and which of them a number of elements takes.

One portfolio for each device, kernel, variant and condition serves all element types. It has as few
launches as keep the bound at every size measured, then as few thresholds: all sets are tried. Of
launches that serve the same sizes the plainest is taken whose worst loss is least, in steps of
MARGIN. The files of FILES name the same launch for each number of elements.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np

from ..analysis.best import MARGIN, cost_of
from ..core.display import number_of, percent
from .choices import CONDITIONS, TARGET, USUAL, ExportError, ExportGroup, Point
from .formats import NAMESPACE, block_comment, guarded, identifier, is_int, literal, owned

# The most launches; and partial sets that are looked at: recorded sweeps need a few dozen.
MOST, _TRIES = 8, 100_000
FILES = ("portfolio.h", "portfolio.json", "portfolio.py")
# What a portfolio is for, besides all types.
_TARGET = (*TARGET[:-1], *CONDITIONS)
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Rule:
    """Which launch of a portfolio the sizes of an element type take.

    `numbers` are those of launches, from 0: the first for fewer elements than `below[0]`, the last
    from `below[-1]` on. `losses` are by measured number of elements, `half_width` is a median's.
    `left_out` are losses at inner sizes by portfolios made without them, None if not verified.
    """

    below: Sequence[int]
    numbers: Sequence[int]
    losses: Mapping[int, float]
    half_width: float
    left_out: dict[int, float | None] = field(default_factory=dict)

    def number(self, elements: int) -> int:
        """The number of the launch for so many elements."""
        return self.numbers[bisect_right(self.below, elements)]

    @property
    def claim(self) -> str:
        """Its worst losses at measured sizes and at those left out, in words."""
        judged = "not judged at others"
        known = self.left_out.values()
        if lost := [one for one in known if one is not None]:
            judged = f"left out {percent(median(lost))}, at most {percent(max(lost))}"
            judged += f" ({len(lost)} of {len(known)} inner sizes)"
        most = round(max(self.losses.values()), 4)
        sizes = number_of(len(self.losses), "size")
        claim = f"loses at most {percent(most)}" if most else "the fastest"
        return f"{claim} at {sizes}, by medians ± {percent(self.half_width)}; {judged}"


@dataclass(frozen=True)
class Portfolio:
    """Launches of one version of a kernel, and a rule for each element type."""

    target: Mapping[str, str]
    launches: Sequence[Point]
    rules: Mapping[str, Rule]

    def launch(self, dtype: str, elements: int) -> dict[str, int]:
        """The launch parameters for so many elements of that type."""
        return dict(self.launches[self.rules[dtype].number(elements)])

    @property
    def claims(self) -> list[str]:
        """What it is, and how well each of its rules does."""
        rules = (f"{dtype}: {rule.claim}" for dtype, rule in self.rules.items())
        fewest = f"k = {len(self.launches)}, the fewest launches within the loss"
        return [f"{_named(self.target)}, {fewest}", *rules]


def portfolios(
    groups: Iterable[ExportGroup], k: int = 3, loss: float = 0.02
) -> tuple[list[Portfolio], list[str]]:
    """Those of `groups` with ``ok`` cells and axes, and a sentence for each that cannot be.

    Raises ExportError if none can.
    """
    if not 1 <= k <= MOST or not 0 <= loss < math.inf:
        raise ExportError(f"k must be from 1 to {MOST}, loss a share such as 0.02 or 2%.")
    kinds: dict[tuple[str, ...], list[ExportGroup]] = {}
    for group in groups:
        kinds.setdefault(tuple(str(group.key[c]) for c in _TARGET), []).append(group)
    made, missed = [], []
    for key, members in sorted(kinds.items()):
        target = dict(zip(_TARGET, key, strict=True))
        losses = Losses.of(members)
        if found := losses.chosen(k, loss):
            points = [losses.launches[n] for n in found[0]]
            made.append(Portfolio(target, points, losses.rules(found, k, loss)))
        else:
            reached = losses.least(k)
            enough = losses.covers(MOST, loss)
            most = f"loses {math.ceil(1000 * reached) / 10} %" if reached < math.inf else "fails"
            needed = f"k = {len(enough[0])}" if enough else f"no k up to {MOST}"
            needed += f" keeps to {percent(loss)}"
            missed.append(f"{_named(target)} is left out: k = {k} {most}; {needed}.")
    if missed and not made:
        raise ExportError(" ".join(missed))
    return made, missed


def _named(target: Mapping[str, str]) -> str:
    unusual = [target[c] for c in CONDITIONS if target[c] not in USUAL]
    return ", ".join(["{kernel} ({variant}) on {device_name}".format_map(target), *unusual])


@dataclass(frozen=True)
class Losses:
    """By launch, the plainest first, and place: the share by which it is slower than the fastest.

    A place is a type and a number of elements; of shapes with as many the worst counts. Infinite
    where the launch was not verified.
    """

    launches: Sequence[Point]
    places: Sequence[tuple[str, int]]
    lost: np.ndarray
    half_widths: Sequence[float]

    @classmethod
    def of(cls, groups: Iterable[ExportGroup]) -> Losses:
        """The losses of groups that differ in type and size alone."""
        at: dict[tuple[str, int], list[ExportGroup]] = {}
        for group in groups:
            elements = int(group.key["height"]) * int(group.key["width"])
            at.setdefault((str(group.key["dtype"]), elements), []).append(group)
        members = [at[place] for place in sorted(at)]
        plain = {x: g.contest.plainness(x) for own in members for g in own for x in g.ok}
        launches = sorted(plain, key=lambda point: plain[point])
        slower = [[[g.contest.slower(p) for p in launches] for g in own] for own in members]
        lost = np.stack([np.array(own, float).max(axis=0) for own in slower], axis=1)
        widths = [max(cost_of(g.fastest, g.fastest).high for g in own) / 2 for own in members]
        return cls(launches, sorted(at), np.nan_to_num(lost, nan=math.inf), widths)

    @property
    def spans(self) -> dict[str, list[int]]:
        """The numbers of each type's places, in the order of size."""
        by_type = groupby(enumerate(self.places), key=lambda place: place[1][0])
        return {dtype: [n for n, _ in own] for dtype, own in by_type}

    def least(self, k: int) -> float:
        """The least bound that `k` launches keep; infinite if they do not work everywhere."""
        bounds = np.unique(self.lost[np.isfinite(self.lost)])
        n = bisect_left(bounds, 1, key=lambda bound: len(self.covers(k, bound)[:1]))
        return float(bounds[n]) if n < len(bounds) else math.inf

    def chosen(self, k: int, loss: float) -> tuple[list[int], Numbers] | None:
        """Launches, and for each place which of these; None where `k` do not keep the bound."""
        found = []
        for cover in self.covers(k, loss):
            numbers = np.array(self._assigned(cover, loss)[2])
            worst = (self.lost[:, numbers == n].max(axis=1) for n in range(len(cover)))
            steps = (np.where(each > loss, math.inf, np.ceil(each / MARGIN)) for each in worst)
            best = sorted({int(np.argmin(each)) for each in steps})
            changes, most, path = self._assigned(best, loss)
            found.append((changes, math.ceil(most / MARGIN), best, path))
        return min(found)[2:] if found else None

    def _assigned(self, launches: Sequence[int], loss: float) -> tuple[int, float, Numbers]:
        """The fewest changes of launch within types, the least worst loss then, and the path."""
        changes = 0
        worst = 0.0
        numbers = Numbers()
        for span in self.spans.values():
            ways = [(0, 0.0, Numbers())]
            for column in self.lost[np.ix_(launches, span)].T.tolist():
                ways = [
                    min((c + (p[-1:] not in ((), (n,))), max(w, x), (*p, n)) for c, w, p in ways)
                    for n, x in enumerate(column)
                    if x <= loss
                ]
            more, most, path = min(ways)
            changes += more
            worst = max(worst, most)
            numbers = (*numbers, *path)
        return changes, worst, numbers

    def covers(self, k: int, loss: float) -> list[Numbers]:
        """The smallest sets of at most `k` launches that keep the bound."""
        bits = [1 << n for n in range(len(self.places))]
        fits = (self.lost <= loss).tolist()
        served = {
            sum(b for b, ok in zip(bits, row, strict=True) if ok): n
            for n, row in reversed([*enumerate(fits)])
        }
        # No smallest set needs a launch whose places another one serves as well.
        masks = dict[int, int]()
        for mask in sorted(served, key=int.bit_count, reverse=True):
            if all(mask & other != mask for other in masks):
                masks[mask] = served[mask]
        # Places that few launches serve leave the least choice.
        rare = sorted(bits, key=lambda bit: sum(bool(mask & bit) for mask in masks))
        tries = iter(range(_TRIES))
        for count in range(1, min(k, len(masks)) + 1):
            if found := list(_covering([*masks], rare, count, tries)):
                return [tuple(masks[mask] for mask in cover) for cover in found]
        return []

    def rules(self, found: tuple[list[int], Numbers], k: int, loss: float) -> dict[str, Rule]:
        """The rule of each type, judged on its inner sizes by portfolios made without them."""
        made = {dtype: self._rule(*found, dtype) for dtype in self.spans}
        inner = [n for span in self.spans.values() for n in span[1:-1]]
        for elements in sorted({self.places[n][1] for n in inner}):
            kept = [n for n, (_, size) in enumerate(self.places) if size != elements]
            rest = replace(self, places=[self.places[n] for n in kept], lost=self.lost[:, kept])
            other = rest.chosen(k, loss)
            # Launches that keep the bound at all sizes keep it at fewer.
            assert other is not None
            for n in (n for n in inner if self.places[n][1] == elements):
                dtype = self.places[n][0]
                launch = other[0][rest._rule(*other, dtype).number(elements)]
                lost = float(self.lost[launch, n])
                made[dtype].left_out[elements] = lost if lost < math.inf else None
        return made

    def _rule(self, launches: Sequence[int], numbers: Numbers, dtype: str) -> Rule:
        """The rule of a type, before it is judged."""
        span = self.spans[dtype]
        changes = [n for n in span[1:] if numbers[n] != numbers[n - 1]]
        return Rule(
            [threshold(self.places[n - 1][1], self.places[n][1]) for n in changes],
            [numbers[n] for n in (span[0], *changes)],
            {self.places[n][1]: float(self.lost[launches[numbers[n]], n]) for n in span},
            median(self.half_widths[n] for n in span),
        )


def _covering(
    masks: Sequence[int], bits: Sequence[int], count: int, tries: Iterator[int]
) -> Iterator[Numbers]:
    """Sets of `count` masks that together hold all `bits`, each once."""
    if not bits:
        yield ()
        return
    if next(tries, None) is None:
        raise ExportError("portfolio: too many sets of launches to try; take a smaller k.")
    most = max(((mask & sum(bits)).bit_count() for mask in masks), default=0)
    if count * most < len(bits):
        return
    left = [*masks]
    for mask in [mask for mask in masks if mask & bits[0]]:
        # All sets with this mask are found here.
        left.remove(mask)
        for rest in _covering(left, [bit for bit in bits if not bit & mask], count - 1, tries):
            yield mask, *rest


def threshold(low: int, high: int) -> int:
    """Between two sizes, near their geometric mean, in as few digits above one as it takes."""
    middle = math.isqrt(max(low, 1) * high - 1) + 1
    rounded = (round(middle, digits - len(str(middle))) for digits in range(2, 20))
    return next((near for near in rounded if low < near <= high), high)


def written(
    made: Sequence[Portfolio], about: Sequence[str], content: Mapping[str, Any]
) -> list[str]:
    """The texts of FILES: `about` stands on top of the programs, `content` beside the portfolios.

    Raises ExportError where two things would get the same name.
    """
    c = ["", "#include <stddef.h>"]
    told = []
    python = [f"#{line[2:]}" for line in block_comment(about)[:-1]]
    versions = {(one.target["kernel"], one.target["variant"]) for one in made}
    variants = Counter(kernel for kernel, _ in versions)
    owners = dict[str, str]()
    for one in made:
        device, kernel, variant, *conditions = one.target.values()
        parts = [NAMESPACE, device, kernel, *([variant] if variants[kernel] > 1 else [])]
        parts += [condition for condition in conditions if condition not in USUAL]
        stem = "_".join(map(identifier, parts))
        fields = {"number": "number"}
        launches = [dict(point) for point in one.launches]
        rules = []
        # A type may have an axis more than another.
        axes = sorted({axis for launch in launches for axis in launch})
        for axis in axes:
            owned(fields, [axis])
        rows = [[n, *(launch.get(x, 0) for x in axes)] for n, launch in enumerate(launches)]
        kind = "int" if all(is_int(value) for row in rows for value in row) else "long long"
        comment = block_comment(one.claims)
        c += ["", *comment, "typedef struct {"]
        c += [*(f"    {kind} {name};" for name in fields), f"}} {stem}_launch;"]
        c += [f"static const {stem}_launch {stem}_launches[] = {{"]
        c += [*(f"    {{{', '.join(map(literal, row))}}}," for row in rows), "};"]
        python += ["", "", *(f"#{line[2:]}" for line in comment[:-1])]
        for dtype, rule in one.rules.items():
            name = owned(owners, [*parts, dtype])
            last = rule.numbers[-1]
            c += [
                f"static inline {stem}_launch {name}(size_t elements)",
                "{",
                "    (void)elements;",
            ]
            python += ["", "", f"def {name}(elements):"]
            for size, number in zip(rule.below, rule.numbers, strict=False):
                c += [f"    if (elements < {literal(size)}) return {stem}_launches[{number}];"]
                python += [f"    if elements < {size}:\n        return {launches[number]}"]
            c += [f"    return {stem}_launches[{last}];", "}"]
            python += [f"    return {launches[last]}"]
            rules.append({"dtype": dtype, "function": name, **vars(rule)})
        told.append({**one.target, "launches": launches, "rules": rules})
    text = json.dumps({**content, "portfolios": told}, indent=1, allow_nan=False)
    return [guarded(c, "PORTFOLIO_H", about, c), f"{text}\n", "\n".join([*python, ""])]
