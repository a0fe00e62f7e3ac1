"""Files of other tuners: each format read, ties and winners told apart, sentences for bad ones."""

import gzip
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import record
from gpushmoo import CompareError, JudgeError, judge
from gpushmoo.analysis.aggregate import opened
from gpushmoo.analysis.best import best_of_dataset
from gpushmoo.extras.foreign_formats.results import cache_text, t4_results
from gpushmoo.extras.judging.judge import BLOCKS, blocks_of, centres, read_groups
from gpushmoo.interactive.shell import main
from test_exporting import group
from tuners import NOISE, TIE, WINNER, Samples, cache, samples, written


def t4(times: Samples) -> dict[str, Any]:
    results = [
        {
            "configuration": {"block_x": x},
            "times": {"runtimes": [1e6 * t for t in s]},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 1e6 * float(np.mean(s)), "unit": "us"}],
        }
        for x, s in times.items()
    ]
    failed = {"configuration": {"block_x": 2048}, "times": {}, "invalidity": "compile"}
    return {"metadata": {"timeunit": "microseconds"}, "results": [*results, failed]}


def timed_by_t4(times: Any, **time: Any) -> dict[str, Any]:
    """A file of one configuration with these times, and a measurement if `time` has its value."""
    measurements = [{"name": "time", **time}] if time else []
    one = {"configuration": {"block_x": 1}, "times": times, "invalidity": "correct"}
    return {"metadata": {}, "results": [{**one, "measurements": measurements}]}


def nvbench(times: Samples, folder: Path | None = None, size: int = 1024) -> dict[str, Any]:
    """nvbench's JSON, in `folder` with the samples beside it."""
    states = []
    for number, (x, s) in enumerate(times.items()):
        summaries: list[dict[str, Any]] = [
            _summary("nv/cold/sample_size", value=len(s)),
            _summary("nv/cold/time/gpu/mean", value=float(np.mean(s))),
            _summary("nv/cold/time/gpu/stdev/relative", value=float(np.std(s) / np.mean(s))),
        ]
        if folder is not None:
            (folder / "x.json-bin").mkdir(exist_ok=True)
            np.array(s, "<f4").tofile(folder / "x.json-bin" / f"{number}.bin")
            named = {"filename": f"x.json-bin/{number}.bin", "size": len(s)}
            summaries.append(_summary("nv/json/bin:nv/cold/sample_times", **named))
        axes = _summary("", block_x=x, Elements=size)["data"]
        states.append(
            {"device": 0, "axis_values": axes, "summaries": summaries, "is_skipped": False}
        )
    none = {"axis_values": _summary("", block_x=2048, Elements=size)["data"], "summaries": None}
    skipped = {"device": 0, **none, "is_skipped": True, "skip_reason": "too large"}
    benchmark = {"name": "copy", "states": [*states, skipped]}
    return {"devices": [{"id": 0, "name": "GPU"}], "benchmarks": [benchmark]}


def _summary(tag: str, **values: str | float) -> dict[str, Any]:
    kinds = {int: "int64", float: "float64", str: "string"}
    data = [{"name": n, "type": kinds[type(v)], "value": str(v)} for n, v in values.items()]
    return {"tag": tag, "data": data}


def triton(times: Samples) -> dict[str, Any]:
    timings = [
        ({"kwargs": {"BLOCK": x}, "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None},
         [1e3 * float(q) for q in np.quantile(s, [0.5, 0.2, 0.8])])
        for x, s in times.items()
    ]  # fmt: skip
    failed = ({"kwargs": {"BLOCK": 2048}, "num_warps": 4}, [float("inf")] * 3)
    return {"key": [1024, "torch.float32"], "configs_timings": [*timings, failed]}


@pytest.mark.parametrize("form", [cache, t4, nvbench])
def test_a_planted_winner_and_a_planted_tie_are_told_apart(form: Any, tmp_path: Path) -> None:
    for times, tied in ((WINNER, 1), (TIE, 3)):
        told = form(times, tmp_path) if form is nvbench else form(times)
        [row] = judge([written(tmp_path / "x.json", told)]).rows.to_dict("records")
        assert (row["tied"], row["configurations"], row["timed"]) == (tied, 21, 20)
        assert (row["samples"], row["winner_s"]) == (32, pytest.approx(1e-3, rel=0.01))
        assert row["published_tied"] is True
        assert row["halves_agree"] == (tied == 1)
        assert tied > 1 or row["winner"] == "block_x=32"
        assert any("another process" in text for text in row["cannot_tell"])


def test_a_clock_that_steps_leaves_more_ties() -> None:
    rng = np.random.default_rng(2)
    times = np.exp(np.repeat(np.arange(40) * 0.01, 32).reshape(40, 32))
    steady = times * np.exp(0.0005 * rng.standard_normal((40, 32)))
    stepped = steady * np.where(np.arange(32) >= rng.integers(8, 28, 40)[:, None], 1.08, 1.0)
    tied = []
    for series in (steady, stepped):
        middle, half = centres(blocks_of(series))
        first = int(middle.argmin())
        tied.append(int((middle - half <= middle[first] + half[first]).sum()))
    assert tied[0] == 1
    assert tied[1] > 3


def test_a_few_configurations_are_judged_as_well(tmp_path: Path) -> None:
    for factors, tied in (({32: 1.0}, 1), ({32: 1.0, 64: 1.5}, 1)):
        file = written(tmp_path / "x.json", cache(samples(factors, 8)))
        assert judge([file]).rows["tied"].tolist() == [tied]
        # Parameters that all share are named only for a single one.
        [winner] = judge([file]).rows["winner"]
        assert ("mode=a" in winner) is (len(factors) == 1)
        assert "block_x=32" in winner


@pytest.mark.parametrize(("n", "blocks", "size"), [(32, 7, 4), (17, 7, 2), (10, 4, 2), (5, 4, 1)])
def test_blocks_are_of_the_last_samples(n: int, blocks: int, size: int) -> None:
    found = blocks_of(np.arange(2.0 * n).reshape(2, n))
    assert found.shape == (2, blocks, size)
    assert found[0].ravel().tolist() == [*range(n - blocks * size, n)]
    assert n - blocks * size >= min(size, n // BLOCKS)


def test_the_truly_fastest_stays_among_the_tied() -> None:
    rng = np.random.default_rng(4)
    true = np.sort(np.r_[0.0, rng.uniform(0.0005, 0.005, 30), rng.uniform(0.05, 0.6, 200)])
    hits = []
    for _ in range(60):
        noise = rng.standard_normal((len(true), 82))
        for i in range(1, 82):
            noise[:, i] = 0.8 * noise[:, i - 1] + 0.6 * noise[:, i]
        middle, half = centres(blocks_of(np.exp(true[:, None] + NOISE * noise[:, 50:])))
        first = int(middle.argmin())
        hits.append(middle[0] - half[0] <= middle[first] + half[first])
    assert np.mean(hits) >= 0.9


def series(r: float, configurations: int = 400, n: int = 7) -> Any:
    """Logs of blocks of which each resembles the one before by `r`."""
    noise = np.random.default_rng(5).standard_normal((configurations, n + 60))
    for i in range(1, n + 60):
        noise[:, i] = r * noise[:, i - 1] + math.sqrt(1.0 - r * r) * noise[:, i]
    return NOISE * noise[:, 60:]


@pytest.mark.parametrize(
    ("r", "covered", "least", "most"),
    [(0.0, 0.93, 0.98, 1.12), (0.3, 0.9, 0.9, 1.0), (0.6, 0.87, 0.79, 0.88)],
)
def test_blocks_that_resemble_their_neighbours_widen_the_interval(
    r: float, covered: float, least: float, most: float
) -> None:
    logs = series(r)
    middle, half = centres(np.exp(logs)[:, :, None])
    assert middle == pytest.approx(logs.mean(axis=1))
    assert np.mean(np.abs(middle) <= half) >= covered
    assert least < half.mean() / (1.96 * middle.std()) < most


def test_blocks_that_alternate_narrow_nothing_and_a_few_change_nothing() -> None:
    logs = series(-0.9)
    mixed = np.random.default_rng(1).permuted(logs, axis=1)
    _, half = centres(np.exp(logs)[:, :, None])
    _, other = centres(np.exp(mixed)[:, :, None])
    assert half.mean() == pytest.approx(other.mean(), rel=0.1)
    # Of seven configurations, or of three blocks, no resemblance is known; of more it is.
    alike = np.exp(series(0.8))
    for configurations, n, known in ((7, 7, False), (40, 3, False), (40, 4, True), (8, 7, True)):
        few = alike[:configurations, :n]
        _, half = centres(few[:, :, None])
        _, other = centres(np.random.default_rng(1).permuted(few, axis=1)[:, :, None])
        assert bool(half.mean() > 1.1 * other.mean()) is known, (configurations, n)


def test_triton_tells_no_number_of_samples(tmp_path: Path) -> None:
    found = judge([written(tmp_path / "add.autotune.json", triton(TIE))])
    [row] = found.rows.to_dict("records")
    assert (row["kernel"], row["problem"], row["tied"]) == ("add", "1024, torch.float32", None)
    assert (row["timed"], row["configurations"], row["near"]) == (20, 21, 3)
    assert "which are tied (no number of samples a configuration)" in row["cannot_tell"]
    assert "nobody can say how many" in str(found)


def test_entries_without_samples_are_counted(tmp_path: Path) -> None:
    told = cache({32: [1.0] * 9, 64: [1.001] * 9, 96: [2.0] * 9})
    del next(iter(told["cache"].values()))["times"]
    [row] = judge([written(tmp_path / "a.json", told)]).rows.to_dict("records")
    assert "which are tied (1 of 3 configurations have no samples)" in row["cannot_tell"]


def test_nvbench_without_samples_has_its_deviation_and_names_its_problem(tmp_path: Path) -> None:
    file = written(tmp_path / "a.json", nvbench(samples({32: 1.0, 64: 1.001, 96: 2.0}, 100, 5)))
    [row] = judge([file]).rows.to_dict("records")
    assert (row["tied"], row["samples"]) == (2, 100)
    assert any("--problem" in text for text in row["cannot_tell"])
    assert any("drift" in text for text in row["cannot_tell"])
    assert judge([file], problem=["Elements"]).rows["problem"].tolist() == ["Elements=1024"]


def test_what_we_export_is_judged_as_we_judge_it(tmp_path: Path) -> None:
    ours = group({8: (2e-3, 1.9e-3, 2.1e-3), 16: (1e-3, 0.9e-3, 1.1e-3)})
    for name, told in (("t4", t4_results(ours, "r")), ("cache", json.loads(cache_text(ours)))):
        file = written(tmp_path / f"{name}.json", told)
        [found] = read_groups(file)
        [row] = judge([file]).rows.to_dict("records")
        assert row["timed"] == len(ours.ok)
        assert row["winner"] == f"block_x={ours.fastest['block_x']}"
        assert (found.device, found.kernel) == (ours.key["device_name"], ours.key["kernel"])


def test_a_failed_configuration_has_an_error_for_its_time_or_none(tmp_path: Path) -> None:
    told = cache(samples({32: 1.0}))
    told["cache"]["64,1"] = {"block_x": 64, "mode": "a", "time": "CompilationFailedConfig"}
    [found] = read_groups(written(tmp_path / "x.json", told))
    assert [c.status for c in found.configurations] == ["ok", "too_many_threads", "build_failed"]


def test_a_runs_folder_is_judged_as_its_report_does() -> None:
    place = record("nvidia-h200-gallery")
    rows = judge([place]).rows
    with opened(place) as source:
        best = best_of_dataset(source.dataset).to_pandas()
    fastest = best[best["is_fastest"]]
    assert sorted(rows["tied"]) == sorted(fastest["tied"])
    assert sorted(rows["winner_s"]) == pytest.approx(sorted(fastest["median_s"]))
    assert set(rows["format"]) == {"gpushmoo"}


def test_an_interrupted_cache_and_a_compressed_one_are_read(tmp_path: Path) -> None:
    text = json.dumps(cache(WINNER), indent=0)
    cut = written(tmp_path / "cut.json", text[: text.rindex('"2048,1"')])
    (tmp_path / "whole.json.gz").write_bytes(gzip.compress(text.encode()))
    rows = judge([cut, tmp_path / "whole.json.gz"]).rows
    assert rows["timed"].tolist() == [20, 20]
    assert rows["configurations"].tolist() == [20, 21]


def test_two_files_under_the_guard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    factors = {x: 1.0 + 0.02 * i for i, x in enumerate(range(32, 32 * 41, 32))}
    slow = {x: 1.3 * f for x, f in factors.items()}
    first, same, again, slower = (
        written(tmp_path / f"{i}.json", cache(samples(f, 32, i)))
        for i, f in enumerate((factors, factors, factors, slow))
    )
    alone = judge([slower], before=[first]).comparison
    assert alone is not None
    assert alone.groups["verdict"].tolist() == ["undecided"]
    options = ["--noise-runs", str(same), str(again), "--before", str(first)]
    assert main(["judge", str(slower), *options, "--fail-on-regression"]) == 1
    assert "copy, 64 x 32" in capsys.readouterr().out
    assert main(["judge", str(same), "--before", str(first), "--fail-on-regression"]) == 0
    other = written(tmp_path / "n.json", nvbench(WINNER))
    with pytest.raises(CompareError, match="different protocols"):
        judge([other], before=[first])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not JSON"),
        ("[1]", "not contain a JSON object"),
        ({"a": 1}, "is not in a supported format"),
        ({"16": {"BLOCK": 1}, "triton_version": "3.6.0"}, "choices without times"),
        ({"format": "gpushmoo choices"}, "choices without times"),
        (cache(WINNER, objective="GFLOP/s"), "tuned for 'GFLOP/s'"),
        (cache({}), "no configuration that has a time"),
        ({"cache": {"1": {}}, "tune_params_keys": ["a"]}, "misses 'kernel_name'"),
        (cache({1: [0.0, 1.0]}), "not a positive number"),
        ({"configs_timings": [[1, 2]]}, "another form than Triton writes"),
        ({"benchmarks": 1, "devices": []}, "another form than nvbench writes"),
        ({"results": [{"configuration": 1}], "metadata": {}}, "another form than T4 writes"),
        ({"results": None, "schema_version": "1.0.0"}, "another form than T4 writes"),
        ({"results": []}, "no configuration that has a time"),
        ({"metadata": {}, "schema_version": "1.0.0"}, "no configuration that has a time"),
        (timed_by_t4({"runtimes": [1.0, "fast"]}), "a time is 'fast'"),
        (timed_by_t4({"runtimes": [None]}), "a time is None"),
        (timed_by_t4({"runtimes": "fast"}), "must be a list"),
        (timed_by_t4({"runtimes": []}), "not a positive number"),
        (timed_by_t4({}, value="fast"), "a time is 'fast'"),
        (timed_by_t4({}, value=1.0, unit="parsec"), "the unit 'parsec'"),
        (
            cache({}) | {"cache": {"1": {"block_x": 1, "mode": "a", "time": 1.0, "times": ["u"]}}},
            "a time is 'u'",
        ),
    ],
)
def test_a_bad_file_gets_one_sentence(
    content: Any, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "x.json", content)
    with pytest.raises(JudgeError, match=re.escape(sentence)):
        judge([file])
    assert main(["judge", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(file) in said


def test_a_missing_file_and_a_threshold_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="No such file"):
        judge([tmp_path / "none.json"])
    with pytest.raises(JudgeError, match="share between 0 and 1"):
        judge([tmp_path], threshold=2.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_comparison_as_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("x.json", "older.json"):
        written(tmp_path / name, cache(TIE))
    words = ["judge", str(tmp_path / "x.json"), "--before", str(tmp_path / "older.json")]
    assert main(words) == 0
    plain = capsys.readouterr().out
    assert "|---" in plain
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    assert main(words) == 0
    shown = terminal.getvalue()
    assert not [mark for mark in ("##", "**", "|---") if mark in shown]
    # What is said of the files stays as it is.
    first = plain.partition("\n\n")[0]
    assert shown.startswith(first)
