"""Draws mutations of a run's shards and counts those that the aggregating step accepts.

    make mutations COUNT=1000 SEED=7

Each mutation changes one or two files of a complete run's shards (see `mutants`); none may be
accepted, each refusal must name a file that was changed, and none may be a raw exception. Mutation
number n of a seed is the same whatever came before it: ``--only n`` tries it alone.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from figures_file import parser_of, provenance, write_figures
from mutants import CLASSES, UNCHANGED, UNTELLABLE
from shards import ShardSet, make_shards, refusal


@dataclass(frozen=True)
class Failure:
    """A mutation that was not refused as it should be: `how` it went, and which one it was."""

    number: int
    how: str
    change: str
    files: tuple[str, ...]
    said: str


@dataclass
class Tally:
    """How many mutations there were by class and kind, and those that failed."""

    kinds: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def count(self, how: str) -> int:
        """Number of failures of a kind."""
        return sum(f.how == how for f in self.failures)


ACCEPTED, RAW, UNNAMED = "accepted", "refused by a raw exception", "refused without naming the file"


def try_mutations(shards: ShardSet, seed: str, numbers: Iterable[int], folder: Path) -> Tally:
    """Try mutations on copies of `shards` below `folder`; raises ValueError if these are refused.

    A mutation that would change nothing is drawn again.
    """
    if (sentence := refusal(shards)) is not None:
        raise ValueError(f"Shards that nobody changed are refused: {sentence}")
    tally = Tally()
    for number in numbers:
        rng = Random(f"{seed}/{number}")
        change = UNCHANGED
        while change == UNCHANGED:
            shutil.rmtree(folder, ignore_errors=True)
            mutant = shards.copied_to(folder)
            name = rng.choices(list(CLASSES), [weight for weight, _ in CLASSES.values()])[0]
            change, paths = CLASSES[name][1](mutant, rng)
        tally.classes[name] += 1
        tally.kinds[change.split(":")[0]] += 1
        how, said = _judge(mutant, paths)
        if how is not None:
            files = tuple(str(p.relative_to(folder)) for p in paths)
            tally.failures.append(Failure(number, how, change, files, said))
    return tally


def _judge(mutant: ShardSet, changed: list[Path]) -> tuple[str | None, str]:
    """How the aggregating step failed, None if it refused as it should; and what it said."""
    try:
        sentence = refusal(mutant)
    except Exception as err:
        return RAW, f"{type(err).__name__}: {err}"
    if sentence is None:
        return ACCEPTED, ""
    return (None if any(str(p) in sentence for p in changed) else UNNAMED), sentence


def main() -> None:
    """Read the command line; exit status 1 if a mutation was not refused as it should be."""
    parser = parser_of(__doc__, "mutations")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int, help="number of the one mutation to try")
    given = parser.parse_args()
    print(f"make mutations SEED={given.seed}", flush=True)
    numbers = range(1, given.count + 1) if given.only is None else [given.only]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpushmoo-mutations-") as folder:
        shards = make_shards(Path(folder) / "shards")
        tally = try_mutations(shards, given.seed, numbers, Path(folder) / "mutant")
    for failure in tally.failures:
        print(f"{failure.number}: {failure.how}: {failure.change}; {failure.said[:200]}")
    figures = _figures(given.seed, tally, time.monotonic() - began)
    write_figures(given.out, figures, _lines(figures))
    sys.exit(bool(tally.failures))


def _figures(seed: str, tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        **provenance(seed),
        "seconds": round(seconds, 1),
        "mutations": tally.classes.total(),
        "mutations_by_class": dict(sorted(tally.classes.items())),
        "mutations_by_kind": dict(sorted(tally.kinds.items())),
        "accepted": tally.count(ACCEPTED),
        "raw_exceptions": tally.count(RAW),
        "unnamed": tally.count(UNNAMED),
        "failures": [asdict(f) for f in tally.failures],
        "untellable": dict(UNTELLABLE),
    }


def _lines(figures: dict[str, Any]) -> list[str]:
    """A short text for the documentation."""
    classes = ", ".join(f"{n} {name}" for name, n in figures["mutations_by_class"].items())
    return [
        f"Mutations of {figures['date']}, commit {figures['commit'][:12]}, seed "
        f"{figures['seed']}: {figures['mutations']} ({classes}) in {figures['seconds']:.0f} s; "
        f"accepted: {figures['accepted']}, refused by a raw exception: "
        f"{figures['raw_exceptions']}, refused without naming the file: {figures['unnamed']}.",
    ]


if __name__ == "__main__":
    main()
