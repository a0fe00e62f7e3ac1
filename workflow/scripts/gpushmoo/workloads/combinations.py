"""Looks through the combinations of a space: which of them a kernel's rule `valid` refuses.

There may be a million of them, of which a hundred are valid. So each is looked at once, and what is
kept is the places of the valid ones.

A refused combination is a row of the results, as long as a job has at most MOST_ROWS of them. Of
more, none is a row, and they are counted.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.display import one_line
from ..core.errors import WorkloadError
from ..core.space import Cell, ShardSpace, Version, at_point
from .contract import Workload

# Rows of refused combinations. A map of shapes is complete with them, and a table can be read.
MOST_ROWS = 10_000
# More versions than any run may compile.
_MOST_VERSIONS = 1_000_000
# Combinations from one report to the next.
_REPORTED = 20_000

# Called with a sentence on work that goes on.
Tell = Callable[[str], None]


@dataclass
class Combinations:
    """What a rule lets pass: `places` of cells in the space, in order, and their `versions`.

    The rule failed for `failed` of these cells, whose rows say so. It refuses `invalid` others, of
    which the first MOST_ROWS are at the places `refused`. `first` is the first reason,
    `first_failure` the first error. Versions are those of a kernel with `compile_axes` alone.
    """

    places: array[int] = field(default_factory=lambda: array("Q"))
    refused: array[int] = field(default_factory=lambda: array("Q"))
    versions: set[Version] = field(default_factory=set)
    failed: int = 0
    invalid: int = 0
    first: str | None = None
    first_failure: str | None = None

    @property
    def places_of_rows(self) -> list[int]:
        """The places of all cells that have a row: of many refused ones none, unless all are."""
        return sorted([*self.places, *self._rows_of_refused])

    @property
    def unlisted(self) -> int:
        """How many refused combinations have no row."""
        return self.invalid - len(self._rows_of_refused)

    @property
    def _rows_of_refused(self) -> Sequence[int]:
        return self.refused if self.invalid <= MOST_ROWS or not self.places else ()

    def fault(self, valid_is: str) -> str | None:
        """Why nothing can be measured, as a clause; None if something can.

        `valid_is` is what sentences call the rule.
        """
        if self.failed > MOST_ROWS:
            return (
                f"{valid_is} fails for more than {MOST_ROWS:,} combinations: {self.first_failure}"
            )
        if len(self.places) > self.failed:
            return None
        if self.first is None or self.failed:
            return self.first_failure
        return (
            f"{valid_is} refuses every cell (the first: {one_line(self.first)}); sweep other "
            "values, or repair it"
        )


def look_through(
    workload: Workload,
    space: ShardSpace,
    values: Mapping[str, Sequence[int]],
    tell: Tell | None = None,
    until_valid: bool = False,
) -> Combinations:
    """Ask the kernel's rule about each combination of a space whose axes have these values.

    `tell` is called with how far that is. Ends early if the rule fails for very many, if they are
    of more versions than any run has, and on demand at the first valid one.
    """
    found = Combinations()
    blocks = len(space.rounds) * len(space.variants)
    total = math.prod(map(len, values.values()), start=blocks)
    for place, cell in enumerate(_candidates(workload, space, values)):
        if tell is not None and place % _REPORTED == 0:
            looked = f"looked through {place:,} of {total:,} combinations"
            tell(f"{workload.name} {space.dtype}: {looked}, {len(found.places):,} are valid")
        if cell is None or not _is_kept(found, workload, place, cell):
            found.invalid += 1
            if len(found.refused) < MOST_ROWS:
                found.refused.append(place)
        if found.failed > MOST_ROWS or len(found.versions) > _MOST_VERSIONS:
            break
        if until_valid and len(found.places) > found.failed:
            break
    if found.refused:
        [first] = space.cells_at(workload.name, values, found.refused[:1])
        found.first = refusal_of(workload, first)
    return found


def _candidates(
    workload: Workload, space: ShardSpace, values: Mapping[str, Sequence[int]]
) -> Iterator[Cell | None]:
    """The cells of a space in their order; None for one that a quick rule refuses."""
    names = sorted(values)
    passes = workload.quick_rule(names)
    if passes is None:
        yield from space.each_cell(workload.name, values)
        return
    numbers = [values[name] for name in names]
    labels = [[workload.label_of(name, value) for value in values[name]] for name in names]
    for base in space.bases(workload.name):
        points = zip(itertools.product(*numbers), itertools.product(*labels), strict=True)
        for point, labelled in points:
            try:
                found = passes(*labelled)
                is_refused = not found and found is not None
            except Exception:  # `valid` says why
                is_refused = False
            yield None if is_refused else at_point(base, tuple(zip(names, point, strict=True)))


def _is_kept(found: Combinations, workload: Workload, place: int, cell: Cell) -> bool:
    """Whether a cell is valid or its rule fails, which is noted."""
    try:
        if refusal_of(workload, cell) is not None:
            return False
        if workload.compile_axes:
            found.versions.add(workload.version(cell))
    except WorkloadError as err:
        found.failed += 1
        found.first_failure = found.first_failure or str(err)
    found.places.append(place)
    return True


def refusal_of(workload: Workload, cell: Cell) -> str | None:
    """Why the kernel's rule refuses a cell; None if it is valid.

    Raises WorkloadError, which also names the combination if the rule raises an error.
    """
    try:
        return workload.valid(cell)
    except WorkloadError as err:
        if err.__cause__ is None:  # what it returns is wrong in any cell
            raise
        shown = ", ".join(f"{axis}={workload.label_of(axis, value)}" for axis, value in cell.params)
        raise WorkloadError(
            f"{err}, for {shown}; have {workload.valid_is} refuse this combination before, or "
            "leave the value out"
        ) from err
