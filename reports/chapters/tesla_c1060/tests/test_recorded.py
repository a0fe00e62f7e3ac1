"""The record of what no measurement enters: current, taken where it fits, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from conftest import ROOT
from gpushmoo.planning.config import default_config
from gpushmoo.planning.flow import Flow
from tesla_c1060 import chapter as recorded
from tesla_c1060.atlas import build_atlas
from tesla_c1060.chapter import RECORD, DevicePlan, recorded_name, replace_record
from tesla_c1060.checks import check_published
from tesla_c1060.figures import DRAWN_FROM
from tesla_c1060.figures.simulated import draw
from tesla_c1060.stages import make_table

DEFAULT = default_config()
PLAN = Flow(DEFAULT, ask_device=False).plan_of("tesla_c1060")
FIGURES = {
    f"{k}-tesla-c1060.{e}" for k in ("simulated", "questions", "float3") for e in ("svg", "json")
}


def plan_of(raw: dict[str, Any]) -> DevicePlan:
    return cast(DevicePlan, Flow(raw, ask_device=False).plan_of("tesla_c1060"))


def kept(kind: str) -> Path:
    """The file of this kind that the record holds."""
    (file,) = RECORD.glob(f"{kind}-" + "[0-9a-f]" * 12 + ".*")
    return file


def test_the_record_is_of_this_code_and_the_default_configuration() -> None:
    wanted = set(PLAN.constants.values())
    assert {file.name for file in RECORD.iterdir()} == wanted, "run 'snakemake --cores all record'"


def test_what_is_asked_otherwise_is_not_taken_from_the_record_and_all_else_is(
    raw_config: dict[str, Any],
) -> None:
    options = raw_config["chapters"]["tesla_c1060"]
    options["questions"] = [256]
    options["simulate"]["tesla-c1060"]["sizes"] = [256]
    plan = plan_of(raw_config)
    anew = {Path(file).name for file in set(PLAN.recorded) - set(plan.recorded)}
    assert anew == FIGURES | {
        f"tesla-c1060-{kind}.parquet" for kind in ("blocks", "questions", "profile")
    }
    assert {Path(file).name for file in plan.noted} == anew
    figure = SimpleNamespace(kind="float3", machine="tesla-c1060")
    assert [Path(file).suffix for file in PLAN.drawn_from(figure)] == [".svg", ".json"]
    assert [Path(file).name for file in plan.drawn_from(figure)] == [
        "tesla-c1060-questions.parquet",
        "tesla-c1060-profile.parquet",
    ]


def test_the_page_reads_what_is_recorded_where_the_record_has_it(
    raw_config: dict[str, Any],
) -> None:
    def read() -> set[str]:
        return {str(Path(file).parent) for (file,) in plan_of(raw_config).reads.values()}

    assert {str((Path.cwd() / folder).resolve()) for folder in read()} == {str(RECORD)}
    raw_config["chapters"]["tesla_c1060"]["simulate_anew"] = True
    assert read() == {"results/local/simulated"}


def test_a_change_of_code_is_no_longer_what_was_recorded_and_a_comment_is(tmp_path: Path) -> None:
    def name(folder: str, code: str) -> str:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "beside.py").write_text(code)
        script = tmp_path / folder / "script.py"
        script.write_text("import beside\n")
        return recorded_name("run/x-cells.parquet", script, {"size": 3})

    one = name("one", "CYCLES = 36\n")
    assert one == name("two", "# As measured.\nCYCLES = 36\n")
    assert one != name("three", "CYCLES = 37\n")
    assert (one[:8], one[-8:]) == ("x-cells-", ".parquet")


def test_the_record_made_anew_holds_what_the_run_made_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "RECORD", tmp_path / "record")
    made = tmp_path / "x.json"
    for content in ("old", "new"):
        made.write_text(content)
        replace_record({str(made): f"x-{content}.json"})
    (file,) = (tmp_path / "record").iterdir()
    assert (file.name, file.read_text()) == ("x-new.json", "new")


def asked(kind: str) -> dict[str, Any]:
    """What the default configuration asks for the file of this kind."""
    return dict(next(spec for spec in PLAN.asked.values() if spec["kind"] == kind))


@pytest.mark.parametrize("kind", ["blocks", "tables", "questions", "profile", "tiles"])
def test_every_simulated_cell_is_what_is_recorded(kind: str, tmp_path: Path) -> None:
    make_table(asked(kind), tmp_path / "cells", 2)
    was = pd.read_parquet(kept(f"tesla-c1060-{kind}"))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "cells"), was)


def make_checks(out: Path) -> None:
    check_published(asked("checks"), out)


def make_figure(kind: str, out: Path) -> None:
    draw(kind, [kept(f"tesla-c1060-{table}") for table in DRAWN_FROM[kind]], out)


MADE: dict[str, Callable[[Path], None]] = {
    "figures-tesla-c1060": lambda out: build_atlas(ROOT / asked("atlas")["file"], out),
    "tesla-c1060-checks": make_checks,
    "simulated-tesla-c1060": partial(make_figure, "simulated"),
    "questions-tesla-c1060": partial(make_figure, "questions"),
    "float3-tesla-c1060": partial(make_figure, "float3"),
}


@pytest.mark.parametrize("kind", MADE)
def test_every_drawing_and_check_repeats_what_is_recorded_byte_by_byte(
    kind: str, tmp_path: Path
) -> None:
    files = sorted(RECORD.glob(f"{kind}-" + "[0-9a-f]" * 12 + ".*"))
    out = tmp_path / "made"
    MADE[kind](out.with_suffix(files[-1].suffix))
    for file in files:
        assert out.with_suffix(file.suffix).read_bytes() == file.read_bytes()
