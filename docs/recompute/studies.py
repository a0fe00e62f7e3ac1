"""Runs compared with each other, energy, timing modes, and the gallery."""

from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import pandas as pd
from gpushmoo.comparing.compare import DELTA
from gpushmoo.comparing.compare import percent as as_change
from gpushmoo.comparing.false_alarms import Rate
from gpushmoo.comparing.runs import known_of
from gpushmoo.core.display import percent, significant
from gpushmoo.core.metric import BANDWIDTH, interval
from gpushmoo.storage.store import read_metadata

from .record import REFERENCE, Record, read_json
from .words import Claims, span, whole, whole_percent

ENERGY = REFERENCE / "nvidia-h200-studies/energy.parquet"
RIVALS = ("nvbench", "nvbench_robust", "google_benchmark")
PLACES = {
    "h200": "an H200",
    "h200-second": "another one, another hour",
    "h200-hosts": "pairs of three H200s of three hosts",
    "two-cores": "two busy cores",
}
# As false_alarms calls what experiments/gpu/planted plants.
PLANTED = ("1 %", "3 %", "10 %")


def comparing(claims: Claims) -> dict[str, Any]:
    """Runs of the same thing and of planted work."""
    told = {name: read_json(f"comparing/{name}.json") for name in PLACES}
    rates = [place["same"] for place in told.values()]
    verdicts = [
        r[n]["hits"] for r in rates for n in ("slower_groups", "slower_wholes", "slower_cells")
    ]
    claims.hold("Nothing is called slower in pairs of the same thing.", not any(verdicts))
    alarms = Rate(*(sum(r["alarms"][count] for r in rates) for count in ("hits", "n")))
    claims.hold("No pair of the same thing raises an alarm.", alarms.hits == 0)
    half_width = {n: told[n]["same"]["half_width_median"] for n in ("h200", "two-cores")}
    claims.hold("Nothing is found on busy cores.", half_width["two-cores"] > 0.2)
    return {
        "delta": whole_percent(DELTA),
        "alarms": [_alarms(words, told[name]) for name, words in PLACES.items()],
        "pairs": alarms.n,
        "interval": whole_percent(alarms.interval[1]),
        "planted": [_planted((told["h200"], told["h200-second"]), p) for p in PLANTED],
        "ab": _ab(claims),
        "hosts": percent(told["h200-hosts"]["largest_change"]),
        "half_width": percent(half_width["h200"]),
        "again": _again(claims),
        "kinds": _kinds(),
        "same_launches": _same_launches(claims),
        "stable": [row for name in STABLE for row in _stable(name)],
        "stable_one": _stable_one(),
        **_energy(claims),
    }


def _again(claims: Claims) -> dict[str, Any]:
    """Runs of protocol 2: what another run finds again, and what is found of planted work."""
    told = read_json("comparing/h200-repeated-runs.json")
    found, power = told["table"], told["power"]
    by_runs, known = power["by_other_runs"], power["by_known_spreads"]
    nothing = found["alarms"] + by_runs["false_alarms"] + known["false_alarms"]
    claims.hold("No pair of runs alike raises an alarm.", nothing == 0)
    claims.hold("No interval is disjoint.", found["disjoint"] + found["hot_disjoint"] == 0.0)
    every = power["groups"]
    later = read_json("comparing/h200-repeated-runs-2.json")
    table, by_known = later["table"], later["power"]["by_known_spreads"]
    claims.hold(
        "Later runs raise no alarm by the spreads of these.",
        by_known["false_alarms"] + table["disjoint"] + table["hot_disjoint"] == 0,
    )
    return {
        "later": {
            "runs": later["runs"],
            "ordered": by_known["ordered_pairs"],
            "held": percent(table["held"]),
            "slower": percent(by_known["slower"] / later["power"]["groups"]),
        },
        "known": known_of("NVIDIA H200").times,
        "cells": f"{found['cells']:,}",
        "hot_cells": found["hot_cells"],
        "groups": told["groups"],
        "runs": told["runs"],
        "ordered": found["ordered_pairs"],
        "held": percent(found["held"]),
        "least_held": percent(found["least_held"]),
        "hot_held": percent(found["hot_held"]),
        "longer": [percent(found["longer"][name]) for name in ("half", "twice")],
        "planted": [percent(c) for c in sorted(told["changes_of_planted"])],
        "power": [
            [words, percent(got["slower"] / every), percent(got["alarms"] / every), pairs]
            for words, got, pairs in (
                (f"{power['runs'] - 1} other runs of that day", by_runs, by_runs["ordered_pairs"]),
                ("the library's spreads of an H200", known, known["ordered_pairs"]),
            )
        ],
    }


# Records of experiments/benchmarks/stable_choice.py.
STABLE = {"h200": "an H200", "h200-2": "another", "repeated": "a third", "cpu": "two busy cores"}


def _stable(place: str) -> Iterator[list[str]]:
    """For each number of runs that were put together: what each rule names, and its worst loss."""
    told = read_json("comparing/stable-choice.json")[place]["choices"]
    for together in sorted({row["together"] for row in told}):
        rows = [row for row in told if row["together"] == together]
        cells = [STABLE[place], f"{rows[0]['runs']} × {together}"]
        for rule in rows[0]["rules"]:
            found = [row["rules"][rule] for row in rows]
            one = sum(f["names"] == 1 for f in found)
            usual = sum(f["usual"] for f in found) / sum(row["runs"] for row in rows)
            worst = max(f["lost_most"] for f in found)
            cells.append(f"{one} of {len(found)}, {percent(usual)}, {percent(worst)}")
        yield cells


def _stable_one() -> str:
    """Choices on GPUs that have one name in all runs, where a run has repeats."""
    gpus = (n for n in STABLE if n != "cpu")
    told = [row for n in gpus for row in read_json("comparing/stable-choice.json")[n]["choices"]]
    names = [row["rules"]["shipped"]["names"] for row in told if row["together"] > 1]
    return f"{names.count(1)} of {len(names)} choices"


def _hits(found: dict[str, Any]) -> str:
    return f"{found['hits']} of {found['n']}"


def _alarms(words: str, told: dict[str, Any]) -> list[str]:
    same = told["same"]
    rivals = (f"{_hits(same[f'{r} (cells)'])} / {_hits(same[f'{r} (bests)'])}" for r in RIVALS)
    runs = told["runs"] if isinstance(told["runs"], int) else sum(told["runs"])
    return [words, str(runs), _hits(same["alarms"]), *rivals]


def _planted(devices: tuple[Any, ...], planted: str) -> list[str]:
    """Hits on all `devices` together."""
    each = [told["planted"][planted] for told in devices]
    names = ("alarms", "slower_planted", "slower_planted_wholes", "slower_cells")
    found = (
        {key: sum(rates[name][key] for rates in each) for key in ("hits", "n")} for name in names
    )
    return [planted, *map(_hits, found)]


def _ab(claims: Claims) -> list[list[str]]:
    """What `ab` finds of what is planted in a checkout (experiments/gpu/ab_planted.py)."""
    groups = pd.DataFrame(read_json("comparing/h200-planted.json"))
    rows = []
    for planted, own in groups.groupby("planted"):
        kernels = own.groupby(["turn", "kernel"])["slower"].first()
        hits = (f"{w.sum()} of {len(w)}" for w in (own["verdict"] == "slower", kernels))
        rows.append([f"{planted} %", as_change(own["change"].median()), *hits])
    plain = groups[groups["planted"] == 0]
    is_same = (plain["verdict"] == "same").all() and not plain["slower"].any()
    claims.hold("ab finds the same where nothing is planted.", bool(is_same))
    return rows


def _energy(claims: Claims) -> dict[str, Any]:
    """The fastest launch of each group, and the one that moves a byte for the least energy."""
    cells = pd.read_parquet(ENERGY)
    groups = cells.groupby(["kernel", "dtype", "height"], sort=False)
    fastest, least = (
        cells.loc[g] for g in (groups["gbs"].idxmax(), groups["joules_per_gb"].idxmin())
    )
    rows = []
    surely = 0
    groups_told = 0
    for (_, fast), (_, cheap) in zip(fastest.iterrows(), least.iterrows(), strict=True):
        groups_told += 1
        is_sure = bool(cheap["joules_per_gb_high"] < fast["joules_per_gb_low"])
        surely += is_sure
        if not is_sure and fast["height"] < 8192:
            continue
        low, high = (1000 * fast[f"joules_per_gb_{end}"] for end in ("low", "high"))
        rows.append(
            [
                f"`{fast['kernel']}`, {fast['dtype']}, {fast['height']}²",
                f"{fast['gbs']:.0f}",
                f"{1000 * fast['joules_per_gb']:.1f} ({low:.1f} to {high:.1f})",
                f"{1000 * cheap['joules_per_gb']:.1f}",
            ]
        )
    copies = cells[(cells["kernel"] == "copy2d_coalesced") & (cells["dtype"] == "float")]
    wide = cells[(cells["kernel"] == "copy2d_coalesced") & (cells["dtype"] == "float4")]
    near = wide[wide["gbs"] > 0.98 * wide["gbs"].max()]["joules_per_gb"]
    claims.hold("Copies as fast as each other cost alike.", near.max() / near.min() < 1.02)
    cost = copies["joules_per_gb"]
    return {
        "energy": rows,
        "surely": f"{surely} of {groups_told}",
        "shapes": significant(cost.max() / cost.min(), 2),
        "near": span(1000 * near, " mJ/GB", 3),
        "idle": span((i["joules"] / i["seconds"] for i in read_metadata(ENERGY)["idle"]), " W", 3),
    }


def _kinds() -> list[list[str]]:
    """Our times of the same launches over nvbench's."""
    rows = []
    for figure in ("cold", "batch"):
        cells = _of_nvbench(figure)
        off = [abs(c["ratio"] - 1) for c in cells]
        within = f"{sum(x <= DELTA for x in off)} of {len(off)}"
        ours = f"{cells[0]['timing_mode']}, {cells[0]['cache_state']}"
        rows.append([figure, ours, within, percent(median(off)), percent(max(off), 3)])
    return rows


def _of_nvbench(figure: str) -> list[dict[str, Any]]:
    """Launches whose figure of nvbench is one of the device's time, not of the host's."""
    cells = read_json("nvidia-h200/benchmarks/nvbench.json")["cells"]
    return [c for c in cells if c["nvbench"] == figure and c["is_like"]]


# From this duration on, the begin and the end of a launch hardly count.
LONG_S = 30e-6


def _same_launches(claims: Claims) -> list[list[str]]:
    """Our times beside those of other tools, of the same launches on one kind of device.

    A row has the tool's figure, ours, and of all launches the ratio of the times and the difference
    in microseconds, each as the median with the range. A tool that prints rates has no difference.
    """
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for figure, ours in (("batch", "row in a stream"), ("cold", "isolated, flushed")):
        pairs[f"nvbench, {figure}", ours] = [
            (c["ours_mean_s"], median(c["nvbench_mean_s"])) for c in _of_nvbench(figure)
        ]
    for state, ours in (("warm batched", "row"), ("flushed isolated", "isolated, flushed")):
        found = [
            (c[state]["ours_s"], median(c[state]["ncu_s"]))
            for c in read_json("nvidia-h200/benchmarks/ncu.json")["cells"]
        ]
        pairs["Nsight Compute, launches below 30 µs", ours] = [p for p in found if p[1] < LONG_S]
        pairs["Nsight Compute, longer launches", ours] = [p for p in found if p[1] >= LONG_S]
    tuned = read_json("nvidia-h200/benchmarks/tuned.json")["cells"]
    for words, of_seven in (("mean", mean), ("fastest", min)):
        pairs[f"Kernel Tuner, {words} of seven launches", "row"] = [
            (median(c["ours_s"]), of_seven(c["kernel_tuner_s"])) for c in tuned
        ]
    near = [a / b for a, b in pairs["nvbench, batch", "row in a stream"]]
    claims.hold("A row in a stream takes as long as nvbench's.", _near(near, DELTA), near)
    longer = [a > b for a, b in pairs["Nsight Compute, longer launches", "row"]]
    claims.hold("One long launch takes more in a row than alone.", sum(longer) == 1, longer)
    near = [a / b for a, b in pairs["Nsight Compute, longer launches", "row"]]
    claims.hold("Long launches take as long as Nsight Compute says.", _near(near, 0.02), near)
    rows = [
        [
            theirs,
            ours,
            str(len(found)),
            _ranged([a / b for a, b in found], 3),
            _ranged([1e6 * (a - b) for a, b in found], 1),
        ]
        for (theirs, ours), found in pairs.items()
    ]
    babel = read_json("nvidia-h200-gallery/benchmarks/babelstream.json")["compared"]
    for compared in babel:
        functions = compared["functions"].values()
        rates = [1 / result["ours over theirs"]["median"] for result in functions]
        theirs = f"BabelStream, its launches, {compared['dtype']}"
        rows.append([theirs, "row, best launches", str(len(rates)), _ranged(rates, 3), ""])
    return rows


SEVERAL = ("run, 0", "run, all", "calls, 0", "calls, all")


def several_devices(claims: Claims) -> dict[str, Any]:
    """Where the seconds of a sweep on one and on two devices are spent, by run and by calls.

    Rows have a figure each, of `SEVERAL`. Those of devices are means over the devices.
    """
    found = read_json("speed/nvidia-h200/several.json")["found"]
    ways = [found[name] for name in SEVERAL]
    one, two = ways[:2]
    busy_s = [device["busy_s"] for device in two["devices"].values()]
    claims.hold("Two devices share the measuring evenly.", min(busy_s) > 0.9 * max(busy_s), busy_s)

    def of_device(way: dict[str, Any], figure: str) -> float:
        return float(mean(device[figure] for device in way["devices"].values()))

    seconds = {
        "total": [way["wall_s"] for way in ways],
        "until the first shard": [way["start_s"] for way in ways],
        "measuring, mean of the devices": [of_device(way, "busy_s") for way in ways],
        "between shards, mean of the devices": [of_device(way, "between_s") for way in ways],
        "after the last shard": [way["end_s"] for way in ways],
    }
    after_start = [way["wall_s"] - way["start_s"] for way in (one, two)]
    gaps_s = [d["longest_gaps_s"][0] for way in ways[2:] for d in way["devices"].values()]
    return {
        "run_cells": f"{one['cells']:,}",
        "calls_cells": f"{ways[2]['cells']:,}",
        "rows": [[words, *(f"{s:.1f}" for s in row)] for words, row in seconds.items()],
        "share": f"{two['wall_s'] / one['wall_s']:.2f}",
        "share_after_start": f"{after_start[1] / after_start[0]:.2f}",
        "between_shards": f"{1e3 * of_device(two, 'between_s') / of_device(two, 'shards'):.0f} ms",
        "second_call": span(gaps_s, " s", digits=2),
    }


def _near(ratios: list[float], most: float) -> bool:
    return max(abs(ratio - 1) for ratio in ratios) <= most


def _ranged(values: list[float], digits: int) -> str:
    """Return ``0.99 (0.98 to 1.01)``."""
    middle, least, greatest = (f(values) for f in (median, min, max))
    return f"{middle:.{digits}f} ({least:.{digits}f} to {greatest:.{digits}f})"


TYPES = ("float", "double")
AXES = ("TILE", "ROWS", "PAD", "block_x", "block_y", "threads", "grid", "unroll")
# Words, and what chooses the cells.
VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("transpose, naive", "transpose", {"variant": "naive", "PAD": 0}),
    ("transpose, tile", "transpose", {"variant": "tile", "PAD": 0}),
    ("transpose, padded tile", "transpose", {"variant": "tile", "PAD": 1}),
    ("transpose, padded tile, diagonal", "transpose", {"variant": "tile-diagonal", "PAD": 1}),
    ("stencil5, global", "stencil5", {"variant": "global", "width": 8192}),
    ("stencil5, tiled", "stencil5", {"variant": "tiled", "width": 8192}),
    ("reduce_sum", "reduce_sum", {"variant": "packs", "width": 2**25}),
)


def gallery(record: Record, claims: Claims) -> dict[str, Any]:
    """What the gallery's kernels reach."""
    best = {
        (words, dtype): record.best(kernel, dtype=dtype, **where)
        for words, kernel, where in VARIANTS
        for dtype in TYPES
    }
    speed = {key: float(cell["bandwidth_gbs"]) for key, cell in best.items()}

    def gain(one: str, other: str) -> list[float]:
        return [speed[f"transpose, {one}", d] / speed[f"transpose, {other}", d] for d in TYPES]

    diagonal = gain("padded tile, diagonal", "padded tile")
    claims.hold("Diagonal order changes less than 2 %.", all(abs(g - 1) < 0.02 for g in diagonal))
    gather = {
        dtype: record.of("gather_stride", dtype=dtype).groupby("stride")["bandwidth_gbs"].max()
        for dtype in TYPES
    }
    claims.hold(
        "At a stride of 8 about a quarter is left, and 64 is slower than 128.",
        all(0.2 < s[8] / s[1] < 0.27 and s[64] < s[128] for s in gather.values()),
    )
    return {
        "cells": whole(len(record.ok)),
        "fastest": [
            [words, dtype, interval(cell, BANDWIDTH.unit), _of_copy(cell), _launch(cell)]
            for (words, dtype), cell in best.items()
        ],
        "tile_gain": span(gain("tile", "naive"), digits=3),
        "pad_gain": span(gain("padded tile", "tile"), digits=3),
        "gather": [
            [whole(s), *(significant(gather[d][s]) for d in TYPES)] for s in gather["float"].index
        ],
    }


def _of_copy(cell: pd.Series) -> str:
    return percent(float(cell["vs_memcpy"])) if pd.notna(cell["vs_memcpy"]) else ""


def _launch(cell: pd.Series) -> str:
    """Name a launch as ``threads 128, unroll 4``."""
    named = [(a, cell[a]) for a in AXES if a in cell.index and pd.notna(cell[a])]
    return ", ".join(f"{axis} {int(value)}" for axis, value in named)
