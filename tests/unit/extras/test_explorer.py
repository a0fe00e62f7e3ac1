"""The explorer's page as Python makes it; tests/browser looks at it in a browser."""

import gzip
import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from explored import HOSTILE, explored_dataset, write_predictions
from gpushmoo import ExplorerError, explore
from gpushmoo.analysis.best import best_of_dataset
from gpushmoo.analysis.fastest import axes_of, params_text
from gpushmoo.core.run_plan import PLAN_FILE, RunPlan, SweepPlan, plain
from gpushmoo.core.schema import BEST_COLUMNS, GROUP
from gpushmoo.core.shard_job import ShardJob
from gpushmoo.extras.explorer.explore import (
    Payload,
    Source,
    decimals,
    payload,
    sample_steps,
    version_facts,
    write_run_page,
)
from gpushmoo.interactive.shell import main
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import open_shard, read_shard, write_parquet
from gpushmoo.storage.wholefile import read_complete, write_json


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explored")
    explored_dataset(folder)
    return folder


@pytest.fixture(scope="module")
def made(place: Path) -> Payload:
    cells = read_cells(place / "dataset", {"kernel": "block_eq_partition"})
    write_predictions(cells, place / "d.parquet")
    return payload(Source(place / "dataset", "name", device=place / "d.parquet"))


def unpacked(text: str) -> dict[str, list[Any]]:
    """The columns of a block as the page reads them, apart from lists, which stay flat."""
    data = gzip.decompress(b64decode(text))
    start = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(data[4:start])
    columns = {}
    for column in header["columns"]:
        arrays = []
        for kind, count in column.get("arrays", []):
            width = np.dtype(kind).itemsize
            planes = np.frombuffer(data, np.uint8, count * width, start).reshape(width, count)
            arrays.append(np.ascontiguousarray(planes.T).view(f"<{kind}").ravel().tolist())
            start += count * width
        match column["kind"]:
            case "codes":
                codes = arrays[0] if arrays else [0] * header["rows"]
                columns[column["name"]] = [column["values"][code] for code in codes]
            case "decimal":
                pairs = zip(*arrays, strict=True)
                known = ((m, e) for m, e in pairs)
                columns[column["name"]] = [
                    None if e == -(2**15) else float(f"{m}e{e}") for m, e in known
                ]
            case _:
                columns[column["name"]] = arrays[0]
    assert start == len(data)
    return columns


def part_of(made: Payload, kernel: str, dtype: str) -> dict[str, Any]:
    parts = made.index["parts"]
    found: dict[str, Any] = next(p for p in parts if (p["kernel"], p["dtype"]) == (kernel, dtype))
    return found


def test_numbers_and_samples_are_rounded() -> None:
    rng = np.random.default_rng(3)
    drawn = rng.lognormal(0, 12, 3000) * rng.choice([-1, 1], 3000)
    # Halves of the last digit, which no double but few holds, and what carries over.
    halves = np.round(rng.uniform(1000, 9999, 3000)) + 0.5
    special = [0.0, 1.0, 9.9995, 9999.5, 99995.0, 1e-300, 1e300, 5e-324, 0.1]
    values = np.concatenate([drawn, halves, halves / 1e7, special])
    mantissas, exponents = decimals(values)
    back = [float(f"{m}e{e}") for m, e in zip(mantissas, exponents, strict=True)]
    assert back == [float(f"{v:.3e}") for v in values]
    assert decimals(np.array([np.nan, np.inf]))[1].tolist() == [-(2**15)] * 2
    samples, medians = np.array([1e-6, 2e-6, 1.0001e-6, 1.0]), np.full(4, 1e-6)
    assert sample_steps(samples, medians).tolist() == [0, 6931, 1, 32767]
    assert sample_steps(np.array([0.0]), np.array([1e-6])).tolist() == [-32767]


def test_all_cells_are_on_the_page(made: Payload, place: Path) -> None:
    cells = read_cells(place / "dataset")
    assert made.index["cells"] == len(cells) == sum(p["rows"] for p in made.index["parts"])
    for part in made.index["parts"]:
        mine = cells[(cells["kernel"] == part["kernel"]) & (cells["dtype"] == part["dtype"])]
        mine = mine.sort_values([*GROUP, *part["axes"]])
        shown = unpacked(made.blocks[part["figures"]])
        assert part["axes"] == sorted(axes_of(mine))
        for name in ("median_s", "group_low_s", "group_high_s"):
            np.testing.assert_array_equal(shown[name], mine[name])
        for name in ("status", "message", "blocks", "registers", *part["axes"]):
            expected = [None if v != v else v for v in mine[name].tolist()]
            assert shown[name] == expected, name
        expected = [None if v != v else float(f"{v:.3e}") for v in mine["bandwidth_low_gbs"]]
        assert shown["bandwidth_low_gbs"] == expected
        samples = unpacked(made.blocks[part["samples"]])
        assert samples["#samples_s"] == mine["samples_s"].map(len).tolist()
        back = np.exp(np.array(samples["samples_s"]) * 1e-4)
        medians = np.repeat(mine["median_s"].to_numpy(float), samples["#samples_s"])
        np.testing.assert_allclose(back * medians, np.concatenate(mine["samples_s"].tolist()), 6e-5)


def test_groups_tell_their_best_as_the_analysis_does(made: Payload, place: Path) -> None:
    best = best_of_dataset(place / "dataset").to_pandas()
    axes = [axis for axis in axes_of(best) if axis not in BEST_COLUMNS]
    names = ["kernel", "dtype", "height", "width", "cache_state"]
    expected = {
        tuple(row[n] for n in names): (
            params_text(row, [axis for axis in axes if pd.notna(row[axis])]),
            row["tied"],
            row["candidates"],
        )
        for row in best[best["is_fastest"]].to_dict("records")
    }
    told = {
        tuple((part | group)[n] for n in names): (
            group["best"]["params"],
            group["tied"],
            group["ok"],
        )
        for part in made.index["parts"]
        for group in part["groups"]
    }
    assert told == expected
    assert max(tied for _, tied, _ in told.values()) > 1


def test_the_model_stands_beside_the_cells_that_it_predicts(made: Payload, place: Path) -> None:
    predicted = unpacked(made.blocks[part_of(made, "block_eq_partition", "float")["figures"]])
    assert sum(v is not None for v in predicted["#predicted_gbs"]) == len(predicted["blocks"])
    copies = unpacked(made.blocks[part_of(made, "copy2d_coalesced", "float")["figures"]])
    assert set(copies["#predicted_gbs"]) == {None}


def test_the_same_cells_make_the_same_page_and_a_text_cannot_end_its_script(place: Path) -> None:
    pages = [explore(place / "dataset", out=place / f"{name}.html") for name in ("one", "two")]
    first, second = (read_complete(page) for page in pages)
    assert first == second
    text = first.decode()
    assert HOSTILE not in text
    assert "<!-- blocks -->" not in text
    # Nothing is fetched: no address is in an attribute or a style.
    assert re.findall(r"""(?:src|href)=["'](?!#)[^"']*|url\([^)]*\)|@import""", text) == []
    assert text.count('<script type="text/plain"') == 2 * 4


def test_facts_of_the_code_are_told_once_for_all_versions_that_share_them() -> None:
    access = {"kind": "load", "space": "global", "width": 16, "count": 2, "in_loop": 1}
    entry = {
        "entry": "k",
        "registers": 18,
        "spill_loads": 1,
        "spill_stores": 2,
        "accesses": [access],
    }
    variants = {f"tile PAD={n}": {"entries": [entry], "failure": None} for n in (0, 1)}
    shard = {
        "params": {"folder": "kernels/mine", "dtype": "float"},
        "builds": dict.fromkeys(variants, "-O3"),
        "build_failures": {"tile PAD=2": "no"},
        "machine_code": {"arch": "sm_90", "variants": variants},
    }
    (told,) = version_facts([shard, shard]).values()
    assert told["versions"] == {"tile PAD=0": 0, "tile PAD=1": 0, "tile PAD=2": 1}
    assert told["facts"][0] == [
        "Options: -O3",
        "k: 18 registers, 3 spills; 2 global loads of 16 bytes in a loop",
        "Architecture: sm_90",
    ]


@pytest.fixture
def running(place: Path, tmp_path: Path) -> Path:
    """A run of two shards, of which one is finished."""
    source = place / "cells" / "block_eq_partition" / "float" / "0000-of-0001.parquet"
    table, metadata = read_shard(source)
    sweeps = {}
    for name, dtype in (("block_eq_partition", "float"), ("later", "double")):
        job = ShardJob.of_plain({**metadata["params"], "dtype": dtype})
        sweeps[name] = {dtype: SweepPlan(job.part(0, 1))}
    run = tmp_path / "run"
    write_json(run / PLAN_FILE, plain(RunPlan(sweeps).as_plain()))
    done = run / "cells" / "block_eq_partition" / "float" / "0000-of-0001.parquet"
    kept = {k: v for k, v in metadata.items() if k != "schema_version"}
    write_parquet(table, done, kept)
    assert open_shard(done).metadata["params"]["dtype"] == "float"
    return run


def told_by(page: Path) -> list[dict[str, Any]]:
    text = read_complete(page).decode()
    (index,) = re.findall(r'<script type="application/json" id="index">(.*?)</script>', text)
    told: list[dict[str, Any]] = json.loads(index)
    return told


def test_runs_are_told_apart(running: Path, place: Path, made: Payload, tmp_path: Path) -> None:
    (running / "cells" / ".kept" / "x").mkdir(parents=True)
    (running / "cells" / ".kept" / "x" / "0000-of-0001.parquet").write_bytes(b"not looked at")
    page = explore(running)
    assert page == running / "explorer.html"
    (told,) = told_by(page)
    assert told["cells"] == 9
    progress = {"shards": 1, "planned_shards": 2, "planned_cells": 18, "about": False}
    assert told["progress"] == progress
    out = running / "explorer.html"
    facts = tmp_path / "facts.json"
    first = {"kernel": "block_eq_partition", "dtype": "float", "variant": "exact"}
    write_json(facts, {"first_page": {"first": first}})
    write_run_page(place / "dataset", [place / "d.parquet"], [], facts, "local", out)
    (told,) = told_by(out)
    # The page opens on the group with which the report begins.
    assert told["first"] == first
    assert made.index["first"] is None, "without a report"
    assert (told["name"], told["progress"], told["cells"]) == ("local", None, made.index["cells"])
    page = explore(place / "cells" / "single", place / "cells" / "single", out=tmp_path / "x.html")
    assert [told["name"] for told in told_by(page)] == ["single (1)", "single (2)"]


def nothing_yet(folder: Path, running: Path) -> Path:
    for shard in (running / "cells").rglob("*.parquet"):
        shard.unlink()
    return running


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path.parent


BAD: dict[str, Callable[[Path, Path], Path]] = {
    "does not exist; name a run's folder": lambda folder, running: folder / "nothing",
    "is a file; name the folder of a run": lambda folder, running: running / PLAN_FILE,
    "contains neither a data set nor shards": lambda folder, running: folder,
    "has no finished shard yet; try again": nothing_yet,
    "plan.json' cannot be read (": lambda folder, running: written(running / PLAN_FILE, "[]"),
    "is not a whole Parquet file": lambda folder, _: written(folder / "x.parquet", "PAR1"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_what_cannot_be_explored_is_one_sentence(
    sentence: str, tmp_path: Path, running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    named, out = BAD[sentence](folder, running), tmp_path / "page.html"
    with pytest.raises(ExplorerError, match=re.escape(sentence)):
        explore(named, out=out)
    assert main(["explore", str(named), "--out", str(out)]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_where_a_page_lies(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = place / "cells" / "single"
    with pytest.raises(ExplorerError, match=r"must end in \.html"):
        explore(single, out=tmp_path / "page.txt")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ExplorerError, match="cannot be written to"):
        explore(single, out=tmp_path / "file" / "page.html")
    assert main(["explore", str(single), "--out", str(tmp_path / "page.html")]) == 0
    assert "opens in any browser" in capsys.readouterr().out
