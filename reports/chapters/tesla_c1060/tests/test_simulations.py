"""What a run may ask of simulated devices, and how impossible wishes are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from gpushmoo.chapters.contract import ChapterError, ChapterRun
from gpushmoo.planning.config import default_config, load_config
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.planning.flow import Flow
from snakemake.utils import update_config
from tesla_c1060 import chapter
from tesla_c1060.chapter import CHAPTER, DEVICE, DEVICES, DevicePlan, read_simulation
from tesla_c1060.simulation.machine import load_machine

C1060 = DEVICES / "tesla-c1060.yaml"


def with_device(tmp_path: Path, **changes: Any) -> Path:
    """A folder whose only device is the shipped one with some keys changed; None removes a key."""
    data = yaml.safe_load(C1060.read_text(encoding="utf-8")) | changes
    kept = {k: v for k, v in data.items() if v is not None}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    return tmp_path


def refused(folder: Path, name: str = "mine", **spec: Any) -> str:
    with pytest.raises(ChapterError) as caught:
        read_simulation(name, {"levels": ["bus"], **spec}, folder)
    text = str(caught.value)
    assert text.startswith(f"chapters.tesla_c1060.simulate.{name}")
    assert "\n" not in text
    return text


def test_what_is_not_asked_is_left_out() -> None:
    config = read_simulation("gtx260", {"levels": ["bus"]}, DEVICES)
    assert (config.sizes, config.num_partition, config.measured) == ((), None, False)


def test_all_that_can_be_asked() -> None:
    spec = {"levels": ["bus", "banks"], "sizes": [256], "num_partition": [1, 2], "measured": True}
    config = read_simulation("tesla-c1060", spec, DEVICES)
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
        ({}, {"sizes": [256], "num_partition": {"from": 3, "to": 1}}, "num_partition: the range"),
        ({"banks": None}, LEVELS, "mine.yaml has no banks; its levels are bus, partitions"),
    ],
)
def test_what_a_device_cannot_be_or_show_is_refused_by_name_before_any_job(
    tmp_path: Path, changes: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    assert words in refused(with_device(tmp_path, **changes), **spec)


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> DevicePlan:
    """What the chapter adds to a run that simulates the device in `folder` as the document's."""
    (folder / "mine.yaml").rename(folder / f"{DEVICE}.yaml")
    monkeypatch.setattr(chapter, "DEVICES", folder)
    run = ChapterRun(Path("results/r"), 1, {}, None, ROOT)
    return CHAPTER.plan({"simulate": {DEVICE: {"levels": ["bus"]}}, **options}, run)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, {"tables": {"sizes": [200], "num_partition": [1]}}, "do not divide an array 200"),
        ({"banks": None}, {"questions": [256]}, "yaml has no banks; its levels are bus, part"),
        ({"board_clock_mhz": None}, {"questions": [256]}, "no board_clock_mhz"),
        ({}, {"latency_cycles": [400, 60]}, "latency_cycles must be at least the opening of a row"),
    ],
)
def test_the_chapter_refuses_what_its_device_cannot_show(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    options: dict[str, Any],
    words: str,
) -> None:
    folder = with_device(tmp_path, **changes)
    with pytest.raises(ChapterError, match=r"^chapters\.tesla_c1060: ") as caught:
        planned(folder, monkeypatch, **options)
    assert words in str(caught.value)


def test_the_chapter_makes_what_is_asked_of_its_device_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = planned(with_device(tmp_path), monkeypatch)
    assert (nothing.figures, nothing.products, nothing.reads) == ((), (), {})
    every = {"tables": {"sizes": [256], "num_partition": [1]}, "questions": [256], "figures": True}
    plan = planned(with_device(tmp_path), monkeypatch, **every)
    assert plan.figures == ("questions-tesla-c1060", "float3-tesla-c1060")
    assert plan.products == ("results/r/figures-tesla-c1060.pdf",)
    assert set(plan.reads) == {"checks", "tables", "questions"}
    assert plan.asked["results/r/simulated/tesla-c1060-tables.parquet"]["sizes"] == [256]
    assert plan.asked["results/r/simulated/tesla-c1060-questions.parquet"]["sides"] == [256]


@pytest.mark.parametrize("simulate", [None, {DEVICE: None}])
def test_what_is_not_simulated_leaves_a_page_without_predictions(
    raw_config: dict[str, Any], simulate: Any
) -> None:
    raw_config["chapters"]["tesla_c1060"]["simulate"] = simulate
    plan = Flow(raw_config, ask_device=False).plan_of("tesla_c1060")
    assert (plan.figures, plan.products, plan.reads, plan.params) == ((), (), {}, {})


def test_an_unknown_device_is_told_which_there_are(tmp_path: Path) -> None:
    shutil.copy(C1060, tmp_path / "other.yaml")
    assert "no such simulated device; found: mine, other" in refused(with_device(tmp_path), "gtx")


def test_every_device_that_the_document_names_is_simulated_by_a_configuration() -> None:
    raw = default_config()
    update_config(raw, yaml.safe_load((ROOT / "config/gt200.yaml").read_text(encoding="utf-8")))
    asked = Flow(raw, ask_device=False).plan_of("tesla_c1060").asked.values()
    machines = {s["file"]: load_machine(ROOT / s["file"]) for s in asked if s["kind"] == "blocks"}
    assert {(m.name, m.n_sm, m.partitions) for m in machines.values()} == {
        ("Tesla C1060", 30, 8),
        ("GeForce GTX 280", 30, 8),
        ("GeForce GTX 260", 24, 7),
        ("GeForce GTX 295", 30, 7),
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("größe: 1".encode("latin-1"), "mine.yaml', line 1: not UTF-8; save it as that"),
        (b"a: [", "mine.yaml', line 1: not valid YAML: "),
    ],
)
def test_a_device_file_that_is_none_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(content)
    assert words in refused(tmp_path)


def test_the_configuration_refuses_what_no_device_can_be_asked(raw_config: dict[str, Any]) -> None:
    spec = raw_config["chapters"]["tesla_c1060"]
    for simulate, words in (
        ({3: {}}, "a key must be a text"),
        ({"../c": {"levels": ["bus"]}}, "no such simulated device"),
        ({DEVICE: {"levels": ["dram"]}}, "bus"),
    ):
        spec["simulate"] = simulate
        with pytest.raises(ConfigError, match=words):
            load_config(raw_config, ROOT)
