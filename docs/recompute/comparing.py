"""Runs of the same thing and of planted work, energy and kinds of launch, on an H200."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd
from gpushmoo.comparing.compare import DELTA
from gpushmoo.core.display import significant
from gpushmoo.core.paths import ROOT
from gpushmoo.storage.store import read_metadata

from .record import H200
from .words import Claims, percent, span, whole_percent

FOLDER = ROOT / "reports/reference/comparing"
STUDIES = ROOT / "reports/reference/nvidia-h200-studies"
ENERGY, FIRST_ENERGY = STUDIES / "energy.parquet", STUDIES / "energy-first.parquet"
RIVALS = ("nvbench", "nvbench_robust", "google_benchmark")
PLACES = {
    "h200": "an H200",
    "h200-second": "another one, another hour",
    "h200-hosts": "pairs of three H200s of three hosts",
    "two-cores": "two busy cores",
}
# What experiments/gpu/planted writes, and how false_alarms calls it.
PLANTED = {"p01": "1 %", "p03": "3 %", "p10": "10 %"}

Told = Mapping[str, Any]


def values(claims: Claims) -> dict[str, Any]:
    """Numbers of the page on comparing."""
    told = {name: _read(FOLDER / f"{name}.json") for name in PLACES}
    versus = pd.DataFrame(_read(FOLDER / "h200-planted.json"))
    claims.hold(
        "Nothing is found on busy cores.", told["two-cores"]["same"]["half_width_median"] > 0.2
    )
    plain = versus[versus["planted"] == "p00"]["verdict"].value_counts()
    return {
        "delta": whole_percent(DELTA),
        "alarms": [_alarm_row(words, told[name]) for name, words in PLACES.items()],
        "every": _every(told["h200"]),
        "planted": [_planted_row((told["h200"], told["h200-second"]), versus, p) for p in PLANTED],
        "hosts": _hosts(told["h200-hosts"], claims),
        "false_verdicts": _false_verdicts(told.values()),
        "half_width": percent(told["h200"]["same"]["half_width_median"]),
        "cpu_half_width": whole_percent(told["two-cores"]["same"]["half_width_median"]),
        "versus_same": {"pairs": int(plain.sum())}
        | {v: int(plain.get(v, 0)) for v in ("same", "undecided", "slower")},
        "versus_found": _found(versus),
        **_energy(claims),
        "energy_again": _energy_again(claims),
        "tuner": _tuner(
            [_read(H200 / f"benchmarks/energy-kernel-tuner{n}.json") for n in ("-first", "")]
        ),
        **_kinds([_read(path) for path in sorted(H200.glob("benchmarks/nvbench-kinds*.json"))]),
    }


def _read(path: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _hits(rate: Told) -> str:
    return f"{rate['hits']} of {rate['n']}"


def _alarm_row(words: str, told: Told) -> str:
    same = told["same"]
    rivals = (f"{_hits(same[f'{r} (cells)'])} / {_hits(same[f'{r} (bests)'])}" for r in RIVALS)
    alarms = same["alarms"]
    runs = told["runs"] if isinstance(told["runs"], int) else sum(told["runs"])
    cells = (words, runs, alarms["n"], _hits(alarms), *rivals)
    return f"| {' | '.join(map(str, cells))} |"


def _every(told: Told) -> str:
    """All pairs, which share runs."""
    alarms = told["same_all_pairs"]["alarms"]
    low, high = told["same"]["alarms"]["interval"]
    return (
        f"So few pairs alone do not show a rate: the 95 % interval of the H200's is "
        f"{whole_percent(low)} to {whole_percent(high)}. Of all its {alarms['n']} pairs, which "
        f"share runs, {alarms['hits']} raise an alarm."
    )


def _false_verdicts(told: Iterable[Told]) -> str:
    """Of all pairs of the same thing, those in which anything is called slower."""
    rates = [place["same"] for place in told]
    names = ("slower_groups", "slower_wholes", "slower_cells")
    hits = [sum(rate[name]["hits"] for rate in rates) for name in names]
    return (
        f"In these {sum(rate['alarms']['n'] for rate in rates)} pairs a best is called slower in "
        f"{hits[0]}, a group as a whole in {hits[1]}, a cell in {hits[2]}."
    )


def _hosts(told: Told, claims: Claims) -> str:
    """What lies between devices."""
    change = told["largest_change"]
    claims.hold("Bests of two devices lie within 2 %.", change < 0.02)
    return (
        f"Between {told['devices']} devices of {len(told['runs'])} hosts no best got slower by "
        f"more than {percent(change)}."
    )


def _planted_row(devices: Sequence[Told], versus: pd.DataFrame, planted: str) -> str:
    """Hits on all `devices` together."""
    really = versus[versus["planted"] == planted]
    each = [told["planted"][PLANTED[planted]] for told in devices]
    found = (
        _hits({key: sum(rates[name][key] for rates in each) for key in ("hits", "n")})
        for name in ("alarms", "slower_planted", "slower_planted_wholes", "slower_cells")
    )
    return f"| {PLANTED[planted]} | {percent(really['estimate'].median())} | {' | '.join(found)} |"


def _found(versus: pd.DataFrame) -> str:
    parts = []
    for planted, words in PLANTED.items():
        mine = versus[versus["planted"] == planted]
        slower = int((mine["verdict"] == "slower").sum())
        parts.append(f"{slower} of {len(mine)} ({words})")
    return f"slower: {', '.join(parts)}"


def _energy(claims: Claims) -> dict[str, Any]:
    cells = pd.read_parquet(ENERGY)
    copies = cells[(cells["kernel"] == "copy2d_coalesced") & (cells["dtype"] == "float")]
    fastest = cells.loc[cells.groupby(["kernel", "dtype", "height"])["gbs"].idxmax()]
    cheapest = cells.loc[cells.groupby(["kernel", "dtype", "height"])["joules_per_gb"].idxmin()]
    both = fastest.merge(cheapest, on=["kernel", "dtype", "height"], suffixes=("", "_least"))
    surely = both[both["joules_per_gb_high_least"] < both["joules_per_gb_low"]]
    wide = cells[(cells["kernel"] == "copy2d_coalesced") & (cells["dtype"] == "float4")]
    near = wide[wide["gbs"] > 0.98 * wide["gbs"].max()]
    claims.hold(
        "Copies as fast as each other cost alike.",
        near["joules_per_gb"].max() / near["joules_per_gb"].min() < 1.02,
    )
    least = copies.loc[copies["joules_per_gb"].idxmin()]
    most = copies.loc[copies["joules_per_gb"].idxmax()]
    saved = [
        f"{row['kernel']} {row['dtype']} of {row['height']}² ({row['params_least']} costs "
        f"{percent(1 - row['joules_per_gb_least'] / row['joules_per_gb'])} less and is "
        f"{percent(1 - row['gbs_least'] / row['gbs'])} slower)"
        for _, row in surely.iterrows()
    ]
    where = f"in {len(saved)} of {len(both)} groups: {'; '.join(saved)}" if saved else "nowhere"
    words = (
        f"The shape of a block decides more than anything else: of a float copy {most['params']} "
        f"costs {significant(most['joules_per_gb'] / least['joules_per_gb'])} times what "
        f"{least['params']} does. Energy hardly breaks ties: float4 copies within "
        f"{whole_percent(0.02)} of the fastest cost "
        f"{span(1000 * near['joules_per_gb'], ' mJ/GB', 3)}. The cheapest launch is surely another "
        f"than the fastest {where}."
    )
    idle = read_metadata(ENERGY)["idle"]
    power = [i["joules"] / i["seconds"] for i in idle]
    return {
        "energy": [_energy_row(row) for _, row in cells.iterrows()],
        "energy_words": words,
        "idle": span(power, " W", 3),
    }


def _energy_row(row: Any) -> str:
    low, high = (1000 * row[f"joules_per_gb_{end}"] for end in ("low", "high"))
    cells = (
        *(f"`{row['kernel']}`", row["dtype"], f"{row['height']}²", row["params"]),
        f"{row['gbs']:.0f}",
        f"{1000 * row['joules_per_gb']:.1f} ({low:.1f} to {high:.1f})",
        f"{1000 * row['net_joules_per_gb']:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _energy_again(claims: Claims) -> str:
    """The same cells on another device, in shorter windows, by the record from before."""
    first, second = (pd.read_parquet(p).set_index("cell_key") for p in (FIRST_ENERGY, ENERGY))
    speed = second["gbs"] / first["gbs"]
    cost = 100 * (second["joules_per_gb"] / first["joules_per_gb"] - 1)
    claims.hold("Another device is as fast.", abs(speed - 1).max() < 0.01)
    claims.hold("All cells cost more on the second device.", bool((cost > 0).all()))
    window = min(first["window_s"].explode().astype(float))
    return (
        f"On another H200, in windows of {significant(window, 1)} s, all cells were as fast within "
        f"{percent(abs(speed - 1).max())} and cost {span(cost, ' %')} less, "
        f"{percent(cost.median() / 100)} in the median: between these devices energy differs more "
        "than speed."
    )


def _tuner(recorded: Sequence[Told]) -> str:
    """What Kernel Tuner said on two devices, the first one first."""
    parts = []
    for told in recorded:
        every = told["agreement"]["all"]
        decided = every["pairs"] - every["not_decided"]
        parts.append((decided, decided - len(every["opposed"]), every))
    (first, alike, of), (second, alike_2, of_2) = parts
    opposed = [abs(x[who]) for x in of_2["opposed"] for who in ("gpushmoo", "kernel_tuner")]
    over = [100 * x for every in (of, of_2) for x in every["kernel_tuner_over_ours"]]
    return (
        f"of {of['pairs']} pairs of cells our rounds decide {first} on one H200 and {second} on "
        f"another, of which {alike} and {alike_2} stand in the same order there; the cells of the "
        f"others lie within {percent(max(opposed))} of each other by both. Kernel Tuner measures a "
        f"cell once and tells no interval; its figures, instantaneous power times the time of a "
        f"launch, are {span(over, ' %')} above ours."
    )


def _kinds(recorded: Sequence[Told]) -> dict[str, Any]:
    """Ratios of the same launches by every run, on two devices."""
    rows, beyond = [], list[Told]()
    for figure in ("cold", "batch"):
        mine = [c for told in recorded for c in told["cells"] if c["nvbench"] == figure]
        mine = [c for c in mine if c["is_like"]]
        off = [abs(c["ratio"] - 1) for c in mine]
        ours = f"{mine[0]['launch_kind']}, {mine[0]['cache_state']}"
        within = f"{sum(x <= DELTA for x in off)} of {len(mine)}"
        beyond += [c for c, x in zip(mine, off, strict=True) if x > DELTA]
        middle = [median(ratios) for ratios in _by_launch(mine).values()]
        held = f"{sum(abs(x - 1) <= DELTA for x in middle)} of {len(middle)}"
        cells = (figure, ours, within, held, percent(median(off)), percent(max(off), 3))
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return {"kinds": rows, "beyond": span([1e6 * c["ours_median_s"] for c in beyond], " µs", 2)}


def _by_launch(cells: Sequence[Told]) -> dict[str, list[float]]:
    """Ratios of each launch over the runs."""
    found: dict[str, list[float]] = {}
    for c in cells:
        names = (c["kernel"], c["dtype"], c["variant"], c["params"], c["side"])
        found.setdefault(str(names), []).append(c["ratio"])
    return found
