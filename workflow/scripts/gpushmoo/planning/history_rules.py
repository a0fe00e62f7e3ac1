"""What the rules of a run's history ask of it."""

from __future__ import annotations

from typing import Any

from ..core.history_schema import CHANGE_POINTS_FILE, HISTORY_FILE
from .compare_rules import data_files
from .flow import Flow

PRODUCTS = (HISTORY_FILE, CHANGE_POINTS_FILE, "summary.md")


def history_products(flow: Flow) -> list[str]:
    """What the stage of history writes."""
    return [flow.path("history", name) for name in PRODUCTS]


def history_files(flow: Flow) -> list[str]:
    """The same where the configuration asks for a history; else nothing."""
    return history_products(flow) if flow.config.earlier is not None else []


def history_inputs(flow: Flow) -> list[str]:
    """The Parquet files of the earlier runs."""
    earlier = flow.config.earlier
    return data_files(earlier.folders) if earlier else []


def history_params(flow: Flow) -> dict[str, Any]:
    """What the stage is told; plain values."""
    earlier, run = flow.config.earlier, flow.config.run
    if earlier is None:
        return {}
    told = {"run": run, "earlier": list(earlier.folders)}
    return {**told, "otava": earlier.otava, "delta": earlier.delta}
