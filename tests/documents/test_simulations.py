"""What a run may ask of simulated devices, and how impossible wishes are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from gpushmoo.chapters.contract import ChapterError, ChapterRun
from gpushmoo.simulation.request import SimulationError, read_simulation
from tesla_c1060.chapter import CHAPTER, DEVICE, DevicePlan

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
    assert (config.sizes, config.num_partition, config.measured) == ((), None, False)


def test_all_that_can_be_asked() -> None:
    spec = {"levels": ["bus", "banks"], "sizes": [256], "num_partition": [1, 2], "measured": True}
    config = read_simulation("tesla-c1060", spec, ROOT)
    assert config.levels == ("bus", "banks")
    assert (config.sizes, config.num_partition, config.measured) == ((256,), [1, 2], True)


BLOCK = {"sizes": [256], "num_partition": 1}
LEVELS = {"levels": ["bus", "banks"]}


@pytest.mark.parametrize(
    ("changes", "spec", "words"),
    [
        ({"partitions": 0}, {}, "partitions must be a whole number of at least 1, not 0"),
        ({"latency_cycles": 1, "banks": None}, {}, "latency_cycles must be at least one bus trans"),
        ({"latency_cycles": 60}, {}, "latency_cycles must be at least the opening of a row"),
        ({"board_clock_mhz": -1}, {}, "board_clock_mhz must be a number above 0, not -1"),
        ({"max_threads_per_sm": 256}, BLOCK, "max_threads_per_sm must be at least the 512 threads"),
        ({"max_threads_per_sm": 2048}, BLOCK, "must be at most 64 half-warps (1024"),
        ({"half_warp": 48}, BLOCK, "half-warps of 48 threads do not fit tiles 64 elements wide"),
        ({}, BLOCK | {"sizes": [48]}, "tiles 64 elements wide do not divide an array 48"),
        ({}, BLOCK | {"sizes": [100]}, "do not divide an array 100 elements wide"),
        ({}, {"sizes": [256]}, "sizes and num_partition go together"),
        ({}, {"num_partition": 4}, "sizes and num_partition go together"),
        ({"banks": None}, LEVELS, "mine.yaml has no banks; its levels are bus, partitions"),
    ],
)
def test_what_a_device_cannot_be_or_show_is_refused_by_name_before_any_job(
    tmp_path: Path, changes: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    assert words in refused(with_device(tmp_path, **changes), **spec)


def planned(root: Path, **options: Any) -> DevicePlan:
    """What the chapter of the Tesla C1060 adds to a run that simulates the device of `root`."""
    simulation = read_simulation("mine", {"levels": ["bus"]}, root)
    run = ChapterRun(Path("results/r"), 1, {}, {DEVICE: simulation}, None, root)
    return CHAPTER.plan(options, run)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, {"tables": {"sizes": [200], "num_partition": [1]}}, "do not divide an array 200"),
        ({"banks": None}, {"questions": [256]}, "mine.yaml has no banks; its levels are bus, part"),
        ({"board_clock_mhz": None}, {"questions": [256]}, "no board_clock_mhz"),
        ({}, {"latency_cycles": [400, 60]}, "latency_cycles must be at least the opening of a row"),
    ],
)
def test_the_chapter_refuses_what_its_device_cannot_show(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    root = with_device(tmp_path, **changes)
    with pytest.raises(ChapterError, match=r"^chapters\.tesla_c1060: ") as caught:
        planned(root, **options)
    assert words in str(caught.value)


def test_the_chapter_makes_what_is_asked_of_its_device_and_no_more(tmp_path: Path) -> None:
    root = with_device(tmp_path)
    nothing = planned(root)
    assert (nothing.figures, nothing.products, nothing.reads) == ((), (), {})
    every = {"tables": {"sizes": [256], "num_partition": [1]}, "questions": [256], "figures": True}
    plan = planned(root, **every)
    assert plan.figures == ("questions-tesla-c1060", "float3-tesla-c1060")
    assert plan.products == ("results/r/figures-tesla-c1060.pdf",)
    assert set(plan.reads) == {"checks", "tables", "questions"}
    assert plan.asked["simulate_tables"]["tables"] == every["tables"]
    assert plan.asked["simulate_questions"]["questions"] == [256]


def test_an_unknown_device_is_told_which_there_are(tmp_path: Path) -> None:
    root = with_device(tmp_path)
    shutil.copy(C1060, root / "config/devices/other.yaml")
    assert "no such simulated device; found: mine, other" in refused(root, "gtx")
