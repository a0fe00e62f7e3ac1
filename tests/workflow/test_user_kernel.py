"""A user's kernel is one new folder; what is wrong with it ends in rows, not in a dead run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd
import pytest
from conftest import USER_CUDA, USER_OPENCL, WORKLOAD_TEMPLATE
from gpushmoo.dataset import read_cells
from projects import TINY, Outcome, Project, print_of

pytest_plugins = ("workflow_fixtures",)


@dataclass(frozen=True)
class UserRun:
    """The finished project's run again, with one more kernel folder."""

    project: Project
    config: tuple[str, ...]
    outcome: Outcome
    built_in_cells_before: dict[str, tuple[int, bytes]] = field(repr=False)

    @property
    def cells(self) -> pd.DataFrame:
        """The rows of the user's kernel."""
        cells = read_cells(self.project.results / "dataset")
        return cells[cells["kernel"] == "mine"]


@pytest.fixture(scope="module")
def user_run(
    copy_finished: Callable[..., Project], tmp_path_factory: pytest.TempPathFactory
) -> UserRun:
    folder = tmp_path_factory.mktemp("user")
    mine = folder / "my-kernels" / "mine"
    mine.mkdir(parents=True)
    (mine / "kernel.cu").write_text(USER_CUDA)
    (mine / "kernel.cl").write_text(USER_OPENCL)
    variants = ("good", "broken", "forgets")
    (mine / "workload.py").write_text(WORKLOAD_TEMPLATE.format(name="mine", variants=variants))
    project = copy_finished(folder / "project")
    before = print_of(project.results / "cells")
    named = {
        "kernel_folders": ["kernels", str(mine.parent)],
        "only": [*TINY["only"], "mine"],
        "kernels": {"mine": {}},
    }
    config = ("tiny.yaml", project.write_config("mine.yaml", named))
    return UserRun(project, config, project.snakemake(config=config), before)


def test_a_new_folder_is_swept_and_nothing_else_is_measured(user_run: UserRun) -> None:
    assert user_run.outcome.status == 0, user_run.outcome.text
    assert user_run.outcome.jobs["measure"] == 1
    after = print_of(user_run.project.results / "cells")
    assert set(after) - set(user_run.built_in_cells_before) == {"mine/float/0000-of-0001.parquet"}
    assert after.items() >= user_run.built_in_cells_before.items()
    assert len(user_run.cells) == 9


def test_each_fault_of_a_variant_is_a_row_with_its_status(user_run: UserRun) -> None:
    within = user_run.cells[user_run.cells["block_x"] <= 1024]
    statuses = within.groupby("variant")["status"].agg(set).to_dict()
    assert statuses == {"good": {"ok"}, "broken": {"build_failed"}, "forgets": {"wrong_result"}}
    over = user_run.cells[user_run.cells["block_x"] > 1024]
    assert set(over["status"]) == {"too_many_threads"}


def test_a_wrong_result_is_counted_and_never_among_the_best(user_run: UserRun) -> None:
    wrong = user_run.cells[user_run.cells["status"] == "wrong_result"]
    assert (wrong["wrong_words"] == 1).all()
    assert wrong["bandwidth_gbs"].isna().all()
    best = pd.read_parquet(user_run.project.results / "summary/best.parquet")
    assert set(best.loc[best["kernel"] == "mine", "variant"]) == {"good"}


def test_the_compilers_message_is_in_the_measuring_log(user_run: UserRun) -> None:
    log = (user_run.project.results / "logs/measure/mine-float-0000-of-0001.log").read_text()
    assert "variant broken" in log
    assert re.search(r"error.*\bthis\b", log)


def test_the_terminal_and_the_report_name_the_faults(user_run: UserRun) -> None:
    assert "4 of 93 cells ended in a fault" in user_run.outcome.text
    assert "Traceback" not in user_run.outcome.text
    facts = json.loads((user_run.project.results / "report.json").read_text())
    named = {(f["where"], f["status"]): int(f["cells"]) for f in facts["faults"]}
    assert named == {
        ("mine, float, broken", "build_failed"): 2,
        ("mine, float, forgets", "wrong_result"): 2,
    }


def test_a_strict_run_fails_after_the_report_is_written(user_run: UserRun) -> None:
    report = user_run.project.results / "report.pdf"
    report.unlink()
    strict = user_run.project.write_config("strict.yaml", {"strict": True})
    outcome = user_run.project.snakemake(config=(*user_run.config, strict))
    assert outcome.status != 0
    assert "4 of 93 cells ended in a fault" in outcome.text
    assert "Traceback" not in outcome.text
    assert "measure" not in outcome.jobs
    assert report.read_bytes().startswith(b"%PDF-")
