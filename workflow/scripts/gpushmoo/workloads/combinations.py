"""Check the combinations of a space by a kernel's rule `valid`, and keep the valid ones.

There may be a million combinations, of which a hundred are valid. So each is checked once, and only
the indices of valid ones are kept.

A rejected combination becomes a row of the results, as long as a job has at most MAX_ROWS of them.
If there are more, they are only counted.
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

# Most rows of rejected combinations. This suffices for complete maps of shapes, and a reader can
# still view the table.
MAX_ROWS = 10_000
# More versions than any run may compile.
_MAX_VERSIONS = 1_000_000
# Combinations between two progress reports.
_REPORTED = 20_000

# Function that receives a sentence on the progress.
Tell = Callable[[str], None]


@dataclass
class Combinations:
    """Result of a rule: indices of valid cells in the space (`places`), and their `versions`.

    The rule raised an error for `failed` of these cells, whose rows contain it. It rejects
    `invalid` other cells, of which the first MAX_ROWS are at `refused`. `first` is the first
    reason, and `first_failure` the first error. Only kernels with `compile_axes` have versions.
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
        """Indices of all cells with a row; rejected cells have rows only if all of them can."""
        return sorted([*self.places, *self._rows_of_refused])

    @property
    def unlisted(self) -> int:
        """Number of rejected combinations without a row."""
        return self.invalid - len(self._rows_of_refused)

    @property
    def _rows_of_refused(self) -> Sequence[int]:
        return self.refused if self.invalid <= MAX_ROWS or not self.places else ()

    def fault(self, valid_is: str) -> str | None:
        """Return why nothing can be measured, as a clause, or None.

        `valid_is` is the name of the rule in sentences.
        """
        if self.failed > MAX_ROWS:
            return f"{valid_is} fails for more than {MAX_ROWS:,} combinations: {self.first_failure}"
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
    """Check each combination of a space by the kernel's rule.

    Parameters
    ----------
    workload
        The kernel.
    space
        The space of one shard.
    values
        Values of each axis.
    tell
        Function that receives the progress.
    until_valid
        Whether to stop at the first valid combination.

    Returns
    -------
    The combinations. The search stops early if the rule fails very often, or if there are more
    versions than a run may have.
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
            if len(found.refused) < MAX_ROWS:
                found.refused.append(place)
        if found.failed > MAX_ROWS or len(found.versions) > _MAX_VERSIONS:
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
    """Yield the cells of a space in their order; None for cells that a quick rule rejects."""
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
            except Exception:  # `valid` returns the reason.
                is_refused = False
            yield None if is_refused else at_point(base, tuple(zip(names, point, strict=True)))


def _is_kept(found: Combinations, workload: Workload, place: int, cell: Cell) -> bool:
    """Return whether a cell is valid, or its rule fails, which is recorded."""
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
    """Return why the kernel's rule rejects a cell, or None if the cell is valid.

    If the rule raises an error, the WorkloadError also names the combination.
    """
    try:
        return workload.valid(cell)
    except WorkloadError as err:
        if err.__cause__ is None:  # A return value of a wrong type is the same for every cell.
            raise
        shown = ", ".join(f"{axis}={workload.label_of(axis, value)}" for axis, value in cell.params)
        raise WorkloadError(
            f"{err}, for {shown}; have {workload.valid_is} refuse this combination before, or "
            "leave the value out"
        ) from err
