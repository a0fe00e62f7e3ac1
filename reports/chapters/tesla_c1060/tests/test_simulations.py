"""What a run may ask of simulated devices, what the record holds, measured cells beside both."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
import yaml
from conftest import ROOT, python, record
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.chapters import ChapterRun
from gpushmoo.core.errors import ChapterError
from gpushmoo.planning.config import default_config
from gpushmoo.planning.flow import Flow
from gpushmoo.storage.store import read_table
from matplotlib.figure import Figure
from snakemake.utils import update_config
from tesla_c1060 import chapter
from tesla_c1060 import chapter as recorded
from tesla_c1060.atlas import build_atlas
from tesla_c1060.chapter import (
    CHAPTER,
    DEVICE,
    DEVICES,
    DRAWING,
    HERE,
    RECORD,
    SIMULATING,
    DevicePlan,
    read_simulation,
    recorded_name,
    replace_record,
)
from tesla_c1060.checks import check_published
from tesla_c1060.figures import DRAWN_FROM
from tesla_c1060.figures.simulated import draw, same_machine
from tesla_c1060.pages import same_machine_page
from tesla_c1060.search import Hypotheses, combinations, shown
from tesla_c1060.simulation.compare_measured import compare_with_measured, points, predicted_gbs
from tesla_c1060.simulation.machine import Level, Machine, Tiling, load_machine
from tesla_c1060.simulation.run import SAME_MACHINE_SCHEMA, simulate_tiles
from tesla_c1060.stages import make_table
from test_figures import assert_readable

FILE = DEVICES / "tesla-c1060.yaml"


def with_device(tmp_path: Path, **changes: Any) -> Path:
    """A folder whose only device is the shipped one with some keys changed; None removes a key."""
    data = yaml.safe_load(FILE.read_text(encoding="utf-8")) | changes
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


BLOCK = {"sizes": [256], "num_partition": 1}
LEVELS = {"levels": ["bus", "banks"]}


@pytest.mark.parametrize(
    ("changes", "spec", "words"),
    [
        ({"latency_cycles": 60}, {}, "latency_cycles must be at least the opening of a row"),
        ({"max_threads_per_sm": 256}, BLOCK, "max_threads_per_sm must be at least the 512 threads"),
        ({"half_warp": 48}, BLOCK, "half-warps of 48 threads do not fit tiles 64 elements wide"),
        ({}, BLOCK | {"sizes": [48]}, "tiles 64 elements wide do not divide an array 48"),
        ({}, {"sizes": [256]}, "sizes and num_partition go together"),
        ({}, {"sizes": [256], "num_partition": {"from": 3, "to": 1}}, "num_partition: the range"),
        ({"banks": None}, LEVELS, "mine.yaml has no banks; its levels are bus, partitions"),
    ],
)
def test_what_a_device_cannot_be_or_show_is_refused_by_name_before_any_job(
    tmp_path: Path, changes: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    assert words in refused(with_device(tmp_path, **changes), **spec)


SEARCH = {"sizes": [256], "latency_cycles": [400]}
TILES = {"size": 512, "row_bytes": [256], "pad_bytes": [0], "num_partition": [8]}


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
        ({"banks": None}, {"search": SEARCH}, "yaml has no banks; its levels are bus, part"),
        ({"board_clock_mhz": None}, {"search": SEARCH}, "no board_clock_mhz"),
        ({}, {"search": SEARCH | {"latency_cycles": [60]}}, "at least the opening of a row"),
        ({}, {"tiles": TILES | {"row_bytes": [64]}}, "do not fit tiles 8 elements wide"),
        ({}, {"tiles": TILES | {"row_bytes": [8192]}}, "has rows of 8192 bytes"),
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_config: dict[str, Any]
) -> None:
    nothing = planned(with_device(tmp_path), monkeypatch)
    assert (nothing.figures, nothing.products, nothing.reads) == ((), (), {})
    every = {"tables": {"sizes": [256], "num_partition": [1]}, "search": SEARCH, "figures": True}
    levels = {"simulate": {DEVICE: {"levels": ["bus", "banks"]}}}
    plan = planned(with_device(tmp_path), monkeypatch, **every, **levels)
    assert plan.figures == ("float3-tesla-c1060",)
    assert plan.products == ("results/r/figures-tesla-c1060.pdf",)
    assert set(plan.reads) == {"checks", "tables", "search"}
    assert plan.asked["results/r/simulated/tesla-c1060-tables.parquet"]["sizes"] == [256]
    assert plan.asked["results/r/simulated/tesla-c1060-profile.parquet"]["side"] == 256
    # What is not simulated leaves a page without predictions.
    raw_config["chapters"]["tesla_c1060"]["simulate"] = None
    none = Flow(raw_config, ask_device=False).plan_of("tesla_c1060")
    assert (none.figures, none.products, none.reads, none.params) == ((), (), {}, {})


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


DEFAULT = default_config()
PLAN = Flow(DEFAULT, ask_device=False).plan_of("tesla_c1060")
FIGURES = {f"{k}-tesla-c1060.{e}" for k in ("simulated", "float3") for e in ("svg", "json")}


def plan_of(raw: dict[str, Any]) -> DevicePlan:
    return cast(DevicePlan, Flow(raw, ask_device=False).plan_of("tesla_c1060"))


def kept(kind: str) -> Path:
    """The file of this kind that the record holds."""
    (file,) = RECORD.glob(f"{kind}-" + "[0-9a-f]" * 12 + ".*")
    return file


def test_the_record_is_of_this_code_and_the_default_configuration() -> None:
    wanted = set(PLAN.constants.values())
    assert {file.name for file in RECORD.iterdir()} == wanted, "run 'snakemake --cores all record'"


def test_what_is_asked_otherwise_is_not_taken_from_the_record(raw_config: dict[str, Any]) -> None:
    options = raw_config["chapters"]["tesla_c1060"]
    options["tables"]["sizes"] = [512]
    options["simulate"]["tesla-c1060"]["sizes"] = [256]
    plan = plan_of(raw_config)
    anew = {Path(file).name for file in set(PLAN.recorded) - set(plan.recorded)}
    tables = {f"tesla-c1060-{kind}.parquet" for kind in ("blocks", "tables", "profile")}
    assert anew == FIGURES | tables
    assert {Path(file).name for file in plan.noted} == anew
    figure = SimpleNamespace(kind="float3", machine="tesla-c1060")
    assert [Path(file).suffix for file in PLAN.drawn_from(figure)] == [".svg", ".json"]
    drawn_from = [f"tesla-c1060-{kind}.parquet" for kind in ("profile", "tables")]
    assert [Path(file).name for file in plan.drawn_from(figure)] == drawn_from

    def read(plan: DevicePlan) -> set[Path]:
        return {Path(file).parent.absolute().resolve() for (file,) in plan.reads.values()}

    assert read(PLAN) == {RECORD}
    options["rerun_simulation"] = True
    assert read(plan_of(raw_config)) == {(ROOT / "results/local/simulated").resolve()}


def test_another_question_or_code_has_another_name_in_the_record() -> None:
    one = recorded_name("run/x-cells.parquet", "0a1b", {"size": 3})
    assert one == recorded_name("other/x-cells.parquet", "0a1b", {"size": 3})
    assert one != recorded_name("run/x-cells.parquet", "0a1c", {"size": 3})
    assert one != recorded_name("run/x-cells.parquet", "0a1b", {"size": 4})
    assert (one[:8], one[-8:]) == ("x-cells-", ".parquet")


@pytest.mark.parametrize(
    ("module", "counted"),
    [
        ("stages", SIMULATING),
        ("simulation.compare_measured", SIMULATING),
        ("checks", DRAWING),
        ("figures.simulated", DRAWING),
        ("atlas", DRAWING),
    ],
)
def test_code_that_is_imported_counts(module: str, counted: tuple[Path, ...]) -> None:
    assert imported_of_the_chapter(f"tesla_c1060.{module}") <= set(counted)


def imported_of_the_chapter(module: str) -> set[Path]:
    """The chapter's files that Python loads for one of its modules."""
    code = f"import sys, {module}\nfor m in sys.modules.values(): print(vars(m).get('__file__'))"
    loaded = map(Path, python(code).stdout.splitlines())
    return {file for file in loaded if file.is_relative_to(HERE)}


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


@pytest.mark.parametrize("kind", ["blocks", "tables", "profile", "tiles"])
def test_every_simulated_cell_is_what_is_recorded(kind: str, tmp_path: Path) -> None:
    make_table(asked(kind), tmp_path / "cells", 2)
    was = pd.read_parquet(kept(f"tesla-c1060-{kind}"))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "cells"), was)


def test_machines_of_the_search_are_what_is_recorded() -> None:
    described = load_machine(ROOT / asked("search")["file"])
    was = pd.read_parquet(kept("tesla-c1060-search"))
    every = len(list(combinations(described, asked("search")["latency_cycles"])))
    assert len(was) == every * len(asked("search")["sizes"])
    names = [field.name for field in fields(Hypotheses)]
    for row in was.sample(20, random_state=1).to_dict("records"):
        hypotheses = Hypotheses(**{name: row[name] for name in names})
        found = shown(hypotheses.machine(described), hypotheses, row["width"])
        assert found == pytest.approx({name: row[name] for name in found}, abs=6e-5)


MADE: dict[str, Callable[[Path], None]] = {
    "figures-tesla-c1060": lambda out: build_atlas(ROOT / asked("atlas")["file"], out),
    "tesla-c1060-checks": lambda out: check_published(asked("checks"), out),
} | {
    f"{kind}-tesla-c1060": partial(draw, kind, [kept(f"tesla-c1060-{t}") for t in DRAWN_FROM[kind]])
    for kind in ("simulated", "float3")
}


@pytest.mark.parametrize("kind", MADE)
def test_every_drawing_and_check_repeats_the_recorded_bytes(kind: str, tmp_path: Path) -> None:
    files = sorted(RECORD.glob(f"{kind}-" + "[0-9a-f]" * 12 + ".*"))
    out = tmp_path / "made"
    MADE[kind](out.with_suffix(files[-1].suffix))
    for file in files:
        assert out.with_suffix(file.suffix).read_bytes() == file.read_bytes()


H200 = ROOT / "reports/chapters/tesla_c1060/devices" / "nvidia-h200.yaml"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded cells of block_eq_partition."""
    out = tmp_path_factory.mktemp("recorded") / "dataset"
    folders = (record(f"nvidia-h200/block_eq_partition/{name}") for name in ("float", "double"))
    aggregate([path for folder in folders for path in sorted(folder.glob("*.parquet"))], out)
    return out


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(H200)


@pytest.fixture(scope="module")
def compared(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    out = tmp_path_factory.mktemp("compared") / "points.parquet"
    asked = {"file": H200, "levels": ["partitions", "banks"]}
    compare_with_measured(asked, dataset, out, 2)
    return read_table(out, SAME_MACHINE_SCHEMA).to_pandas()


def test_doubling_law_and_cliff_are_predicted_and_better_by_banks(compared: pd.DataFrame) -> None:
    wanted = [1, 2, 4, 8, 16, 32, 132, 264, 265, 528, 529, 1056]
    for _, part in compared.groupby(["level", "dtype"]):
        assert list(part["num_partition"]) == wanted
    again = compared["simulated_gbs"] / compared["measured_gbs"] - 1
    assert (again - compared["error"]).abs().max() < 1e-12
    few = compared[(compared["num_partition"] <= 32) & (compared["level"] == "banks")]
    assert few["error"].abs().max() < 0.12
    banks = compared[compared["level"] == "banks"].set_index(["dtype", "num_partition"])
    for dtype, part in few.groupby("dtype"):
        for column in ("measured_gbs", "simulated_gbs"):
            gains = part[column].to_numpy()[1:] / part[column].to_numpy()[:-1]
            assert gains == pytest.approx(2, rel=0.07)
        # A block more than the device holds waits for a second wave.
        measured, simulated = (
            banks.loc[(dtype, 529), column] / banks.loc[(dtype, 528), column]
            for column in ("measured_gbs", "simulated_gbs")
        )
        assert measured < 0.8
        assert simulated == pytest.approx(measured, abs=0.05)
    median = compared["error"].abs().groupby(compared["level"]).median()
    assert median["banks"] < median["partitions"] < 0.13
    assert median["banks"] < 0.11


def test_some_tiles_of_each_block_tell_the_time_of_all(machine: Machine) -> None:
    """The steady state that the prediction relies on, on a smaller device."""
    small = replace(machine, n_sm=4, partitions=8, bus_bytes=32)
    tiling = Tiling.partition_wide(small, 1024, 4)
    [point] = [p for p in _points(small, tiling) if p.blocks == 8]
    whole = simulate_tiles(small, tiling, 8, Level.BANKS).drained_bandwidth_gbs
    assert predicted_gbs(small, point, Level.BANKS) == pytest.approx(whole, rel=0.02)


def _points(machine: Machine, tiling: Tiling) -> list[Any]:
    rows = [
        {
            "kernel": "block_eq_partition",
            "device_name": machine.name,
            "status": "ok",
            "variant": variant,
            "dtype": "float",
            "width": width,
            "height": width,
            "cache_state": state,
            "timing_mode": "batched",
            "num_partition": blocks,
            "bandwidth_gbs": float(blocks + (state == "warm")),
        }
        for variant in ("exact", "reciprocal")
        for width in (tiling.width // 2, tiling.width)
        for state in ("warm", "flushed")
        for blocks in (1, 3, 4, 8, 16)
    ]
    return points(machine, pd.DataFrame(rows))


def test_points_are_of_the_largest_size_and_the_documents_variant(machine: Machine) -> None:
    small = replace(machine, n_sm=4)
    found = _points(small, Tiling.partition_wide(small, 1024, 4))
    # Three blocks are neither a doubling nor a multiple of the device.
    assert [p.blocks for p in found] == [1, 4, 8, 16]
    assert all(p.tiling.width == 1024 for p in found)
    # Of two states the flushed one.
    assert [p.measured_gbs for p in found] == [1.0, 4.0, 8.0, 16.0]


def test_figure_and_page_errors(
    compared: pd.DataFrame, drawn: list[Figure], tmp_path: Path
) -> None:
    same_machine(compared, tmp_path / "x.svg")
    assert_readable(drawn[0])
    caption = json.loads((tmp_path / "x.json").read_text())["caption"]
    median = compared[compared["level"] == "banks"]["error"].abs().median()
    assert f"off by less than {100 * median:.1f} %" in caption
    assert "From 528 to 529 blocks float falls to 67 % measured" in caption
    page = same_machine_page(compared)
    assert page["dtypes"] == ["float", "double"]
    assert [r["blocks"] for r in page["rows"]][-3:] == ["528", "529", "1056"]
    assert all(len(r["cells"]) == 8 for r in page["rows"])
