"""Portfolios: the fewest launches and thresholds within a loss, judged, and written three times."""

import json
import math
import shutil
import subprocess
from bisect import bisect_right
from itertools import combinations, groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import record
from gpushmoo import ExportError, export, open_run
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.exporting.choices import ExportGroup
from gpushmoo.exporting.portfolio import FILES, Losses, Portfolio, portfolios, threshold, written
from gpushmoo.interactive.shell import main
from hypothesis import given
from hypothesis import strategies as st
from test_exporting import close, group

PLACES = [("double", 64), ("double", 128), *(("float", 64 * 4**n) for n in range(4))]


def least_changes(lost: np.ndarray, launches: tuple[int, ...], loss: float) -> float:
    """Of all ways to give each place one of the launches: the fewest changes within the types."""
    changes = 0.0
    for _, span in groupby(enumerate(PLACES), key=lambda place: place[1][0]):
        columns = [n for n, _ in span]
        ways = product(launches, repeat=len(columns))
        fits = (w for w in ways if all(lost[x, n] <= loss for x, n in zip(w, columns, strict=True)))
        changes += min((len(list(groupby(way))) - 1 for way in fits), default=math.inf)
    return changes


@pytest.mark.parametrize("seed", range(12))
def test_no_set_of_fewer_launches_or_thresholds_keeps_the_bound(seed: int) -> None:
    # The last two are of the same step, and a bound lies between them.
    values = [0, 0.004, 0.021, 0.024, math.inf]
    lost = np.random.default_rng(seed).choice(values, (7, len(PLACES)))
    lost[0] = np.minimum(lost[0], 0.024)
    launches = [(("block_x", n),) for n in range(7)]
    losses = Losses(launches, PLACES, lost, [0.001] * len(PLACES))
    for k, loss in product((1, 2, 3), (0.004, 0.022, 0.03)):
        by_count = (
            min(least_changes(lost, some, loss) for some in combinations(range(7), count))
            for count in range(1, k + 1)
        )
        kept = [(n, changes) for n, changes in enumerate(by_count, 1) if changes < math.inf]
        found = losses.chosen(k, loss)
        assert bool(found) == bool(kept)
        if found:
            own, numbers = found
            assert all(lost[own[n], place] <= loss for place, n in enumerate(numbers))
            rules = losses.rules(found, k, loss).values()
            assert (len(own), sum(len(rule.below) for rule in rules)) == kept[0]
    for k in (1, 2, 3):
        reached = min(lost[list(some)].min(axis=0).max() for some in combinations(range(7), k))
        assert losses.least(k) == reached


@given(st.integers(0, 2**40), st.integers(1, 2**40))
def test_a_threshold_lies_between_two_sizes(low: int, more: int) -> None:
    assert low < threshold(low, low + more) <= low + more


def test_a_threshold_is_as_round_as_may_be() -> None:
    assert threshold(1448**2, 1672**2) == 2_400_000
    assert threshold(2**16, 2**20) == 260_000
    assert [threshold(1000, 1002), threshold(0, 64), threshold(2, 3)] == [1001, 8, 3]


def groups(**columns: Any) -> list[ExportGroup]:
    """Two types of which one has the other's best launches, by size; `columns` are of the rows."""
    best = {64: 32, 128: 32, 256: 64, 512: 128, 1024: 128}
    return [
        group(
            {
                x: close(1.0 if x == fast else 1.01 if dtype == "half" else 1.3)
                for x in best.values()
            },
            size=size,
            dtype=dtype,
            **columns,
        )
        for dtype in ("float", "half")
        for size, fast in best.items()
    ]


def test_a_size_that_was_left_out_judges_the_portfolio_made_without_it() -> None:
    [made], missed = portfolios(groups(), 3, 0.02)
    assert not missed
    assert made.launches == [(("block_x", x),) for x in (128, 64, 32)]
    assert [made.launch("float", size**2)["block_x"] for size in (8, 128, 256, 9999)] == [
        *(32, 32, 64, 128)
    ]
    # Without 256² its launch is not there. Left out, 128² and 512² lie at thresholds.
    assert made.rules["float"].left_out == pytest.approx({128**2: 0.3, 256**2: 0.3, 512**2: 0})
    assert made.rules["float"].losses == dict.fromkeys((n**2 for n in (64, 128, 256, 512, 1024)), 0)
    assert made.rules["half"].below == []
    assert made.claims[:2] == [
        "copy (plain) on GPU 1, k = 3, the fewest launches within the loss",
        "float: the fastest at 5 sizes, by medians ± 1.0 %; "
        "left out 30 %, at most 30 % (3 of 3 inner sizes)",
    ]
    [short], _ = portfolios([g for g in groups() if g.key["height"] < 200])
    assert short.claims[1].endswith("; not judged at others")


def test_of_shapes_with_as_many_elements_the_worst_counts() -> None:
    [one, *_] = groups()
    [other] = [g for g in groups() if g.key["height"] == 256 and g.key["dtype"] == "float"]
    key = {**one.key, "height": 1, "width": 64**2}
    twins = [one, ExportGroup(key, other.cells, other.axes)]
    with pytest.raises(ExportError, match=r"k = 2 loses 30\.1 %; no k up to 8 keeps to 2\.0 %\.$"):
        portfolios(twins, 2)
    [made], _ = portfolios(twins, 1, 0.3001)
    assert [*made.rules["float"].losses.values()] == pytest.approx([0.3])


def test_what_does_not_work_at_a_size_is_not_taken_there() -> None:
    sizes = {64: (32, 64), 128: (64,), 256: (32, 64)}
    some = [group({x: close(2.0 - x / 64) for x in own}, size=n) for n, own in sizes.items()]
    [made], _ = portfolios(some, 2, 0)
    assert [dict(point)["block_x"] for point in made.launches] == [64]
    rest = [group({x: close(1.0)}, size=n) for n, x in {64: 32, 128: 64, 256: 32}.items()]
    with pytest.raises(ExportError, match="k = 1 fails; k = 2 keeps"):
        portfolios(rest, 1)
    [made], _ = portfolios(rest)
    assert made.rules["float"].left_out == {128**2: None}
    json.loads(written([made], [], {})[1])


def test_c_json_and_python_name_the_same_launch(tmp_path: Path) -> None:
    both = [*groups(), *groups(device_name="1-GPU */ é\n", cache_state="flushed", variant="b")]
    made, _ = portfolios(both, 3, 0.02)
    texts = written(made, ['about */ """'], {"format": "made"})
    for name, text in zip(FILES, texts, strict=True):
        (tmp_path / name).write_text(text)
    module: dict[str, Any] = {}
    exec(texts[2], module)
    calls, expected = [], []
    for one, told in zip(made, json.loads(texts[1])["portfolios"], strict=True):
        for rule in told["rules"]:
            ends = [0, *(n + off for n in rule["below"] for off in (-1, 0, 1)), 2**40]
            for size in {*ends, *map(int, rule["losses"])}:
                number = rule["numbers"][bisect_right(rule["below"], size)]
                launch = told["launches"][number]
                assert module[rule["function"]](size) == launch == one.launch(rule["dtype"], size)
                calls.append(f"{rule['function']}({size}u)")
                expected.append([number, launch["block_x"]])
    prints = "".join(f'printf("%d %d\\n", {c}.number, {c}.block_x);\n' for c in calls)
    source = '#include "portfolio.h"\n' * 2 + "#include <stdio.h>\n"
    source += f"int main(void) {{\n{prints}return 0;\n}}\n"
    for compiler, suffix, standard in (("gcc", "c", "c99"), ("g++", "cpp", "c++11")):
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not there")
        file = tmp_path / f"use.{suffix}"
        file.write_text(source)
        flags = [f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, *flags, file, "-o", tmp_path / suffix], check=True)
        done = subprocess.run([tmp_path / suffix], capture_output=True, text=True, check=True)
        assert [[*map(int, line.split())] for line in done.stdout.splitlines()] == expected


def test_names_are_refused_that_c_does_not_tell_apart() -> None:
    twins = [*groups(kernel="my-copy"), *groups(kernel="My copy")]
    with pytest.raises(ExportError, match=r"both .* would be called gpushmoo_gpu_1_my_copy_float"):
        written(portfolios(twins)[0], [], {})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of sixteen sizes on an H200."""
    folder = tmp_path_factory.mktemp("copies") / "dataset"
    shards = (record("nvidia-h200") / "global_copy").rglob("*.parquet")
    aggregate(sorted(shards), folder)
    return folder


def test_losses_on_a_record_are_those_of_its_cells(dataset: Path) -> None:
    run = open_run(dataset)
    cells = run.cells[run.cells["status"] == "ok"]
    made = run.portfolios(k=3, loss=0.02)
    assert len(made) == 3

    def lost(one: Portfolio, dtype: str, elements: int) -> float:
        same = one.target | {"dtype": dtype}
        asked = cells[(cells[[*same]] == [*same.values()]).all(axis=1)]
        asked = asked[asked["height"] * asked["width"] == elements]
        launch = one.launch(dtype, elements)
        own = asked[(asked[[*launch]] == [*launch.values()]).all(axis=1)]
        return float(own["median_s"].min() / asked["median_s"].min() - 1)

    for one in made:
        for dtype, rule in one.rules.items():
            found = {n: lost(one, dtype, n) for n in rule.losses}
            assert found == pytest.approx(rule.losses)
            assert max(found.values()) <= 0.02
            assert len(found) == len(rule.left_out) + 2 == 16
    elements = 2048**2
    run.cells = run.cells[run.cells["height"] * run.cells["width"] != elements]
    for one, rest in zip(made, run.portfolios(k=3, loss=0.02), strict=True):
        assert one.target == rest.target
        for dtype, rule in one.rules.items():
            assert rule.left_out[elements] == pytest.approx(lost(rest, dtype, elements))


def test_the_command_writes_portfolios_and_names_those_that_there_are_not(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(dataset), "--formats", "portfolio", "--out", str(tmp_path / "o")]
    assert main([*words, "--k", "3", "--loss", "2%"]) == 0
    out, err = capsys.readouterr()
    assert "3 files written to " in out
    assert "(streaming) on NVIDIA H200 is left out: k = 3 loses 2.3 %; k = 4 keeps to 2.0 %." in err
    told = json.loads((tmp_path / "o/portfolio.json").read_text())
    assert told["provenance"]["hardware"]["hardware_description"][0]["driver"]
    assert len(told["portfolios"]) == 3
    assert any("k = 3 loses 2.3 %" in sentence for sentence in told["left_out"])
    # The bound is the promise: without one that keeps it nothing is written.
    assert main([*words, "--k", "1", "--loss", "0.001"]) == 2
    assert json.loads((tmp_path / "o/portfolio.json").read_text()) == told
    assert main([*words, "--k", "9"]) == 2
    assert "k must be from 1 to 8" in capsys.readouterr().err
    with pytest.raises(ExportError, match="k and loss are for the format portfolio"):
        export(dataset, out=tmp_path / "p", formats=["json"], k=2, loss=0.1)
