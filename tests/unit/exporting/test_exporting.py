"""What is exported: choices among tied launches, headers, T4, Kernel Tuner's cache, the folder."""

import json
import math
import random
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import cell
from gpushmoo import ExportError, export
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import advice, best_table, tied_best
from gpushmoo.core.paths import ROOT
from gpushmoo.core.run_plan import SAVED
from gpushmoo.core.schema import CORE_COLUMNS, Status
from gpushmoo.core.space import Problem
from gpushmoo.exporting.choices import NEXT, SLOWEST, Choice, ExportGroup, choices, groups_of
from gpushmoo.exporting.formats import c_header, choices_json, cpp_header, entries, identifier
from gpushmoo.exporting.vocabulary import t4_metadata
from gpushmoo.storage.dataset import read_cells
from hypothesis import given
from hypothesis import strategies as st
from synthetic import GPU, shard_metadata, shard_params, write_shard

BLOCKS = {"block_x": [8, 16, 32, 64], "block_y": [4, 8, 32]}
LARGE, SMALL = Problem(8192, 8192), Problem(1024, 1024)
# Seconds: the median, and the ends of its interval.
Times = tuple[float, float, float]


def group(
    times: Mapping[int, Times | Status],
    size: int = 1024,
    over_cache: float | None = 0.5,
    **columns: Any,
) -> ExportGroup:
    """A group with the axis ``block_x``, by its value: times, or how a cell ended."""
    rows = []
    for value, end in times.items():
        is_ok = not isinstance(end, Status)
        median, low, high = end if is_ok else (math.nan,) * 3
        own = {
            "kernel": "copy",
            "variant": "plain",
            "device_name": "GPU 1",
            "height": size,
            "width": size,
            "block_x": value,
            "threads_per_block": min(abs(value), 1024),
            "status": Status.OK if is_ok else end,
            "cell_key": f"{size:08}{value:08}",
            "group_low_s": low,
            "group_high_s": high,
            "coverage": 0.95,
            # Those of another run decide nothing.
            "median_low_s": 0.9 * low,
            "median_high_s": 1.2 * high,
            "bandwidth_gbs": 5 / median,
            "bandwidth_low_gbs": 5 / (1.2 * high),
            "bandwidth_high_gbs": 5 / (0.9 * low),
            "memcpy_gbs": 7.0,
            "vs_memcpy": 5 / median / 7.0,
            "samples_s": [low, median, high] if is_ok else [],
            "launches_per_sample": 2 if is_ok else math.nan,
            "working_set_over_cache": over_cache,
            "measured_at": pd.Timestamp("2026-11-22T10:00:00", tz="UTC"),
        }
        rows.append(dict.fromkeys(CORE_COLUMNS) | cell(median, **(own | columns)))
    [made] = groups_of(pd.DataFrame(rows).astype({"block_x": "Int64"}))
    return made


def close(median: float) -> Times:
    """A median with an interval of a hundredth on both sides."""
    return median, 0.99 * median, 1.01 * median


def points(choice: Choice) -> int:
    [(axis, value)] = choice.point
    assert axis == "block_x"
    return value


def test_report_and_export_choose_the_same_plain_launch() -> None:
    times = {8: (1.0, 0.9, 1.1), 320: (1.02, 0.9, 1.1), 256: (1.008, 0.9, 1.1)}
    small = group(times, size=1024)
    large = group(times | {8: (1.05, 0.9, 1.1)}, size=8192, over_cache=9.0)
    both = pd.concat([small.cells, large.cells], ignore_index=True)
    [told] = advice(both, best_table(both).to_pandas())
    chosen = choices([small, large])
    assert [told.cell["block_x"], *map(points, chosen)] == [256] * 3
    assert all(c.everywhere for c in chosen)
    assert [g.problem for g in chosen[0].tied] == ["1024x1024 warm", "8192x8192 warm"]
    assert [g.problem for g in chosen[1].tied] == ["8192x8192 warm", "1024x1024 warm"]
    # Sure to be slower, yet by less than the margin.
    near = {64: (1.0, 0.9999, 1.0001), 256: (1.004, 1.0039, 1.0041), 257: close(2.0)}
    [plain] = choices([group(near)])
    assert (points(plain), plain.tied) == (256, [])
    [entry] = entries([plain])
    assert entry.comment[1] == "Nearly as fast as the fastest, and closer to 256 threads."


@given(st.integers(0, 2**32 - 1))
def test_noise_within_the_margin_does_not_change_the_choice(seed: int) -> None:
    noise = random.Random(seed)
    # A third of the margin to both sides of candidates, and as much beyond it to the others.
    true = dict.fromkeys((32, 96, 256, 320), 1.0) | {512: 1.03, 128: 1.04, 255: 1.05}
    times = {x: t * noise.uniform(0.998, 1.002) for x, t in true.items()}
    one, two = (
        group({x: (t, 0.998 * t, 1.002 * t) for x, t in times.items()}, size=size)
        for size in (1024, 2048)
    )
    assert [points(c) for c in choices([one, two])] == [256]


def test_each_class_has_a_launch_of_its_own_and_says_where_it_loses() -> None:
    inside, around, outside = choices(
        [
            group({32: close(1.0), 64: close(1.1)}, size=1024),
            group({32: close(1.3), 64: close(1.0)}, size=3000, over_cache=2.0),
            group({32: close(1.3), 64: close(1.0)}, size=8192, over_cache=8.0),
        ]
    )
    assert [points(c) for c in (inside, around, outside)] == [32, 64, 64]
    assert around.size_class == "around_cache"
    assert [g.problem for g in outside.tied] == ["8192x8192 warm", "3000x3000 warm"]
    assert not any(c.everywhere or c.not_tied for c in (inside, around, outside))
    sizes = {100: 32, 200: 64, 300: 64}
    groups = [
        group({x: close(1.0 if x == best else 1.25) for x in (32, 64)}, size=size)
        for size, best in sizes.items()
    ]
    [chosen] = choices(groups)
    assert points(chosen) == 64
    assert [g.problem for g in chosen.tied] == ["200x200 warm", "300x300 warm"]
    [lost] = chosen.not_tied
    assert lost.contest.slower(chosen.point) == pytest.approx(0.25)
    [entry] = entries([chosen])
    assert any("At 100x100 warm it takes 25 % longer" in line for line in entry.comment)


def test_cache_states_and_sizes_are_told_apart() -> None:
    warm, flushed = choices(
        [
            group({32: close(1.0), 64: close(1.2)}),
            group({32: close(1.2), 64: close(1.0)}, cache_state="flushed"),
        ]
    )
    assert (points(warm), points(flushed)) == (32, 64)
    names = [name for entry in entries([warm, flushed]) for name in entry.constants]
    assert names == [
        "gpu_1_copy_float_in_cache_block_x",
        "gpu_1_copy_float_in_cache_flushed_block_x",
    ]
    groups = [group({8: close(1.0)}, size=size, over_cache=None) for size in (512, 64)]
    assert [c.size_class for c in choices(groups)] == ["64x64", "512x512"]


def test_margins_are_those_of_usual_blocks_the_next_and_the_slowest() -> None:
    [chosen] = choices(
        [group({256: close(1.2), 64: close(1.0), 65: (1.05, 1.045, 1.055), 1: close(3.0)})]
    )
    told = {m.than: m for m in chosen.margins}
    assert points(chosen) == 64
    assert list(told) == ["256x1 block", NEXT, SLOWEST]
    assert told["256x1 block"].slower == pytest.approx(0.2)
    assert told["256x1 block"].low == pytest.approx(1.2 * 0.99 / 1.01 - 1)
    assert told["256x1 block"].high == pytest.approx(1.2 * 1.01 / 0.99 - 1)
    assert told["256x1 block"].confidence == pytest.approx(0.9)
    # Of two launches that several names fit, such as the next being the slowest, each stands once.
    assert told[NEXT].launch == (("block_x", 65),)
    [only] = choices([group({8: close(1.0)})])
    assert only.margins == []


LAUNCHES = st.dictionaries(
    st.integers(1, 6),
    st.one_of(
        st.sampled_from([Status.TIMEOUT, Status.WRONG_RESULT]),
        st.tuples(st.floats(1.0, 1.3), st.floats(0.0, 0.1), st.floats(0.0, 0.1)).map(
            lambda t: (t[0], t[0] - t[1], t[0] + t[2])
        ),
    ),
    min_size=1,
)
GROUPS = st.lists(
    st.tuples(
        LAUNCHES, st.sampled_from([0.5, 2.0, 8.0, None]), st.sampled_from(["warm", "flushed"])
    ),
    min_size=1,
    max_size=6,
)


@given(GROUPS)
def test_a_chosen_launch_loses_little_and_says_where_it_is_tied(drawn: list[Any]) -> None:
    groups = [
        group(times, size=64 + n, over_cache=over, cache_state=state)
        for n, (times, over, state) in enumerate(drawn)
    ]
    can_win = [g for g in groups if g.ok]
    made = choices(can_win)
    assert {g.problem for c in made for g in (*c.tied, *c.not_tied)} == {g.problem for g in can_win}
    for choice in made:
        for g in choice.tied:
            assert points(choice) in set(tied_best(g.cells)["block_x"])
        for g in choice.not_tied:
            assert points(choice) not in set(tied_best(g.cells)["block_x"])
        assert choice.everywhere == (len(choice.tied) == len(can_win))
        assert choice.main.contest.slower(choice.point) is not None
    # Numbers that JSON has, and names that C has.
    shard = shard_metadata(shard_params("copy", "float", {"axes": {}}, GPU), GPU)
    json.dumps(choices_json(made, [], "run", [shard]), allow_nan=False)
    assert len(entries(made)) == len(made)


def some_choices() -> list[Choice]:
    return choices(
        [
            group({8: close(1.0), 2**40: close(1.2), -3: close(2.0)}, device_name="1-GPU */ é\n\\"),
            group({8: close(1.5), 2**40: close(1.0)}, kernel="other", variant="a-b"),
            group({-(2**63): close(1.0), 5: close(2.0)}, kernel="other", variant="c.d"),
        ]
    )


def test_names_are_those_that_c_can_have() -> None:
    text = c_header(entries(some_choices()), ["about"])
    assert dict(re.findall(r"#define (GPUSHMOO_\w+_BLOCK_X) (.+)", text)) == {
        "GPUSHMOO_1_GPU_COPY_FLOAT_IN_CACHE_BLOCK_X": "8",
        # Of a kernel with several variants the variant is part of the name.
        "GPUSHMOO_GPU_1_OTHER_A_B_FLOAT_IN_CACHE_BLOCK_X": "1099511627776LL",
        "GPUSHMOO_GPU_1_OTHER_C_D_FLOAT_IN_CACHE_BLOCK_X": "(-9223372036854775807LL - 1)",
    }
    assert identifier("NVIDIA H200 (PCIe)__x") == "nvidia_h200_pcie_x"
    with pytest.raises(ExportError, match="'日本' has no letter or digit"):
        entries(choices([group({8: close(1.0)}, device_name="日本")]))
    twins = [group({8: close(1.0)}, kernel=name) for name in ("my-copy", "My copy")]
    with pytest.raises(
        ExportError, match=r"both .*My copy.* and .*my-copy.* would be called"
    ) as err:
        entries(choices(twins))
    assert str(err.value).count(". ") == 0


@pytest.mark.parametrize(
    ("compiler", "standard", "suffix"),
    [("gcc", "c99", "h"), ("g++", "c++11", "h"), ("g++", "c++11", "hpp")],
)
def test_headers_compile(tmp_path: Path, compiler: str, standard: str, suffix: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not there")
    made = entries(some_choices())
    other = entries(choices([group({8: close(1.0)}, device_name="GPU 2")]))
    for place, shown in ((tmp_path, made), (tmp_path / "other", other)):
        place.mkdir(exist_ok=True)
        (place / "launches.h").write_text(c_header(shown, ["about ??/"]))
        (place / "launches.hpp").write_text(cpp_header(shown, ["about */"]))
    names = ["GPU_1_OTHER_A_B_FLOAT_IN_CACHE_BLOCK_X", "GPU_2_COPY_FLOAT_IN_CACHE_BLOCK_X"]
    is_c = suffix == "h"
    use = " + ".join(f"GPUSHMOO_{n}" if is_c else f"gpushmoo::{n.lower()}" for n in names)
    # Twice: each guards itself, and lets that of another device be.
    source = f'#include "launches.{suffix}"\n' * 2 + f'#include "other/launches.{suffix}"\n'
    source += f"long long use(void);\nlong long use(void) {{ return {use}; }}\n"
    file = tmp_path / ("use.c" if compiler == "gcc" else "use.cpp")
    file.write_text(source)
    flags = [f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    done = subprocess.run(
        [compiler, *flags, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


FAILED = dict(enumerate(sorted(set(Status) - {Status.OK}), start=100))


def test_t4_has_each_device_system_and_version_once() -> None:
    def shard(uuid: str, driver: str, python: str) -> dict[str, Any]:
        device = {"uuid": uuid, "name": "GPU", "driver": driver, "runtime": "CUDA 13.2, NVRTC 13.1"}
        return {"device": device, "host": {"system": "Linux", "python": python}, "gpushmoo": "1"}

    shards = [shard("a", "13.0", "3.11"), shard("b", "13.0", "3.11"), shard("b", "13.0", "3.12")]
    told = t4_metadata([*shards, shard("c", "12.9", "3.11")])["metadata"]
    assert [d["driver"] for d in told["hardware"]["hardware_description"]] == ["13.0", "12.9"]
    assert told["hardware"]["operating_system"] == "Linux"
    assert told["environment"] == {
        "device_query": {"drivers": ["13.0", "12.9"]},
        "requirements": [
            "gpushmoo==1",
            "python==3.11",
            "CUDA 13.2",
            "NVRTC 13.1",
            "python==3.12",
        ],
    }


def recorded_groups(folder: Path, where: dict[str, str]) -> list[ExportGroup]:
    return list(groups_of(read_cells(folder / "dataset", where)))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels, of which one has cells over the limit, at two sizes."""
    folder = tmp_path_factory.mktemp("exported")
    for dtype in ("float", "double"):
        write_shard(
            folder / f"cells/copy2d_coalesced/{dtype}/0000-of-0001.parquet",
            "copy2d_coalesced",
            dtype,
            problems=(LARGE, SMALL),
            states=("warm", "flushed"),
            axes=BLOCKS,
            variants=("element",),
        )
    aggregate(sorted(folder.rglob("*.parquet")), folder / "dataset")
    return folder / "dataset"


def _kernel(out: Any, block_x: Any) -> None:
    pass


def test_the_function(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = export(dataset.parent / "cells", formats=["header"])
    assert done.folder == Path("export")
    assert [p.name for p in done.files] == ["launches.h", "launches.hpp"]
    # A run's and a saved sweep's, which are not other people's, are written into.
    saved = shutil.copytree(dataset.parent / "cells", tmp_path / "saved")
    (saved / SAVED).touch()
    for own in (dataset.parent, saved):
        assert export(own, formats=["header"]).folder == own / "export"
    with pytest.raises(ExportError, match="'nowhere' does not exist"):
        export("nowhere")
    with pytest.raises(
        ExportError, match=r"formats: 'yaml' is unknown; use one or more of header, json"
    ):
        export(dataset, formats=["yaml"])
    with pytest.raises(ExportError, match="formats: the list is empty"):
        export(dataset, formats=[])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ExportError, match="contains neither a data set nor shards"):
        export("empty")
    # Each of these has many files, of which few are shards.
    with pytest.raises(ExportError, match="is not a data set: it contains '") as caught:
        export(dataset.parents[1])
    assert str(caught.value).endswith("; name one of them.")
    with pytest.raises(ExportError, match=r"'nvidia-h200-\w+' and \d+ more; name one of them"):
        export(ROOT / "reports/reference")
