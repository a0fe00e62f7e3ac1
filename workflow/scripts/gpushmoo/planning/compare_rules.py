"""What the rules of the target ``compare`` ask of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core.run_plan import PLAN_FILE
from ..storage.packed import unpacked
from .flow import Flow

# What a comparison writes below ``results/<run>/compare/``.
PRODUCTS = ("cells.parquet", "groups.parquet", "drift.parquet", "summary.md")
PAGES = ("changes.svg", "changes.json", "compare.pdf")


def compared_files(flow: Flow) -> list[str]:
    """Paths of what the comparison writes."""
    return [flow.path("compare", name) for name in (*PRODUCTS, *PAGES)]


def compared_target(flow: Flow) -> list[str]:
    """What the target asks for. Raises SystemExit with a sentence where no runs are named."""
    if flow.config.compared is None:
        raise SystemExit(
            "gpushmoo: compare needs two runs: snakemake compare --config "
            "before=results/one after=results/other"
        )
    guard = [flow.path("compare", "guard.txt")] if flow.config.compared.guard else []
    return [*compared_files(flow), flow.path("compare", "explorer.html"), *guard]


def compared_inputs(flow: Flow) -> list[str]:
    """The Parquet files of all compared data sets."""
    compared = flow.config.compared
    return data_files((*compared.a, *compared.b, *compared.same)) if compared else []


def data_files(folders: Iterable[str]) -> list[str]:
    """The Parquet files of the data sets in these folders, finished or recorded.

    Not the shards of a run that goes on: of this very run they would be measured.
    """
    files: list[Path] = []
    for folder in map(Path, folders):
        if (folder / "dataset").is_dir():
            files += sorted((folder / "dataset").rglob("*.parquet"))
        elif not (folder / PLAN_FILE).is_file():
            files += sorted(unpacked(folder).rglob("*.parquet"))
    return [str(file) for file in dict.fromkeys(files)]


def compared_params(flow: Flow) -> dict[str, Any]:
    """What the comparing job is told; plain values."""
    compared = flow.config.compared
    if compared is None:
        return {}
    sides = {"a": list(compared.a), "b": list(compared.b), "same": list(compared.same)}
    return {**sides, "delta": compared.delta}
