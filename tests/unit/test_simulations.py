"""What a run may ask of simulated devices, and how impossible wishes are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from gpushmoo.simulations import SimulationError, Tables, read_simulation

C1060 = ROOT / "config" / "devices" / "tesla-c1060.yaml"


def with_device(tmp_path: Path, **changes: Any) -> Path:
    """A root whose only device is the shipped one with some keys changed; None removes a key."""
    folder = tmp_path / "config" / "devices"
    folder.mkdir(parents=True)
    data = yaml.safe_load(C1060.read_text(encoding="utf-8")) | changes
    kept = {k: v for k, v in data.items() if v is not None}
    (folder / "mine.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    return tmp_path


def refused(root: Path, name: str = "mine", **spec: Any) -> str:
    with pytest.raises(SimulationError) as caught:
        read_simulation(name, {"levels": ["bus"], **spec}, root)
    text = str(caught.value)
    assert text.startswith(f"simulate.{name}: ")
    assert "\n" not in text
    return text


def test_what_is_not_asked_is_left_out() -> None:
    config = read_simulation("gtx260", {"levels": ["bus"]}, ROOT)
    assert (config.sizes, config.tables, config.questions) == ((), None, None)
    assert not config.document
    assert not config.measured


def test_all_that_can_be_asked() -> None:
    spec = {
        "levels": ["bus", "banks"],
        "sizes": [256],
        "num_partition": [1, 2],
        "tables": {"sizes": [512], "num_partition": [8]},
        "questions": 256,
        "document": True,
        "measured": True,
    }
    config = read_simulation("tesla-c1060", spec, ROOT)
    assert config.levels == ("bus", "banks")
    assert config.tables == Tables((512,), (8,))
    assert config.document
    assert config.measured


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partitions": 0}, "partitions must be a whole number of at least 1, not 0"),
        ({"latency_cycles": 1, "banks": None}, "latency_cycles must be at least one bus transfer"),
        ({"latency_cycles": 60}, "latency_cycles must be at least the opening of a row"),
        ({"n_sm": "30"}, "n_sm must be a whole number"),
        ({"t_ras_cycles": None}, "the key t_ras_cycles is missing"),
        ({"colour": "green"}, "unknown key 'colour'"),
        ({"board_clock_mhz": -1}, "board_clock_mhz must be a number above 0, not -1"),
    ],
)
def test_an_impossible_device_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    assert words in refused(with_device(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_threads_per_sm": 256}, "max_threads_per_sm must be at least the 512 threads"),
        ({"max_threads_per_sm": 2048}, "max_threads_per_sm must be at most 64 half-warps (1024"),
        ({"half_warp": 48}, "half-warps of 48 threads do not fit tiles 64 elements wide"),
    ],
)
def test_a_device_that_cannot_run_a_block_is_refused_before_any_job(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    root = with_device(tmp_path, **changes)
    assert words in refused(root, sizes=[256], num_partition=1)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"sizes": [48], "num_partition": 1}, "tiles 64 elements wide do not divide an array 48"),
        ({"sizes": [100], "num_partition": 1}, "do not divide an array 100 elements wide"),
        ({"tables": {"sizes": [200], "num_partition": [1]}}, "do not divide an array 200"),
        ({"sizes": [256]}, "sizes and num_partition go together"),
        ({"num_partition": 4}, "sizes and num_partition go together"),
    ],
)
def test_arrays_that_tiles_do_not_divide_are_refused(
    tmp_path: Path, spec: dict[str, Any], words: str
) -> None:
    assert words in refused(with_device(tmp_path), **spec)


def test_a_level_that_the_file_does_not_describe_is_refused(tmp_path: Path) -> None:
    root = with_device(tmp_path, banks=None)
    words = "mine.yaml has no banks; its levels are bus, partitions"
    assert words in refused(root, levels=["bus", "banks"])
    assert words in refused(root, questions=256)


def test_questions_need_the_boards_clock(tmp_path: Path) -> None:
    assert "no board_clock_mhz" in refused(
        with_device(tmp_path, board_clock_mhz=None), questions=256
    )


def test_an_unknown_device_is_told_which_there_are(tmp_path: Path) -> None:
    root = with_device(tmp_path)
    shutil.copy(C1060, root / "config/devices/other.yaml")
    assert "no such simulated device; found: mine, other" in refused(root, "gtx")
