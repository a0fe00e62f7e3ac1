"""The record of what no measurement enters: current, taken where it fits, and what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import ROOT
from gpushmoo.planning import recorded
from gpushmoo.planning.flow import Flow
from gpushmoo.planning.recorded import RECORD, recorded_name, replace_record
from gpushmoo.simulation.stages import simulate_device

DEFAULT = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
ASKED, OPTIONS = DEFAULT["simulate"]["tesla-c1060"], DEFAULT["chapters"]["tesla_c1060"]
DEVICE, LEVELS = ROOT / "config/devices/tesla-c1060.yaml", ASKED["levels"]
FIGURES = {
    f"{k}-tesla-c1060.{e}" for k in ("simulated", "questions", "float3") for e in ("svg", "json")
}


def flow_of(raw: dict[str, Any]) -> Flow:
    return Flow(raw, ask_device=False)


def kept(kind: str) -> Path:
    """The file of this kind that the record holds."""
    (file,) = RECORD.glob(f"{kind}-" + "[0-9a-f]" * 12 + ".*")
    return file


def cells(file: Path) -> pd.DataFrame:
    return pd.read_parquet(file)


def test_the_record_is_of_this_code_and_the_default_configuration() -> None:
    wanted = set(flow_of(DEFAULT).constants.values())
    assert {file.name for file in RECORD.iterdir()} == wanted, "run 'snakemake --cores all record'"


def test_what_is_asked_otherwise_is_not_taken_from_the_record_and_all_else_is(
    raw_config: dict[str, Any],
) -> None:
    before = set(flow_of(raw_config).recorded)
    raw_config["chapters"]["tesla_c1060"]["questions"] = [256]
    raw_config["simulate"]["tesla-c1060"]["sizes"] = [256]
    flow = flow_of(raw_config)
    assert {Path(file).name for file in before - set(flow.recorded)} == FIGURES | {
        f"tesla-c1060-{kind}.parquet" for kind in ("blocks", "questions", "profile")
    }
    assert flow.recorded_machines("questions") == "(?!)"
    assert flow.recorded_machines("figures") == r"tesla\-c1060"


def test_the_page_reads_what_is_recorded_where_the_record_has_it(
    raw_config: dict[str, Any],
) -> None:
    def read(**changes: Any) -> set[str]:
        params = flow_of(raw_config | changes).report_params(None)
        files = params["chapters"]["tesla_c1060"]["reads"].values()
        return {str(Path(file).parent) for (file,) in files}

    here = Path.cwd()
    assert {str((here / folder).resolve()) for folder in read()} == {str(RECORD)}
    assert read(simulate_anew=True) == {"results/local/simulated"}


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


def test_the_level_of_one_bus_gives_what_is_recorded(tmp_path: Path) -> None:
    simulate_device(DEVICE, ["bus"], [256], [1, 8, 30, 32], tmp_path / "blocks.parquet", 1)
    was = cells(kept("tesla-c1060-blocks"))
    was = was[(was["level"] == "bus") & (was["width"] == 256)]
    was = was[was["num_partition"].isin([1, 8, 30, 32])].reset_index(drop=True)
    pd.testing.assert_frame_equal(cells(tmp_path / "blocks.parquet"), was)
