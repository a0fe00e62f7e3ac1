"""How often runs of the same sweep name the same launch, by three rules, and what each loses.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/stable_choice.py OUT.json FOLDER ... [--together 1 5]

Each FOLDER holds runs of the same sweeps: saved ones (``run01-transpose``, ...)
or a recorded set (``r00``, ``r01``, ... packed or not). Several runs are combined as repeats of one
run. There is one choice for each device, kernel, variant, type and class of sizes. The three rules
are judged on the largest size of the class. The other runs show how much a launch loses there: its
typical time beside the least typical one. Needs no device.
"""

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.run_quality import dataset_provenance
from gpushmoo.core.display import percent
from gpushmoo.core.run_plan import fully_sampled
from gpushmoo.core.space import shard_name
from gpushmoo.exporting.choices import CONDITIONS, TARGET, Choice, choices, groups_of
from gpushmoo.exporting.vocabulary import t4_metadata
from gpushmoo.storage.dataset import SAMPLES, partitions, read_cells
from gpushmoo.storage.store import open_shard, unpacked, write_parquet

RULES = ("fastest", "smallest of the tied", "shipped")


def runs_in(folder: Path) -> dict[str, list[Path]]:
    """The runs of each sweep in `folder`, in order."""
    found = defaultdict(list)
    for run in sorted(unpacked(folder).glob("r[u0-9]*")):
        found[run.name.partition("-")[2]].append(run)
    return found


def chosen(runs: Sequence[Path]) -> tuple[list[Choice], list[dict[str, Any]]]:
    """The choices of `runs` as repeats of one run, and the provenance."""
    with tempfile.TemporaryDirectory() as place:
        files: list[Path] = []
        survivors: dict[Path, pa.Array] = {}
        for repeat, run in enumerate(runs, 1):
            for path in sorted(run.rglob("*.parquet")):
                shard = open_shard(path)
                params = shard.metadata["params"]
                measure = params["measure"] | {"repeats": len(runs)}
                params |= {"repeat": repeat, "measure": measure}
                table, kept = shard.table(), Path(*path.parts[-3:-1])
                # Later repeats have what the race of the first one left.
                if repeat == 1:
                    survivors[kept] = table.filter(fully_sampled(table, measure))["cell_key"]
                else:
                    table = table.filter(pc.is_in(table["cell_key"], survivors[kept]))
                files.append(Path(place) / kept / f"{shard_name(0, 1, repeat)}.parquet")
                files[-1].parent.mkdir(parents=True, exist_ok=True)
                write_parquet(table, files[-1], shard.metadata | {"params": params})
        dataset = Path(place) / "dataset"
        aggregate(sorted(files), dataset)
        groups = [
            group
            for where in partitions(dataset)
            for group in groups_of(read_cells(dataset, where).drop(columns=list(SAMPLES)))
            if group.ok and group.axes
        ]
        return choices(groups), dataset_provenance(dataset)


def names(choice: Choice) -> dict[str, Any]:
    """What each of RULES names at the largest size of a class."""
    main = choice.main
    tied = min(main.tied, key=lambda point: (main.ok[point]["threads_per_block"], point))
    return dict(zip(RULES, (next(iter(main.ok)), tied, choice.point), strict=True))


def judged(runs: Sequence[Path], together: int) -> Iterator[dict[str, Any]]:
    """For each choice: how many names each rule has for it, and what these lose."""
    made: dict[tuple[str, ...], list[Choice]] = defaultdict(list)
    for first in range(0, len(runs) - together + 1, together):
        for choice in chosen(runs[first : first + together])[0]:
            where = (choice.size_class, *(choice.main.key[c] for c in CONDITIONS))
            made[*choice.target.values(), *where].append(choice)
    for key, found in made.items():
        told = [names(choice) for choice in found]
        times = [choice.main.contest.times for choice in found]
        row: dict[str, Any] = dict(zip((*TARGET, "size_class", *CONDITIONS), key, strict=True))
        row |= {"together": together, "runs": len(found), "rules": {}}
        for rule in RULES:
            lost = []
            for n, named in enumerate(told):
                others = [t for k, t in enumerate(times) if k != n]
                launches = frozenset.intersection(*map(frozenset, others))
                typical = {point: median(t[point] for t in others) for point in launches}
                if named[rule] in typical:
                    lost.append(typical[named[rule]] / min(typical.values()) - 1)
            counts = Counter(named[rule] for named in told)
            row["rules"][rule] = {
                "names": len(counts),
                "usual": max(counts.values()),
                "lost": round(median(lost), 4),
                "lost_most": round(max(lost), 4),
            }
        yield row


def main() -> None:
    """Judge all sweeps of all folders."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--together", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    rows, shards = [], []
    for folder in given.folders:
        for sweep, runs in runs_in(folder).items():
            shards += chosen(runs[:1])[1]
            for together in given.together:
                if len(runs) >= 2 * together:
                    rows += judged(runs, together)
                    print(folder.name, sweep, together, len(rows), flush=True)
    about = t4_metadata(shards)["metadata"]
    given.out.write_text(json.dumps({"provenance": about, "choices": rows}) + "\n")
    for together in given.together:
        for rule in RULES:
            told = [row["rules"][rule] for row in rows if row["together"] == together]
            one = sum(t["names"] == 1 for t in told)
            lost = [
                *map(percent, (median(t["lost"] for t in told), max(t["lost_most"] for t in told)))
            ]
            print(together, rule, f"{one} of {len(told)}", *lost)


if __name__ == "__main__":
    main()
