"""What sweeps cost: searches live, the cost of a cell, indices, several devices, other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from gpushmoo.core.paths import ROOT

from .words import Claims, percent, span

FOLDER = ROOT / "reports/reference/speed"
DEVICE = FOLDER / "nvidia-h200"
# What was aimed at.
DRY_RUN, CELLS_S, CALL_S, TWO_DEVICES = 1.8, 3.0, 1.5, 0.53

Told = Mapping[str, Any]


def values(claims: Claims) -> dict[str, Any]:
    """Numbers of the page on speed but those of replayed searches."""
    return {
        **fixed(_read(FOLDER / "fixed-cost.json")),
        **cell_cost(claims, _read(DEVICE / "cell-cost.json")),
        "tuner": [
            tuner_row("by default", 5.0, _read(DEVICE / "kt-default-527.json")),
            tuner_row("by default", 10.0, _read(DEVICE / "kt-default-2021.json")),
            tuner_row(
                "compiled once, verified on the device", 1.0, _read(DEVICE / "kt-device-2021.json")
            ),
        ],
        "tuner_difference": differences(claims),
        **live(claims, _read(DEVICE / "search.json")),
        **index_width(claims, _read(DEVICE / "index.json")),
        **devices(_read(DEVICE / "devices.json")),
    }


def _read(path: Any) -> Told:
    found: Told = json.loads(path.read_text(encoding="utf-8"))
    return found


def fixed(told: Told) -> dict[str, Any]:
    """Seconds beside measuring, on two cores without a GPU."""
    seconds = told["seconds"]
    rows = (
        ("`snakemake -n`, over `import snakemake.cli`", "dry run over import, ratio", DRY_RUN, ""),
        ("`snakemake cells`, beside measuring", "cells, beside measuring", CELLS_S, " s"),
        ("a call of `gpushmoo.sweep`, beside measuring", "call, beside measuring", CALL_S, " s"),
    )
    return {
        "fixed": [
            f"| {words} | {_spread(seconds[key], unit)} | {aim:g}{unit} | "
            f"{'yes' if seconds[key]['median'] <= aim else 'no'} |"
            for words, key, aim, unit in rows
        ],
        "fixed_repeats": told["repeats"],
        "fixed_load": f"{told['load_before']:.1f}",
    }


def _spread(told: Told, unit: str) -> str:
    return f"{told['median']:.2f}{unit} ({told['least']:.2f} to {told['most']:.2f})"


def cell_cost(claims: Claims, told: Told) -> dict[str, Any]:
    """What a cell costs, before and after cells were verified together."""
    rows = []
    names = {
        "admitted": "admit_ms_a_cell",
        "sampled": "sample_ms_a_cell",
        "verified once more": "verified_after_ms_a_cell",
        "the samples' launches alone": "launches_ms_a_cell",
    }
    for words, key in names.items():
        before, after = (_of_rounds(told[when]["processes"], key) for when in ("before", "after"))
        rows.append(f"| {words} | {before:.2f} ms | {after:.2f} ms |")
    before, after = (
        _of_rounds(told[when]["processes"], "admit_ms_a_cell") for when in ("before", "after")
    )
    claims.hold("Admitting takes about half of what it took.", after < 0.55 * before, told)
    return {"cell_cost": rows, "cell_samples": told["samples"]}


def _of_rounds(processes: Sequence[Sequence[Told]], key: str) -> float:
    return float(median(one[key] for rounds in processes for one in rounds))


def tuner_row(words: str, aim: float, told: Told) -> str:
    """A line of the table of Kernel Tuner."""
    ours, theirs = (
        [one[tool]["wall_s"] for one in told["passes"]] for tool in ("gpushmoo", "kernel_tuner")
    )
    ratio = told["ratio"]
    met = "yes" if ratio["median"] >= aim else "no"
    repeats = [told["repeatability"][tool]["median"] for tool in ("gpushmoo", "kernel_tuner")]
    return (
        f"| {words} | {told['passes'][0]['gpushmoo']['cells']:,} | {_range(ours)} | "
        f"{_range(theirs)} | {ratio['median']:.2f} ({ratio['least']:.2f} to "
        f"{ratio['greatest']:.2f}) | {aim:g} | {met} | "
        f"{' / '.join(percent(r) for r in repeats)} |"
    )


def _range(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.1f} s to {max(seconds):.1f} s"


def differences(claims: Claims) -> str:
    """How much longer Kernel Tuner finds a launch, whatever its time."""
    found = [
        _read(DEVICE / f"kt-{name}.json")["difference"]
        for name in ("default-527", "default-2021", "device-2021")
    ]
    every = [us for told in found for us in (told["short_us"], told["long_us"])]
    claims.hold(
        "Kernel Tuner's times are longer by the same for short and for long cells.",
        max(every) - min(every) < 1.0,
        found,
    )
    return f"{min(every):.1f} µs to {max(every):.1f} µs"


def live(claims: Claims, told: Told) -> dict[str, Any]:
    """A guided sweep beside the exhaustive one, on a device."""
    rounds = told["rounds"]
    groups = [g for found in rounds for g in found["groups_of"]]
    shapes = [g for g in groups if g["candidates"] > 1000]
    wrong = [g for g in groups if g["slower"] > 0.01 and not g["tied"]]
    claims.hold("The guided sweep is wrong in one group at most.", len(wrong) <= 1, wrong)
    return {
        "live_rounds": len(rounds),
        "live_groups": rounds[0]["groups"],
        "live_cells": f"{rounds[0]['cells']:,}",
        "live_guided": _range([found["guided_s"] for found in rounds]),
        "live_all": _range([found["all_s"] for found in rounds]),
        "live_ratio": span(found["ratio"] for found in rounds),
        "live_measured": percent(median(g["measured"] / g["candidates"] for g in shapes)),
        "live_samples": percent(median(g["samples"] / g["samples_of_all"] for g in shapes)),
        "live_answers": len(groups),
        "live_within": sum(g["slower"] <= 0.01 for g in groups),
        "live_tied": sum(g["slower"] > 0.01 and g["tied"] for g in groups),
        "live_wrong_samples": span(g["samples_of_all"] / g["candidates"] for g in wrong),
        "live_wrong": ", ".join(
            f"`{g['kernel']}`, {g['dtype']}, {g['height']}², {g['cache_state']}, by "
            f"{percent(g['slower'])}"
            for g in wrong
        ),
    }


def index_width(claims: Claims, told: Told) -> dict[str, Any]:
    """What wide indices cost."""
    parts = [*told["shapes"], *told["blocks"]]
    for part in told["shapes"]:
        claims.hold(
            "Block shapes rank as those of the plain kernel.",
            part["spearman_narrow_plain"] > 0.999,
            part,
        )
    return {
        "index": [
            f"| `{p['kernel']}` | {p['dtype']} | {p['cells']} | {_excess(p['wide_over_plain'])} | "
            f"{_excess(p['narrow_over_plain'])} | {p['spearman_narrow_plain']:.5f} |"
            for p in parts
        ],
        "index_rounds": told["rounds"],
    }


def _excess(ratios: Told) -> str:
    middle, least, most = (ratios[name] - 1 for name in ("median", "least", "greatest"))
    return f"{middle:+.1%} ({least:+.1%} to {most:+.1%})"


def devices(told: Told) -> dict[str, Any]:
    """One device and two."""
    [found] = told["rounds"]
    return {
        "devices_cells": f"{found['one']['cells']:,}",
        "devices_one": f"{found['one']['wall_s']:.0f} s",
        "devices_two": f"{found['all']['wall_s']:.0f} s",
        "devices_ratio": f"{found['ratio']:.2f}",
        "devices_aim": f"{TWO_DEVICES}",
        "devices_shards": " and ".join(map(str, found["all"]["shards_by_device"])),
    }
