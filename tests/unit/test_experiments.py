"""Instruments name what the library has, and what judges a chaos run sees what is wrong."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos import THREAD_LIMIT, draw_round, judge_dataset, judge_products, planned_cells
from conftest import ROOT

Row = dict[str, Any]


def row_of(key: tuple[Any, ...], threads: int) -> Row:
    """A row as it must be, of a run with two repeats."""
    kernel, height, width, block_x, block_y = key
    samples = [1e-3 * (1 + 0.01 * i) for i in range(6)]
    median, n_bytes = float(np.median(samples)), 4 * height * width
    return {
        "sweep": kernel,
        "height": height,
        "width": width,
        "block_x": block_x,
        "block_y": block_y,
        "status": "too_many_threads" if threads > THREAD_LIMIT else "ok",
        "message": None,
        "samples_s": samples * 2,
        "repeat_samples": [6, 6],
        "repeat_medians_s": [median] * 2,
        "median_s": median,
        "median_low_s": 0.9 * median,
        "median_high_s": 1.1 * median,
        "bytes_read": n_bytes,
        "bytes_written": n_bytes,
        "bandwidth_gbs": 2e-9 * n_bytes / median,
        "verified_words": 1,
        "wrong_words": 0,
    }


def findings(folder: Path, change: Callable[[list[Row]], object]) -> set[str]:
    """What the judge finds in a data set that is complete but for what `change` does to it."""
    rows = [row_of(key, threads) for key, threads in planned_cells().items()]
    change(rows)
    for sweep in {row["sweep"] for row in rows}:
        part = folder / f"kernel={sweep}" / "dtype=float" / "part-0.parquet"
        part.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([r for r in rows if r["sweep"] == sweep]), part)
    return {f.kind for f in judge_dataset(folder)}


def blame(row: Row) -> None:
    row |= {"status": "launch_failed", "message": "was ended by SIGTERM"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("wrong rows", lambda rows: rows.pop()),
        ("wrong rows", lambda rows: rows.append(dict(rows[-1]))),
        ("wrong rows", lambda rows: rows[0].update(block_x=7)),
        ("wrong rows", lambda rows: rows[0].update(repeat_samples=[12])),
        ("wrong rows", lambda rows: rows[0].update(median_s=1.0)),
        ("wrong rows", lambda rows: rows[0].update(verified_words=0)),
        ("innocent cell blamed", lambda rows: blame(rows[0])),
    ],
)
def test_what_is_wrong_with_a_data_set_is_found(
    kind: str, change: Callable[[list[Row]], object], tmp_path: Path
) -> None:
    assert findings(tmp_path, change) == {kind}


def test_a_right_data_set_passes(tmp_path: Path) -> None:
    assert findings(tmp_path, lambda rows: None) == set()


def test_a_truncated_product_is_found(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.7 and half of the rest")
    assert "damaged product left" in {f.kind for f in judge_products(tmp_path)}


def test_a_round_is_drawn_the_same_again_and_rounds_differ() -> None:
    rounds = [draw_round("7", n) for n in range(1, 60)]
    assert rounds == [draw_round("7", n) for n in range(1, 60)]
    assert rounds[0].strikes != draw_round("8", 1).strikes
    assert {r.from_finished for r in rounds} == {True, False}


def test_what_instruments_import_from_the_library_is_there() -> None:
    missing = []
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpushmoo."):
                module = importlib.import_module(str(node.module))
                names = [
                    a.name
                    for a in node.names
                    if not hasattr(module, a.name) and not find_spec(f"{node.module}.{a.name}")
                ]
                missing += [f"{path.name}: {node.module}.{name}" for name in names]
    assert missing == []
