"""The model of persistent blocks, as rows and sentences of the report."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.display import number, percent, seconds
from .tables import Json, Namer


def fit_sentences(fits: Sequence[Json], names: Namer) -> list[str]:
    """How well the model predicts, and which fits did not converge."""
    out = []
    judged = [f for f in fits if f["converged"] and f["held_out_median_error"] is not None]
    if judged:
        errors = sorted(f["held_out_median_error"] for f in judged)
        worst = max(f["held_out_worst_error"] for f in judged)
        out.append(
            "The closed model predicts points left out at random, between those that it was "
            f"fitted to, with a median error of "
            f"{percent(errors[0])} to {percent(errors[-1])} over {len(judged)} series; "
            f"the worst single point is off by {percent(worst)}."
        )
    for f in fits:
        if not f["converged"]:
            out.append(f"The fit of {names.series(f)} did not converge: {f['message']}.")
    return out


# Parameters of the model, as the table names them, and how a value of each is written.
_PARAMETERS = {
    "start_s": ("start", seconds),
    "tile_s": ("a tile", seconds),
    "bus_s": ("its part of the bus", seconds),
    "crowding": ("crowding", number),
    "overlap": ("overlap", number),
}


def fit_rows(fits: Sequence[Json], names: Namer) -> list[Json]:
    """One line for each fitted series; a failed fit shows its reason.

    A parameter stands there only where the points determine it.
    """
    return [
        {
            "series": names.series(f),
            "converged": f["converged"],
            "message": f["message"],
            "parameters": _determined(f["parameters"]),
            "points": f"{f['points'] - f['held_out_points']} + {f['held_out_points']}",
            "held": _share(f["held_out_median_error"]),
            "worst": _share(f["held_out_worst_error"], f" at {f['held_out_worst_blocks']}"),
        }
        for f in fits
    ]


def _determined(parameters: Json) -> str:
    words = [
        f"{words} {show(e['value'])}"
        for name, (words, show) in _PARAMETERS.items()
        if (e := parameters.get(name)) is not None and e["identified"]
    ]
    return ", ".join(words) or "none"


def _share(share: float | None, more: str = "") -> str:
    return "—" if share is None else f"{percent(share)}{more}"
