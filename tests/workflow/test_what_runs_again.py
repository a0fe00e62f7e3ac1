"""What a change makes Snakemake do again, and that it does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from gpushmoo.planning.snakemake_hooks import damage
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard
from gpushmoo.storage.wholefile import DamagedFileError
from projects import FinishedProject, Project, print_of
from synthetic import flipped_in_a_page

pytest_plugins = ("workflow_fixtures",)

LIBRARY = Path("workflow/scripts/gpushmoo")


def append(project: Project, path: Path, text: str) -> None:
    file = project.root / path
    file.write_text(file.read_text() + text)


def test_mended_docstrings_and_remarks_make_nothing_again(project: Project) -> None:
    kernel = Path("kernels/copy2d_coalesced")
    modules = [
        LIBRARY / "measuring/rounds.py",
        LIBRARY / "storage/dataset.py",
        Path("reports/chapters/tesla_c1060/pages.py"),
        LIBRARY / "measuring/server.py",
        kernel / "workload.py",
    ]
    for module in modules:
        file = project.root / module
        assert file.read_text().startswith('"""')
        file.write_text(file.read_text().replace('"""', '"""Mended. ', 1) + "\n# A remark.\n")
    # Measured by OpenCL.
    append(project, kernel / "kernel.cu", "\n// A remark.\n")
    assert project.plan() == {}


@pytest.mark.parametrize(
    ("module", "again"),
    [
        (LIBRARY / "figures/heatmap.py", {"figure", "report"}),
        (Path("reports/chapters/tesla_c1060/pages.py"), {"report"}),
        (
            LIBRARY / "storage/dataset.py",
            {"peak", "best", "figure", "explorer", "report"},
        ),
    ],
)
def test_changed_code_remakes_whatever_it_is_behind_and_measures_nothing(
    project: Project, module: Path, again: set[str]
) -> None:
    append(project, module, "\n_NEW = 1\n")
    jobs = project.plan()
    assert again | {"verdict", "all"} <= set(jobs)
    assert jobs["report"] == 1
    assert not {"measure", "repeat", "simulate"} & set(jobs)
    if "peak" not in again:
        assert set(jobs) == again | {"verdict", "all"}


def test_changed_measuring_code_measures_every_shard_anew(project: Project) -> None:
    append(project, LIBRARY / "measuring/rounds.py", "\n_NEW = 1\n")
    jobs = project.plan()
    assert jobs["measure"] == 4
    assert jobs["aggregate"] == 1
    assert jobs["report"] == 1


def test_a_changed_kernel_source_measures_only_that_kernel_anew(project: Project) -> None:
    append(project, Path("kernels/copy2d_coalesced/kernel.cl"), "\n// A remark.\n")
    assert project.plan()["measure"] == 2


def test_a_new_dtype_measures_only_its_own_shard(project: Project) -> None:
    before = print_of(project.results / "cells")
    more = {"kernels": {"copy2d_coalesced": {"dtypes": ["float", "double", "float3"]}}}
    config = ("tiny.yaml", project.write_config("more.yaml", more))
    jobs = project.plan(config=config)
    assert (jobs["build_kernel"], jobs["measure"], jobs["report"]) == (1, 1, 1)

    outcome = project.snakemake("results/tiny/dataset", config=config)
    assert outcome.status == 0, outcome.text
    assert outcome.jobs == {"build_kernel": 1, "measure": 1, "aggregate": 1}
    after = print_of(project.results / "cells")
    new = set(after) - set(before)
    assert new == {"copy2d_coalesced/double/0000-of-0001.parquet"}
    assert {name: after[name] for name in before} == before
    assert (project.results / "dataset/kernel=copy2d_coalesced/dtype=double").is_dir()


def test_damaged_shards_are_named_and_only_these_are_measured_anew(project: Project) -> None:
    """One is cut off, which every start sees; in one a bit is flipped, which its reader finds."""
    cut, flipped, *whole = project.shards
    name = str(cut.relative_to(project.root))
    table, _ = read_shard(cut)
    cut.write_bytes(cut.read_bytes()[:-100])
    wrong = bit_flipped(flipped.read_bytes())
    flipped.write_bytes(wrong)
    before = print_of(project.results)

    dry = project.snakemake("-n")
    assert dry.status == 0, dry.text
    assert f"'{name}' is not a whole Parquet file" in dry.text
    assert dry.jobs["measure"] == 1
    assert print_of(project.results) == before

    # Whole at both ends, wrong inside: it is kept, and never averaged in.
    first = project.snakemake("results/tiny/dataset")
    assert first.status != 0
    assert f"'{name}' is not a whole Parquet file" in first.text
    assert first.jobs == {"measure": 1, "aggregate": 1}
    aside = project.results / "quarantine" / flipped.relative_to(project.results)
    assert f"Set aside as '{aside.relative_to(project.root)}'" in first.text
    assert "Traceback" not in first.text
    assert aside.read_bytes() == wrong
    assert not flipped.exists()
    mended = cut.read_bytes()

    second = project.snakemake("results/tiny/dataset")
    assert second.status == 0, second.text
    assert second.jobs == {"measure": 1, "aggregate": 1}
    after = print_of(project.results)
    for path in (str(p.relative_to(project.results)) for p in whole):
        assert after[path] == before[path]
    assert cut.read_bytes() == mended
    assert len(read_shard(cut)[0]) == len(table)
    assert read_shard(flipped)[0].num_rows > 0
    assert len(pd.read_parquet(project.results / "dataset")) == 4 * 12 + 4 * 9


def bit_flipped(data: bytes) -> bytes:
    if data.startswith(b"PAR1"):
        return flipped_in_a_page(data)
    place = len(data) // 3
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def rows_of(data: bytes) -> int:
    return int(pq.read_metadata(BytesIO(data)).num_rows)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "last byte": lambda data: data[:-1],
    "bit": bit_flipped,
}
# What is found when it is read, and not by the look at every start: there may be gigabytes of it.
WHEN_READ = ("cells", "dataset/kernel=")


def products(results: Path) -> dict[str, tuple[int, bytes]]:
    """All files of a run that a rule promises."""
    found = print_of(results)
    apart = ("benchmarks/", "logs/", ".cache/", "quarantine/", "dataset/.snakemake_timestamp")
    return {name: file for name, file in found.items() if not name.startswith(apart)}


def test_damage_to_every_product_is_seen_at_the_next_start(
    finished: FinishedProject, tmp_path: Path
) -> None:
    kinds = set()
    for name, (_, data) in products(finished.results).items():
        copied = tmp_path / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(data)
    for name, (_, data) in products(finished.results).items():
        copied, is_shard = tmp_path / name, name.startswith("cells")
        product = tmp_path / "dataset" if name.startswith("dataset") else copied
        look = partial(damage, ends_alone=is_shard)
        assert look(product) is None
        for kind, damaged in DAMAGE.items():
            # Of a stream's bytes, and of a table without rows, nobody computes a sum.
            if copied.suffix == ".zst" and kind != "empty":
                continue
            if kind == "bit" and copied.suffix == ".parquet" and not rows_of(data):
                continue
            copied.write_bytes(damaged(data))
            fault = look(product)
            if kind == "bit" and name.startswith(WHEN_READ):
                assert fault is None
                with pytest.raises(DamagedFileError, match=str(product)):
                    read_shard(product) if is_shard else read_cells(product)
            else:
                assert fault is not None, (name, kind)
                assert str(product) in fault
        copied.write_bytes(data)
        assert look(product) is None
        kinds.add(copied.suffix)
        if not name.startswith("dataset"):
            copied.unlink()
            assert look(product) is None
    assert kinds == {".parquet", ".zst", ".json", ".svg", ".pdf", ".txt", ".html"}


def test_damaged_products_are_named_and_made_anew_and_nothing_is_measured(
    project: Project,
) -> None:
    """Figures and report repeat byte by byte; those of the record in test_simulations."""
    before = products(project.results)
    figures = [name for name in before if name.endswith(".svg")]
    assert len(figures) > 1
    damaged = {
        **dict.fromkeys(figures, "half"),
        "summary/peak.json": "empty",
        "summary/best.parquet": "bit",
        "summary/verdict.txt": "empty",
        "simulated/tesla-c1060-tables.parquet": "bit",
        "figures/simulated-tesla-c1060.json": "empty",
        "figures/heatmap-copy2d_coalesced-block_x-block_y-48x70-warm.svg": "bit",
        "report.json": "half",
        "report.pdf": "last byte",
        "explorer.html": "bit",
    }
    # It is seen only by the first stage that reads it.
    cells = "dataset/kernel=copy2d_coalesced/dtype=float/part-0.parquet"
    for name, kind in {**damaged, cells: "bit"}.items():
        path = project.results / name
        path.write_bytes(DAMAGE[kind](path.read_bytes()))
    struck = print_of(project.results)

    def named(text: str) -> set[str]:
        again = [x for x in text.splitlines() if x.endswith("It is not used but made again.")]
        return {x.split("'")[1].removeprefix("results/tiny/") for x in again}

    dry = project.snakemake("-n")
    assert dry.status == 0, dry.text
    assert named(dry.text) == set(damaged)
    assert print_of(project.results) == struck

    first = project.snakemake()
    assert first.status != 0
    assert named(first.text) == set(damaged)
    assert "Set aside as 'results/tiny/quarantine/dataset'; start the run again" in first.text
    assert "Traceback" not in first.text
    aside = project.results / "quarantine" / cells
    assert aside.read_bytes() == struck[cells][1]

    second = project.snakemake()
    assert second.status == 0, second.text
    for jobs in (dry.jobs, first.jobs, second.jobs):
        assert not {"measure", "repeat"} & set(jobs)
    after = products(project.results)
    assert {name: data for name, (_, data) in after.items()} == {
        name: data for name, (_, data) in before.items()
    }
    for name in (name for name in before if name.startswith("cells")):
        assert after[name] == before[name]
