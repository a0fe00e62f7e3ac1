"""Measures a sweep several times in fresh processes: does another run find its times again?

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/repeated_runs.py all --out runs --backend cuda --limit-s 280
    python experiments/benchmarks/repeated_runs.py plan --plan runs.pickle --backend cuda
    python experiments/benchmarks/repeated_runs.py measure --plan runs.pickle --out runs
    python experiments/benchmarks/repeated_runs.py table --out runs

``plan`` needs the environment and no device, ``measure`` a device and no Snakemake; ``all`` does
every step. The runs are alike, but for two whose samples are half and twice as long (the key
``launches_factor``), and those named planted, which hold the copies of planted/copy_planted alone
and do 3 % of the work twice. With ``--backend opencl`` give a smaller configuration, for example
``--config experiments/benchmarks/repeated_runs_cpu.yaml``. ``made-up N`` needs no device: it draws
N pairs of runs of a made-up GPU (tests/support/rowed.py) whose clock shows S(n) = c + n·t, and
needs ``tests/support:.`` in PYTHONPATH, too.

The table has, over all pairs of runs alike: the share of cells whose 95 % intervals are disjoint
and the share whose interval holds the other's median, apart for groups whose working set is 0.3 to
1 of the last cache; ordered pairs in which `compare` raises an alarm; and the change of a group's
median time when samples are half or twice as long.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import combinations, permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "gpu"))

# Length of samples, in the usual ones, by the name of a run.
FACTORS = {"half": 0.5, "twice": 2.0}
PLANTED = 0.03


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=("all", "plan", "measure", "table", "made-up"))
    parser.add_argument("number", nargs="?", type=int, default=200, help="pairs of made-up runs")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--config", type=Path, default=HERE / "repeated_runs.yaml")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--runs", type=int, default=4, help="runs alike")
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--json", type=Path, help="also write the table here")
    given = parser.parse_args()
    if given.step == "made-up":
        show(made_up(given.number), given.json)
        return
    if given.out is None and given.step != "plan":
        parser.error("--out is missing")
    plan = given.plan or given.out / "plan.pickle"
    if given.step in ("all", "plan"):
        from record_pairs import write_plan

        plan.parent.mkdir(parents=True, exist_ok=True)
        write_plan(plan, planned_runs(given.config, given.backend, given.runs))
    if given.step in ("all", "measure"):
        from record_pairs import measure

        measure(plan, given.out, given.limit_s)
    if given.step in ("all", "table"):
        show(table(given.out), given.json)


def planned_runs(config: Path, backend: str, runs: int) -> dict[str, Any]:
    """Plans as `record_pairs` measures them, and the runs: alike ones, then those of FACTORS."""
    import yaml
    from record_pairs import TEMPLATE, planned, write_planted

    raw = yaml.safe_load(config.read_text(encoding="utf-8"))
    folders = write_planted()
    plans = []
    for name, factor in {"usual": 1.0, **FACTORS}.items():
        own: dict[str, Any] = {"backend": backend, "measure": {"launches_factor": factor}}
        own |= {"kernel_folders": [str(folders[0].parent)]}
        plans.append({"run": name, **planned(raw, own, config.parent)})
    # Programs are the same, so that they are compiled once.
    for plan in plans[1:]:
        plan["builds"] = []
        plan["built_as"] = "usual"
    names = [(f"r{i:02}", "usual") for i in range(runs)]
    others = [(name, name) for name in FACTORS]
    sweeps = raw["kernels"].items()
    slower = [name for name, sweep in sweeps if sweep.get("kernel", name) == TEMPLATE.name]
    if slower:
        folder = folders[round(100 * PLANTED)].parent
        own = {"backend": backend, "kernel_folders": [str(folder)], "only": slower}
        plans.append({"run": "planted", **planned(raw, own, config.parent)})
        # By turns, so that a drift of the device meets both alike.
        among = [(f"planted-{i:02}", "planted") for i in range(runs)]
        names = [name for pair in zip(names, among, strict=True) for name in pair]
    middle = len(names) // 2
    return {"plans": plans, "runs": [*names[:middle], *others, *names[middle:]]}


@dataclass(frozen=True)
class Found:
    """The figures of the table; shares are 0 to 1."""

    cells: int
    pairs: int
    disjoint: float
    held: float
    least_held: float
    hot_cells: int
    hot_disjoint: float
    hot_held: float
    hot_least_held: float
    alarms: int
    ordered_pairs: int
    alarmed: Sequence[str]
    longer: dict[str, float]
    planted_found: float | None = None


def table(out: Path) -> Found:
    """Return the table of the runs in the folder `out`."""
    from gpushmoo.comparing.compare import compare_runs
    from gpushmoo.comparing.runs import read_run

    alike = sorted(path for path in out.iterdir() if path.name[:1] == "r" and path.is_dir())
    cells = [cells_of(path) for path in alike]
    runs = [read_run(path) for path in alike]
    alarmed = [
        f"{a.name} → {b.name}: {row.kernel} {row.dtype} {row.height}² {row.change:+.2%}"
        for a, b in permutations(runs, 2)
        for row in compare_runs([a], [b], others(runs, a, b)).slower.itertuples()
    ]
    longer = {}
    for name in FACTORS:
        if (out / name).is_dir():
            other = cells_of(out / name)
            longer[name] = largest_change(cells, other)
    n_alarms = len({line.partition(":")[0] for line in alarmed})
    found = found_of(cells, n_alarms, len(runs) * (len(runs) - 1), alarmed, longer)
    slower = [read_run(path) for path in sorted(out.glob("planted-*")) if path.is_dir()]
    if not slower:
        return found
    shares = [share_found(run, other, others(runs, run)) for run in runs for other in slower]
    return replace(found, planted_found=float(np.mean(shares)))


def others(runs: Sequence[Any], *but: Any) -> Sequence[Any]:
    """Return all runs except `but`, for their spread; none if they are too few."""
    rest = [run for run in runs if all(run is not one for one in but)]
    return rest if len(rest) > 1 else []


def share_found(run: Any, planted: Any, alike: Sequence[Any]) -> float:
    """The share of the groups of `planted` that `compare` calls slower than in `run`."""
    from gpushmoo.comparing.compare import compare_runs
    from gpushmoo.core.schema import GROUP

    slower = compare_runs([run], [planted], alike).slower
    groups = planted.cells[list(GROUP)].drop_duplicates()
    return len(slower[list(GROUP)].drop_duplicates()) / len(groups)


def found_of(
    cells: Sequence[pd.DataFrame],
    alarms: int,
    ordered: int,
    alarmed: Sequence[str],
    longer: dict[str, float],
    pairs: Sequence[tuple[int, int]] = (),
) -> Found:
    """The table of these runs' cells; `pairs` of them, by default all."""
    pairs = pairs or list(combinations(range(len(cells)), 2))
    apart, held, hot = [], [], []
    for i, j in pairs:
        a, b = cells[i].align(cells[j], join="inner", axis=0)
        apart.append((a["low"] > b["high"]) | (b["low"] > a["high"]))
        for one, other in ((a, b), (b, a)):
            held.append(one["median_s"].between(other["low"], other["high"]).to_numpy())
        hot.append(a["hot"].to_numpy(bool))
    by_pair = [np.repeat(h, 1) for h in hot for _ in range(2)]
    usual = [h[~of] for h, of in zip(held, by_pair, strict=True)]
    in_hot = [h[of] for h, of in zip(held, by_pair, strict=True)]
    parted = [d.to_numpy() for d in apart]
    return Found(
        cells=len(cells[0]),
        pairs=len(pairs),
        disjoint=_mean([d[~of] for d, of in zip(parted, hot, strict=True)]),
        held=_mean(usual),
        least_held=min((h.mean() for h in usual if len(h)), default=float("nan")),
        hot_cells=int(hot[0].sum()),
        hot_disjoint=_mean([d[of] for d, of in zip(parted, hot, strict=True)]),
        hot_held=_mean(in_hot),
        hot_least_held=min((h.mean() for h in in_hot if len(h)), default=float("nan")),
        alarms=alarms,
        ordered_pairs=ordered,
        alarmed=alarmed,
        longer=longer,
    )


def _mean(parts: Sequence[Any]) -> float:
    whole = np.concatenate(parts)
    return float(whole.mean()) if len(whole) else float("nan")


def cells_of(folder: Path) -> pd.DataFrame:
    """The verified cells of a run by key, with their interval, group and whether it is hot."""
    from gpushmoo.analysis.aggregate import opened
    from gpushmoo.core.schema import GROUP
    from gpushmoo.measuring.rounds import SENSITIVE
    from gpushmoo.storage.dataset import read_cells

    with opened(folder) as found:
        cells = read_cells(found.dataset)
    ok = cells[cells["status"] == "ok"].set_index("cell_key")
    least, most = SENSITIVE
    return pd.DataFrame(
        {
            "group": ok[list(GROUP)].astype(str).agg(" ".join, axis=1),
            "median_s": ok["median_s"],
            "low": ok["median_low_s"],
            "high": ok["median_high_s"],
            "hot": ok["working_set_over_cache"].between(least, most),
        }
    )


def largest_change(alike: Sequence[pd.DataFrame], other: pd.DataFrame) -> float:
    """The largest change of a group's time, cold or hot, from the mean of the runs alike."""
    logs = pd.concat([np.log(cells["median_s"]) for cells in alike], axis=1).mean(axis=1)
    change = (np.log(other["median_s"]) - logs).dropna()
    groups = change.groupby(other["group"].reindex(change.index)).median()
    hot = other.groupby("group")["hot"].any()
    return float(groups[~hot.reindex(groups.index)].abs().max())


def made_up(pairs: int) -> Found:
    """Of this number of pairs of drawn runs; each pair is compared in one order."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        found = list(pool.map(_made_up_pair, range(pairs), chunksize=4))
    cells = [one for a, b, *_ in found for one in (a, b)]
    alarmed = [f"pair {i}: {n} groups" for i, (_, _, n, _) in enumerate(found) if n]
    places = [(2 * i, 2 * i + 1) for i in range(pairs)]
    whole = found_of(cells, len(alarmed), pairs, alarmed, {}, places)
    return replace(whole, planted_found=float(np.mean([n > 0 for *_, n in found])))


def _made_up_pair(number: int) -> tuple[pd.DataFrame, pd.DataFrame, int, int]:
    """The cells of two runs, and the alarms of a pair alike and of one with 3 % of work planted."""
    from gpushmoo.comparing.compare import compare_runs
    from gpushmoo.comparing.runs import read_run
    from rowed import write_run

    with tempfile.TemporaryDirectory() as name:
        folders = [write_run(Path(name) / f"r{i}", 3 * number + i) for i in range(2)]
        folders.append(write_run(Path(name) / "planted", 3 * number + 2, slower=PLANTED))
        a, b, planted = (read_run(folder) for folder in folders)
        alarms = len(compare_runs([a], [b]).slower)
        found = compare_runs([a], [planted]).slower
        one, other = (cells_of(folder) for folder in folders[:2])
        return one, other, alarms, int((found["variant"] == "b").sum())


def lines(found: Found) -> Iterator[str]:
    """The table in Markdown."""
    rows = [
        ("figure", "found", "aim"),
        ("---", "---", "---"),
        ("cells, pairs of runs", f"{found.cells}, {found.pairs}", ""),
        ("disjoint 95 % intervals", f"{found.disjoint:.2%}", "≤ 1 %"),
        ("hold the other's median", f"{found.held:.1%}", "93 to 97 %"),
        ("the same, least pair", f"{found.least_held:.1%}", "≥ 83 %"),
        ("cells with a working set of 0.3 to 1 of the last cache", str(found.hot_cells), ""),
        ("of these disjoint", f"{found.hot_disjoint:.2%}", "≤ 2 %"),
        ("of these hold the other's median", f"{found.hot_held:.1%}", "≥ 84 %"),
        ("the same, least pair", f"{found.hot_least_held:.1%}", "≥ 80 %"),
        ("alarms of `compare`", f"{found.alarms} of {found.ordered_pairs}", "≤ 1 in 40"),
    ]
    if found.planted_found is not None:
        rows.append(("planted 3 % that are found", f"{found.planted_found:.1%}", "≥ 95 %"))
    for name, change in found.longer.items():
        row = f"samples of length {name}: largest change of a group", f"{change:.2%}", "≤ 0.3 %"
        rows.append(row)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def show(found: Found, file: Path | None) -> None:
    """Print the table, and each alarm; write both as JSON."""
    print(*lines(found), *found.alarmed, sep="\n")
    if file is not None:
        file.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
