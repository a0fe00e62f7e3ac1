"""What the model of a block's shape found, as rows and sentences of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..analysis.models.blocks import LIMITS, NONE
from ..core.display import percent, significant
from .tables import Json, Namer

# How a limit of the model reads in a sentence that begins with "blocks are limited".
_LIMIT_WORDS = {
    "launch": "by the rate at which they are started",
    "residency": "by how long they hold their places",
    "issue": "by what the pipelines do for each warp",
    "requests": "by the sectors that their warps ask for",
    "memory": "by the sectors that they touch",
}
# The heads of the table's columns of errors.
_LAYOUT_WORDS = {NONE: "ignored", "rows": "in rows"}
# A model that misses more than this of 1 in 20 shapes leaves something open.
OPEN = 0.2
# A mapping of which it misses so much in the median is named.
BIASED = 0.1


def shape_rows(fits: Sequence[Json], names: Namer) -> list[Json]:
    """One line for each fitted series; one that did not converge shows its reason."""
    return [_row(f, names) for f in fits]


def _row(f: Json, names: Namer) -> Json:
    series = _series(f, names)
    if f["best"] is None:
        return {"series": series, "best": None, "message": f["reason"]}
    believed = f["hypotheses"][f["best"]]
    fitted, shares = believed["parameters"], _shares(f)
    return {
        "series": series,
        "best": _LAYOUT_WORDS.get(f["best"], f["best"]),
        "points": f"{f['points'] - f['held_out_points']} + {f['held_out_points']}",
        "errors": [_error(believed["held_out_error"], n) for n in ("median", "p95")],
        "limits": [
            percent(shares.get(limit, 0.0)) if set(names_of) <= set(fitted) else "—"
            for limit, names_of in LIMITS.items()
        ],
    }


def _series(f: Json, names: Namer) -> str:
    return f"{f['kernel']}, {f['dtype']}, {names.size(f)}"


def _error(error: Mapping[str, float] | None, which: str) -> str:
    return "—" if error is None else percent(error[which])


def _shares(f: Json) -> dict[str, float]:
    """Share of the cells that each limit governs, over all mappings, the largest first."""
    total = sum(m["points"] for m in f["mappings"].values())
    shares: dict[str, float] = {}
    for mapping in f["mappings"].values():
        for limit, share in mapping["limits"].items():
            shares[limit] = shares.get(limit, 0.0) + share * mapping["points"] / total
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def shape_gaps(fits: Sequence[Json], left_out: Sequence[Json], names: Namer) -> list[str]:
    """What the model does not explain, and of which series it says nothing."""
    out = []
    for f in fits:
        if f["best"] is None:
            continue
        believed = f["hypotheses"][f["best"]]
        judged = believed["held_out_error"] or believed["train_error"]
        if judged["p95"] <= OPEN:
            continue
        missed = [
            f"{variant} takes {significant(1 / (1 + m['bias']), 2)} times what it says"
            for variant, m in f["mappings"].items()
            if abs(m["bias"]) > BIASED
        ]
        bias_words = f" In the median {' and '.join(missed)}." if missed else ""
        out.append(
            f"{_series(f, names)}: 5 % of the shapes are missed by more than "
            f"{percent(judged['p95'])}, so a limit is lacking.{bias_words}"
        )
    for why in sorted({s["why"] for s in left_out}):
        kernels = sorted({s["kernel"] for s in left_out if s["why"] == why})
        out.append(f"{', '.join(kernels)}: not modelled, as {why}.")
    return out


def shape_findings(fits: Sequence[Json], names: Namer) -> list[str]:
    """A sentence for each kernel: what limits most shapes, and whether the footprint shows.

    Its largest size stands for it, and of that float where there are several element types.
    """
    out = []
    for kernel in sorted({f["kernel"] for f in fits}):
        modelled = [f for f in fits if f["kernel"] == kernel and f["best"] is not None]
        if not modelled:
            continue
        f = max(modelled, key=lambda f: (f["height"] * f["width"], f["dtype"] == "float"))
        limits = " and ".join(
            f"{_LIMIT_WORDS[limit]} ({percent(share)} of the shapes)"
            for limit, share in list(_shares(f).items())[:2]
        )
        out.append(f"{_series(f, names)}: blocks are limited {limits}. {f['reason']}")
    return out
