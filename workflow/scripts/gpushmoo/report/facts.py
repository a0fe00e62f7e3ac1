"""Facts for the report's template: display strings, so that the template decides only layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..analysis.statuses import MEANING, faults, status_counts
from ..display import gbs, interval, number, percent, seconds, size_bytes
from ..schema import Status

Json = dict[str, Any]

# Tied cells named in the table of best sets; the whole set is in summary/best.parquet.
NAMED_TIES = 4


def report_facts(
    *,
    cells: pd.DataFrame,
    best: pd.DataFrame,
    fits: Sequence[Json],
    checks: Mapping[str, Sequence[Json]],
    provenance: Sequence[Json],
    figures: Mapping[str, Json],
    slips: Sequence[Json],
    spec: Mapping[str, Any],
) -> Json:
    """All that the template shows, as JSON values."""
    return {
        "run": spec["run"],
        "recorded": spec["recorded"],
        "device": device_card(provenance),
        "is_cpu": provenance[0]["device"]["kind"] == "cpu",
        "findings": findings(cells, best, fits),
        "method": method_facts(cells, provenance),
        "kernels": [{"name": n, **spec["kernels"][n]} for n in sorted(spec["kernels"])],
        "heatmaps": _figures(figures, "heatmap"),
        "curves": _figures(figures, "curve"),
        "simulated": _figures(figures, "simulated"),
        "gantt": _figures(figures, "gantt"),
        "best": best_rows(best),
        "fits": fit_rows(fits),
        "checks": [c for name in sorted(checks) for c in check_rows(checks[name])],
        "doubling": doubling_rows(cells),
        "slips": list(slips),
        "statuses": status_rows(cells),
        "status_meaning": [
            {"status": s.value, "meaning": MEANING[s]}
            for s in Status
            if s.value in set(cells["status"])
        ],
        "faults": fault_rows(cells),
        "provenance": provenance_rows(provenance),
    }


def _figures(figures: Mapping[str, Json], kind: str) -> list[Json]:
    return [
        {"file": name, "title": note["title"], "caption": note["caption"]}
        for name, note in figures.items()
        if name.startswith(f"{kind}-")
    ]


def device_card(provenance: Sequence[Json]) -> list[list[str]]:
    """Label and value of each line of the device card; several devices share the labels."""
    devices = {p["device"]["uuid"]: p["device"] for p in provenance}
    lines: list[list[str]] = []
    for d in devices.values():
        lines += [
            ["Device", f"{d['name']} ({d['kind'].upper()}, backend {d['backend']})"],
            ["Runtime", f"{d['runtime']}, driver {d['driver']}"],
            ["Compute units", f"{d['units']}{_clock(d['core_clock_mhz'])}"],
            ["Memory", size_bytes(d["global_memory"])],
            ["Last-level cache", size_bytes(d["cache"]) if d["cache"] else "not told"],
            ["Largest block", f"{d['max_threads_per_block']} threads"],
        ]
        lines += [[_label(k), str(v)] for k, v in sorted(d["extra"].items())]
        lines.append(["Identity", d["uuid"]])
    host = provenance[0]["host"]
    lines.append(["Host", f"{host['cores']} cores, {host['system']}, Python {host['python']}"])
    return lines


def _clock(mhz: int) -> str:
    return f" at up to {mhz} MHz" if mhz else ", clock not told"


_LABELS = {
    "ecc": "ECC",
    "memory_bus_bits": "Memory bus (bit)",
    "memory_clock_mhz": "Memory clock (MHz)",
    "threads_per_multiprocessor": "Threads per multiprocessor",
    "compute_capability": "Compute capability",
    "pyopencl": "pyopencl",
}


def _label(key: str) -> str:
    return _LABELS.get(key, key)


def method_facts(cells: pd.DataFrame, provenance: Sequence[Json]) -> Json:
    """Numbers that the method section names."""
    ok = cells[cells["status"] == Status.OK]
    p = provenance[0]["params"]
    half = (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])
    return {
        "cells": len(cells),
        "ok": len(ok),
        "samples": int(ok["samples_s"].map(len).sum()),
        "min_samples": p["measure"]["min_samples"],
        "max_samples": p["measure"]["max_samples"],
        "target": percent(p["measure"]["relative_half_width"]),
        "seed": p["seed"],
        "half_width_median": percent(float(half.median())) if len(ok) else "—",
        "half_width_p95": percent(float(half.quantile(0.95))) if len(ok) else "—",
        "verified_words": f"{int(ok['verified_words'].sum()):,}".replace(",", " "),
        "copy": gbs(float(ok["copy_gbs"].median())) if len(ok) else "—",
    }


def findings(cells: pd.DataFrame, best: pd.DataFrame, fits: Sequence[Json]) -> list[str]:
    """Headline sentences, each with its interval."""
    out = []
    for (kernel, dtype), group in best[best["is_fastest"]].groupby(["kernel", "dtype"], sort=True):
        top = group.loc[group["bandwidth_gbs"].idxmax()]
        others = int(top["tied"]) - 1
        tied = "alone" if not others else f"tied with {others} other{'s' * (others > 1)}"
        out.append(
            f"{kernel}, {dtype}: best {interval(top)} with {top['params']} ({top['variant']}), "
            f"{tied} of {top['candidates']} valid cells."
        )
    judged = [f for f in fits if f["converged"] and f["held_out_median_error"] is not None]
    if judged:
        errors = sorted(f["held_out_median_error"] for f in judged)
        worst = max(f["held_out_worst_error"] for f in judged)
        out.append(
            f"The closed model predicts points it has not seen with a median error of "
            f"{percent(errors[0])} to {percent(errors[-1])} over {len(judged)} series; "
            f"the worst single point is off by {percent(worst)}."
        )
    for f in fits:
        if not f["converged"]:
            out.append(f"The fit of {_series(f)} did not converge: {f['message']}.")
    wrong = cells[cells["status"] == Status.WRONG_RESULT]
    if len(wrong):
        out.append(
            f"{len(wrong)} cells computed a wrong result and were excluded from every figure."
        )
    return out


def best_rows(best: pd.DataFrame) -> list[Json]:
    """One line for each group: the fastest cell and the size of its tied set."""
    rows = []
    keys = ["kernel", "dtype", "variant", "height", "width"]
    for key, group in best.groupby(keys, sort=True):
        names = dict(zip(keys, key, strict=True))
        top = group[group["is_fastest"]].iloc[0]
        others = [c for c in group["params"] if c != top["params"]]
        more = len(others) - NAMED_TIES
        tied = "; ".join(_short(o) for o in others[:NAMED_TIES]) + (
            f"; and {more} more" if more > 0 else ""
        )
        rows.append(
            {
                "kernel": names["kernel"],
                "dtype": names["dtype"],
                "variant": names["variant"],
                "size": f"{names['height']} × {names['width']}",
                "fastest": _short(top["params"]),
                "bandwidth": interval(top),
                "tied": f"{len(group)} of {top['candidates']}",
                "others": tied or "none",
            }
        )
    return rows


def _short(params: str) -> str:
    """``block_x=64, block_y=4`` as ``64×4``; a single parameter as its value."""
    return "×".join(p.split("=")[1] for p in params.split(", "))


def _series(fit: Json) -> str:
    return f"{fit['kernel']}, {fit['dtype']}, {fit['variant']}, {fit['height']} × {fit['width']}"


def fit_rows(fits: Sequence[Json]) -> list[Json]:
    """One line for each fitted series; a failed fit shows its reason."""
    rows = []
    for f in fits:
        p = f["parameters"]
        rows.append(
            {
                "series": _series(f),
                "converged": f["converged"],
                "message": f["message"],
                "start": _estimate(p.get("start_s"), seconds),
                "tile": _estimate(p.get("tile_s"), seconds),
                "bus": _estimate(p.get("bus_s"), seconds),
                "crowding": _estimate(p.get("crowding"), number),
                "overlap": _estimate(p.get("overlap"), number),
                "points": f"{f['points'] - f['held_out_points']} + {f['held_out_points']}",
                "train": "—"
                if f["train_median_error"] is None
                else percent(f["train_median_error"]),
                "held": "—"
                if f["held_out_median_error"] is None
                else percent(f["held_out_median_error"]),
                "worst": "—"
                if f["held_out_worst_error"] is None
                else f"{percent(f['held_out_worst_error'])} at {f['held_out_worst_blocks']}",
            }
        )
    return rows


def _estimate(e: Json | None, show: Any) -> str:
    if e is None:
        return "—"
    if not e["identified"]:
        return f"{show(e['value'])} (not determined)"
    return f"{show(e['value'])} ({show(e['low'])} to {show(e['high'])})"


def check_rows(checks: Sequence[Json]) -> list[Json]:
    """The document's numbers beside ours."""
    rows = []
    for c in checks:
        digits = c["decimals"]
        rows.append(
            {
                "quantity": c["quantity"] + (", without the slip" if c["corrects"] else ""),
                "published": f"{c['published']:.{digits}f}",
                # One digit more than the document printed, where it printed a fraction.
                "ours": f"{c['ours']:.{digits + 1 if digits else 0}f}",
                "unit": c["unit"],
                "how": c["how"],
            }
        )
    return rows


def doubling_rows(cells: pd.DataFrame) -> list[Json]:
    """The doubling law as measured: bandwidth at 1, 2, 4, … blocks, and double over float."""
    ok = cells[(cells["status"] == Status.OK) & (cells["kernel"] == "block_eq_partition")]
    if "num_partition" not in ok.columns:
        return []
    rows = []
    for (variant, height, width), group in ok.groupby(["variant", "height", "width"], sort=True):
        table = group.pivot_table("bandwidth_gbs", "num_partition", "dtype")
        for n in (1, 2, 4, 8, 16, 30, 32):
            if n not in table.index or not {"float", "double"} <= set(table.columns):
                continue
            single, double = table.loc[n, "float"], table.loc[n, "double"]
            rows.append(
                {
                    "series": f"{variant}, {height} × {width}",
                    "blocks": str(n),
                    "float": f"{single:.3g}",
                    "double": f"{double:.3g}",
                    "ratio": f"{double / single:.2f}",
                    "float_gain": f"{single / table.loc[1, 'float']:.2f}"
                    if 1 in table.index
                    else "—",
                    "double_gain": f"{double / table.loc[1, 'double']:.2f}"
                    if 1 in table.index
                    else "—",
                }
            )
    return rows


def status_rows(cells: pd.DataFrame) -> Json:
    """Header and body of the table of statuses."""
    counts = status_counts(cells)
    return {
        "header": ["kernel", "dtype", "variant", *counts.columns],
        "body": [
            [*map(str, key), *(str(int(v)) for v in row)]
            for key, row in zip(counts.index, counts.to_numpy(), strict=True)
        ],
    }


def fault_rows(cells: pd.DataFrame) -> list[Json]:
    """Faults grouped by their message, so that a broken build is one line."""
    bad = faults(cells).fillna({"message": ""})
    groups = bad.groupby(["kernel", "dtype", "variant", "status", "message"], observed=True)
    return [
        {"where": f"{k}, {d}, {v}", "status": s, "message": m or "no message", "cells": str(n)}
        for (k, d, v, s, m), n in groups.size().items()
    ]


def provenance_rows(provenance: Sequence[Json]) -> list[Json]:
    """One line for each shard."""
    rows = []
    for p in provenance:
        kernel = p["params"]["folder"].rsplit("/", 1)[-1]
        index, count = p["params"]["shard"]
        builds = "; ".join(f"{v}: {o}" for v, o in sorted(p["builds"].items())) or "no build"
        rows.append(
            {
                "shard": f"{kernel}, {p['params']['dtype']}, part {index + 1} of {count}",
                "digest": p["kernel_digest"],
                "written": p["written_at"],
                "builds": builds,
            }
        )
    return rows
