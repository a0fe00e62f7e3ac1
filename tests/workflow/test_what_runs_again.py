"""What a change makes Snakemake do again, and that it does nothing else."""

import shutil
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from gpushmoo.core.errors import DamagedFileError
from gpushmoo.planning.again import damage
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard
from projects import FinishedProject, Project, print_of
from synthetic import flipped_in_a_page

pytest_plugins = ("workflow_fixtures",)

LIBRARY = Path("workflow/scripts/gpushmoo")
ROUNDS, READER = LIBRARY / "measuring/rounds.py", LIBRARY / "analysis/aggregate.py"


def append(project: Project, path: Path, text: str) -> None:
    file = project.root / path
    file.write_text(file.read_text() + text)


def test_changed_code_remakes_what_it_is_behind(project: Project) -> None:
    kernel, pages = Path("kernels/copy2d_coalesced"), Path("reports/chapters/tesla_c1060/pages.py")
    # Comments and docstrings count in the library, and not in a kernel.
    workload = project.root / kernel / "workload.py"
    assert workload.read_text().startswith('"""')
    workload.write_text(workload.read_text().replace('"""', '"""Edited. ', 1) + "\n# A remark.\n")
    append(project, kernel / "kernel.cl", "\n// A remark.\n")
    # Measured by OpenCL.
    append(project, kernel / "kernel.cu", "\n#define NEW 1\n")
    assert project.plan() == {}
    # Each change on top of those before.
    # The explorer opens on the group with which the report begins.
    ends = {"report", "explorer", "verdict", "all"}
    drawn = {"figure", "figure_simulated", "atlas", *ends}
    for module, again in ((pages, ends), (LIBRARY / "figures/heatmap.py", drawn)):
        append(project, module, "\n# A remark.\n")
        assert set(project.plan()) == again
    append(project, READER, "\n# A remark.\n")
    jobs = project.plan()
    assert {"aggregate", "peak", "best", *drawn} <= set(jobs)
    assert not {"measure", "repeat", "simulate"} & set(jobs)
    append(project, kernel / "kernel.cl", "\n#define NEW 1\n")
    assert project.plan()["measure"] == 2
    append(project, ROUNDS, "\n# A remark.\n")
    assert project.plan()["measure"] == 4


def test_a_new_dtype_measures_only_its_own_shard(project: Project) -> None:
    before = print_of(project.results / "cells")
    more = {"kernels": {"copy2d_coalesced": {"dtypes": ["float", "double", "float3"]}}}
    config = ("tiny.yaml", project.write_config("more.yaml", more))
    outcome = project.snakemake("results/tiny/dataset", config=config)
    assert outcome.status == 0, outcome.text
    assert outcome.jobs == {"build_kernel": 1, "measure": 1, "aggregate": 1}
    after = print_of(project.results / "cells")
    assert set(after) - set(before) == {"copy2d_coalesced/double/0000-of-0001.parquet"}
    assert after.items() >= before.items()
    assert (project.results / "dataset/kernel=copy2d_coalesced/dtype=double").is_dir()


def test_damaged_shards_are_named_and_only_these_are_measured_anew(project: Project) -> None:
    """One is cut off, which every start sees; in one a bit is flipped, which its reader finds."""
    cut, flipped, *whole = project.shards
    table, _ = read_shard(cut)
    cut.write_bytes(cut.read_bytes()[:-100])
    wrong = flipped_in_a_page(flipped.read_bytes())
    flipped.write_bytes(wrong)
    before = print_of(project.results)

    # Whole at both ends, wrong inside: it is kept, and never averaged in.
    first = project.snakemake("results/tiny/dataset")
    assert first.status != 0
    assert f"'{cut.relative_to(project.root)}' is not a whole Parquet file" in first.text
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
    assert len(pd.read_parquet(project.results / "dataset")) == 4 * 12 + 4 * 9


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "end": lambda data: data[:-9],
    "bit": flipped_in_a_page,
}
# All that is noticed, by the kind of file: nobody knows where a stream or a text ends, and only the
# pages of tables have checksums.
NOTICED = {".zst": {"empty"}, ".txt": {"empty"}, ".parquet": {*DAMAGE}}
# What is found when it is read, and not by the look at every start: there may be gigabytes of it.
WHEN_READ = ("cells", "dataset/kernel=")


def products(results: Path) -> dict[str, tuple[int, bytes]]:
    """All files of a run that a rule promises."""
    found = print_of(results)
    apart = ("benchmarks/", "logs/", ".cache/", "quarantine/", "dataset/.snakemake_timestamp")
    return {name: file for name, file in found.items() if not name.startswith(apart)}


def test_any_damage_is_seen_at_the_next_start(finished: FinishedProject, tmp_path: Path) -> None:
    shutil.copytree(finished.results, tmp_path / "run", symlinks=True)
    kinds = set()
    for name, (_, data) in products(finished.results).items():
        copied, is_shard = tmp_path / "run" / name, name.startswith("cells")
        product = tmp_path / "run/dataset" if name.startswith("dataset") else copied
        look = partial(damage, ends_alone=is_shard)
        assert look(product) is None
        for kind, damaged in DAMAGE.items():
            if kind not in NOTICED.get(copied.suffix, {"empty", "half", "end"}):
                continue
            # A table without rows has no page.
            if kind == "bit" and not pq.read_metadata(BytesIO(data)).num_rows:
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
        kinds.add(copied.suffix)
    assert kinds == {".parquet", ".zst", ".json", ".svg", ".pdf", ".txt", ".html"}


@pytest.mark.slow
def test_damaged_products_are_named_and_made_anew_and_nothing_is_measured(project: Project) -> None:
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
        "figures/heatmap-copy2d_coalesced-block_x-block_y-48x70-warm.svg": "end",
        "report.json": "half",
        "report.pdf": "end",
        "explorer.html": "end",
    }
    # It is seen only by the first stage that reads it.
    cells = "dataset/kernel=copy2d_coalesced/dtype=float/part-0.parquet"
    for name, kind in {**damaged, cells: "bit"}.items():
        path = project.results / name
        path.write_bytes(DAMAGE[kind](path.read_bytes()))
    struck = print_of(project.results)
    dry = project.snakemake("-n")
    assert print_of(project.results) == struck
    first, second = project.snakemake(), project.snakemake()
    for outcome in (dry, first):
        again = outcome.text.split("It is not used but made again.")[:-1]
        named = {text.splitlines()[-1].split("'")[1] for text in again}
        assert named == {f"results/tiny/{name}" for name in damaged}
    assert "Set aside as 'results/tiny/quarantine/dataset'; start the run again" in first.text
    assert "Traceback" not in first.text
    assert (project.results / "quarantine" / cells).read_bytes() == struck[cells][1]
    assert (dry.status, bool(first.status), second.status) == (0, True, 0), second.text
    for jobs in (dry.jobs, first.jobs, second.jobs):
        assert not {"measure", "repeat"} & set(jobs)
    after = products(project.results)
    assert {n: data for n, (_, data) in after.items()} == {n: d for n, (_, d) in before.items()}
    assert all(after[name] == before[name] for name in before if name.startswith("cells"))
