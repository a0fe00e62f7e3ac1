"""Two versions measured alternately: on a device of arrays, and from Python and the shell."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from fakes import (
    FOLDER,
    INFO,
    FakeDevice,
    FakeWorker,
    Fault,
    Tag,
    Tiny,
    built,
    cell_tag,
    make_cells,
)
from gpushmoo import ABTest, ConfigError, Version, ab
from gpushmoo.core.errors import (
    DeviceError,
    WorkerExitedError,
    WorkerKilledError,
    WorkerTimeoutError,
)
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.capabilities import Reading
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.interactive.ab import Side, versions_of
from gpushmoo.interactive.checkouts import Checkouts
from gpushmoo.interactive.shell import main
from gpushmoo.measuring.events import (
    Assignment,
    CellsStarted,
    Finished,
    MeasureCells,
    Message,
    PairRun,
    PairsOpened,
    pair_of,
    result_of,
)
from gpushmoo.measuring.job import MeasuredPairs
from gpushmoo.measuring.paired import PairedRun, _same_data, matched
from gpushmoo.measuring.rounds import SLOWED_ROUNDS
from gpushmoo.measuring.sampling import Sampling, StoppingRule
from gpushmoo.measuring.supervise import FaultLimits, Supervisor
from gpushmoo.measuring.verify import CellSteps
from gpushmoo.workloads.loader import KernelFolder
from gpushmoo.workloads.tolerances import Limit
from jobs import ended_runs, sampling_of

BLOCKS = 4
SAMPLING = sampling_of(StoppingRule(6, 9, 0.01, 1e9), warmup=0)
PAIRS = matched((make_cells(variants=("a",)), make_cells(variants=("b",))), [("a", "b")])
CALM = Reading(1500, 2600, 40, 100.0, ())
HOT = replace(CALM, reasons=("hw_thermal_slowdown",))


@dataclass
class Uneven(FakeDevice):
    """Launches of variant b take longer, by so much."""

    ratio: float = 1.5

    def seconds(self, tag: Tag, nth_sample: int, launches: int) -> float:
        return self.launch_s * (self.ratio if tag[0] == "b" else 1.0)


@dataclass(frozen=True)
class Shifted(KernelFolder):
    """As Tiny, of other inputs."""

    workload: Tiny = field(default_factory=lambda: OtherInputs())


class OtherInputs(Tiny):
    def inputs(self, problem: Any, dtype: str, rng: Any) -> dict[str, Any]:
        return {"src": 1 + super().inputs(problem, dtype, rng)["src"]}


def measured(
    device: FakeDevice,
    pairs: list[tuple[Cell, Cell]] = PAIRS,
    second: KernelFolder = FOLDER,
    sampling: Sampling = SAMPLING,
) -> tuple[list[Message], list[PairRun]]:
    """All that was told, and how pairs ended, in their order."""
    told: list[Message] = []
    a, b = (
        CellSteps(device, folder, built(device), sampling, told.append, device.clock)
        for folder in (FOLDER, second)
    )
    PairedRun((a, b), BLOCKS).measure(pairs)
    ended = {run.cell.key: run for run in ended_runs(told)}
    return told, [ended[a.key] for a, _ in pairs]


def samples(device: FakeDevice) -> list[str]:
    """The variants that were sampled, in order, after each was timed for the first time."""
    return [entry[1][0] for entry in device.log if entry[0] == "sample"]


def test_a_block_is_a_b_b_a_and_every_second_one_its_mirror_image() -> None:
    device = FakeDevice()
    measured(device, PAIRS[:1])
    # The first sample of a block is thrown away.
    assert "".join(samples(device)[2:]) == "aabba" + "bbaab" + "aabba" + "bbaab"
    device = FakeDevice()
    _, [ended] = measured(device, PAIRS[:1], Shifted(FOLDER.path))
    assert ended.status is Status.OK
    assert "".join(samples(device)[2:]) == "aabbbbaa" + "bbaaaabb" + "aabbbbaa" + "bbaaaabb"


class Other(Tiny):
    """As Tiny, but for what a test changes."""

    def inputs(self, problem: Any, dtype: str, rng: Any) -> dict[str, Any]:
        found = super().inputs(problem, dtype, rng)
        found["src"].flat[0] = self.first
        return found

    first = 0.0


def bounds(share: float) -> dict[str, Any]:
    """A limit for each element: other ones print alike."""
    return {"limit": Limit(atol=np.linspace(0, share, 8))}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ({}, {}, True),
        (bounds(1.0), bounds(1.0), True),
        (bounds(1.0), bounds(2.0), False),
        ({"limit": Limit(rtol=1e-6)}, {"limit": Limit(rtol=1.0000001e-6)}, False),
        ({"limit": Limit(ulp=1)}, {"limit": Limit(atol=1.0)}, False),
        ({"first": 0.0}, {"first": -0.0}, False),
        ({}, {"unwatched": frozenset({"src"})}, False),
        ({}, {"reads_poison": True}, False),
    ],
)
def test_versions_share_memory_only_if_they_are_judged_alike(
    a: dict[str, Any], b: dict[str, Any], same: bool
) -> None:
    sides = [(type("Changed", (Other,), one)(), "a") for one in (a, b)]
    assert _same_data(sides, Problem(4, 8), "float", 1) == same


class Checked(Tiny):
    """Knows no variant but its own."""

    has_check = True

    def outputs(self, inputs: Any, variant: str) -> dict[str, Any]:
        assert variant == "b"
        return super().outputs(inputs, variant)

    def check(self, cell: Cell, arrays: Any) -> str | None:
        return None


def test_in_shared_memory_each_version_is_judged_by_its_own_variant() -> None:
    device = FakeDevice()
    _, [ended] = measured(device, PAIRS[:1], KernelFolder(FOLDER.path, Checked()))
    assert "".join(samples(device)[2:7]) == "aabba"  # shared
    assert ended.status is Status.OK


def test_pairs_are_verified_and_have_as_many_launches() -> None:
    _, ended = measured(Uneven(launch_s=1e-6))
    assert [e.cell for e in ended] == [a for a, _ in PAIRS]
    for pair in ended:
        assert pair.status is Status.OK
        # The faster decides, for both: 64 launches of 1 µs take 50 µs.
        assert pair.launches == 64
        assert np.array(pair.a_s) == pytest.approx(np.full((BLOCKS, 2), 1e-6))
        assert np.array(pair.b_s) == pytest.approx(np.full((BLOCKS, 2), 1.5e-6))
    device = FakeDevice()
    measured(device, PAIRS[:1])
    told = [entry[0] for entry in device.log if entry[0] in ("poison", "compare", "sample")]
    assert told[:5] == ["poison", "compare", "sample", "poison", "compare"]
    assert told[-4:] == ["poison", "compare"] * 2
    assert told.count("compare") == 4


@pytest.mark.parametrize("variant", ["a", "b"])
@pytest.mark.parametrize(
    ("operation", "nth", "kind", "status"),
    [
        ("run", 0, "wrong", Status.WRONG_RESULT),
        ("run", 1, "wrong", Status.WRONG_RESULT),
        ("run", 0, "slow", Status.TIMEOUT),
        ("bind", 0, "refused", Status.OUT_OF_RESOURCES),
        ("sample", 3, "failed", Status.LAUNCH_FAILED),
        ("sample", 3, "zero", Status.LAUNCH_FAILED),
        ("sample", 3, "slow", Status.TIMEOUT),
    ],
)
def test_faults_of_a_pair(
    variant: str, operation: str, nth: int, kind: str, status: Status
) -> None:
    cell = PAIRS[1]["ab".index(variant)]
    # A launch that is too long among others is taken twice again.
    again = range(nth, nth + 3) if (operation, kind) == ("run", "slow") else [nth]
    faults = [Fault(cell_tag(cell), operation, n, kind) for n in again]
    _, ended = measured(FakeDevice(faults=faults))
    assert [e.status for e in ended] == [Status.OK, status, Status.OK, Status.OK]
    assert ended[1].message is not None
    assert ended[1].message.startswith(f"{variant.upper()}: ")
    assert ended[1].a_s == []


def test_of_what_does_not_compile_nothing_is_launched() -> None:
    device = FakeDevice(broken_variants=frozenset({"b"}))
    _, ended = measured(device)
    assert {e.message for e in ended} == {"B: variant b does not compile."}
    assert samples(device) == []


def test_a_device_that_slows_itself_down_costs_the_block_and_at_last_the_pairs() -> None:
    calm = [CALM] * 2
    _, [ended] = measured(FakeDevice(states=[*calm, HOT, *calm * 9]), PAIRS[:1])
    assert ended.status is Status.OK
    assert len(ended.a_s) == BLOCKS
    _, [ended] = measured(FakeDevice(states=[HOT]), PAIRS[:1])
    assert (ended.status, ended.message) == (
        Status.THROTTLED,
        "the device kept slowing itself down",
    )
    assert SLOWED_ROUNDS > 1


def test_cells_are_matched_by_all_that_both_have() -> None:
    a = make_cells(heights=(4, 8), variants=("a",), cache_states=("warm", "flushed"))
    b = make_cells(heights=(8,), variants=("a", "b"), threads=(1,))
    pairs = matched((a, b), [("a", "b"), ("x", "a")])
    assert len(pairs) == 2
    for one, other in pairs:
        assert (one.problem, one.params, one.cache_state) == (
            other.problem,
            other.params,
            other.cache_state,
        )
        assert (one.variant, other.variant) == ("a", "b")
    few = [replace(cell, params=cell.params[:1]) for cell in b[:1]]
    with pytest.raises(DeviceError, match="Cells of A differ in parameters alone"):
        matched((a, few), [("a", "a")])
    with pytest.raises(DeviceError, match="A and B have no cell in common"):
        matched((a, make_cells(heights=(2,), variants=("b",))), [("a", "b")])


KEYS = [a.key for a, _ in PAIRS]


def process(do: MeasureCells, bad: dict[int, BaseException]) -> FakeWorker:
    """A process that measures pairs and falls at a bad one, by its place."""
    told: list[Message] = []
    left = [place for place, key in enumerate(KEYS) if do.keys is None or key in do.keys]
    while left:
        some, left = left[: do.together], left[do.together :]
        told.append(CellsStarted(tuple(KEYS[i] for i in some), "B"))
        fallen = [bad[i] for i in some if i in bad]
        if fallen:
            return FakeWorker(told, fallen[0])
        for i in some:
            pair = pair_of(*PAIRS[i])
            pair.end(Status.OK)
            told.append(result_of(pair))
    return FakeWorker([*told, Finished()])


def supervised(
    first: FakeWorker, start: Callable[[MeasureCells], FakeWorker]
) -> list[tuple[Status | None, str | None]]:
    runs = [pair_of(a, b) for a, b in PAIRS]
    result = Supervisor(runs, start, FaultLimits(4.0), lambda done, share: None).measure(first)
    return [(run.status, run.message) for run in result.runs.values()]


@pytest.mark.parametrize(
    ("err", "status", "said"),
    [
        (WorkerExitedError("ended by SIGSEGV"), Status.LAUNCH_FAILED, "B: ended by SIGSEGV"),
        (WorkerTimeoutError(), Status.TIMEOUT, "B: a launch did not end within 4 s; its process"),
        (WorkerKilledError("ended by SIGKILL"), Status.LAUNCH_FAILED, "B: ended by SIGKILL"),
    ],
)
def test_who_takes_its_process_down(err: BaseException, status: Status, said: str) -> None:
    asked: list[MeasureCells] = []

    def start(do: MeasureCells) -> FakeWorker:
        asked.append(do)
        return process(do, {2: err})

    ended = supervised(process(MeasureCells(None, 32, {}), {2: err}), start)
    assert [status for status, _ in ended] == [Status.OK, Status.OK, status, Status.OK]
    assert str(ended[2][1]).startswith(said)
    # Blamed is what ran alone.
    last = [do for do in asked if do.keys is not None and KEYS[2] in do.keys][-1]
    assert last.together == 1 or last.keys == {KEYS[2]}


KERNEL = """
__kernel void copy(__global float *dst, __global const float *src, const ulong n)
{
    const ulong i = get_global_id(0);
    if (i < n) dst[(get_local_size(0) == 64 ? FAULT : 0) + i] = src[i] * FACTOR;
}
"""
WORKLOAD = """
import numpy as np
from gpushmoo import BufferRef, CopyWorkload, Launch, ceil_div


class Copies(CopyWorkload):
    name = "copies"
    title = pattern = "a test's"
    dtypes = ("float",)
    variants = ("one", "two", "wrong")
    sizes = (64,)
    axes = {"block_x": [32, 64]}

    def defines(self, dtype, variant):
        wrong = {"FACTOR": "2.0f"} if variant == "wrong" else {"FACTOR": "1.0f"}
        return {**wrong, "FAULT": "0"}

    def launch(self, cell):
        n, block = cell.problem.height * cell.problem.width, cell["block_x"]
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(n))
        return Launch("copy", (ceil_div(n, block), 1, 1), (block, 1, 1), args, n)


WORKLOAD = Copies()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, opencl_cache: Path) -> Iterator[Path]:
    """Folders of two versions of a kernel of one name.

    Blocks of 64 threads of the other one write a terabyte beyond their buffer.
    """
    folder = tmp_path_factory.mktemp("ab")
    for version, fault in (("mine", "0"), ("theirs", "(1ul<<38)")):
        kernel = folder / version / "copies"
        kernel.mkdir(parents=True)
        (kernel / "kernel.cl").write_text(KERNEL)
        text = WORKLOAD.replace('"FAULT": "0"', f'"FAULT": "{fault}"')
        (kernel / "workload.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(opencl_cache))
        yield folder


@pytest.fixture(scope="module")
def device(opencl_choice: DeviceChoice) -> dict[str, Any]:
    return {"backend": opencl_choice.backend, "opencl_runtime": opencl_choice.runtime}


@pytest.fixture(scope="module")
def against(place: Path, device: dict[str, Any]) -> ABTest:
    """Two folders of one name, of which the second's wider blocks fault."""
    mine = place / "mine" / "copies"
    theirs = place / "theirs" / "copies"
    return ab(Version(mine, "one"), theirs, rounds=4, progress=False, **device)


def test_two_folders_of_one_name_are_measured(against: ABTest) -> None:
    cells = against.cells.set_index("block_x")
    good, bad = cells.loc[32], cells.loc[64]
    assert good["status"] == "ok"
    assert good["a_samples_s"].shape == good["b_samples_s"].shape == (4, 2)
    assert good["change_low"] <= good["change_high"]
    assert good["verdict"] in ("slower", "faster", "same", "undecided")
    assert bad["status"] == "launch_failed"
    assert bad["message"].startswith("B: the measuring process was ended by SIG")
    assert pd.isna(bad["verdict"])
    assert not bad["beyond"]


def judged_as(ratios: Sequence[float], noise: float) -> ABTest:
    """A result of pairs whose B takes so much longer, measured with this noise."""
    rng = np.random.default_rng(3)
    pairs = matched(
        (make_cells(variants=("a",), threads=tuple(range(1, len(ratios) // 2 + 1))),) * 2,
        [("a", "a")],
    )
    runs = [pair_of(a, b) for a, b in pairs]
    for run, r in zip(runs, np.stack([np.ones(len(ratios)), ratios], axis=1), strict=True):
        run.a_s, run.b_s = r[:, None, None] * np.exp(noise * rng.standard_normal((2, 8, 2)))
        run.end(Status.OK)
    opened = PairsOpened(INFO, pairs, (0, 0), ({"a": "1"}, {"a": "1"}))
    side = Side(FOLDER.path, ("a",), ())
    return ABTest((side, side), {"float": MeasuredPairs(opened, runs)}, 8, 0.01, "")


def test_pairs_that_differ_in_their_parameters_alone_are_known_better_together() -> None:
    result = judged_as([1.05] * 40, 0.05)
    [group] = result.groups.to_dict("records")
    assert (group["pairs"], group["verdict"], group["beyond"]) == (40, "slower", True)
    assert result.slower
    widths = result.cells["change_high"] - result.cells["change_low"]
    assert group["change_high"] - group["change_low"] < 0.5 * widths.min()
    assert "All 2 of float" in repr(judged_as([1.05] * 2, 0.05))
    assert "All 40 of float, a, a, 4, 8, warm, batched: +" in repr(result)
    assert "10 more pairs, which changed less, are in `cells`." in repr(result)
    assert "Both were compiled into the same machine code" in repr(result)
    same = judged_as([1.0] * 4, 0.001)
    assert (same.slower, same.groups["verdict"].tolist()) == (False, ["same"])


def test_noise_that_parts_the_medians_from_the_change_is_said() -> None:
    for spread, is_noisy in ((0.3, True), (1e-4, False)):
        result = judged_as([1.05] * 6, spread)
        cells = result.cells
        apart = (cells["b_s"] / cells["a_s"] - 1.0 - cells["change"]).abs()
        assert (apart.max() > result.threshold) == is_noisy
        assert ("within each round" in repr(result)) == is_noisy
        # Times have a unit and no exponent, the threshold is no share.
        assert "e-0" not in repr(result)
        assert "e+0" not in repr(result)
        assert "'same' is within ±1 %" in repr(result)


def test_options_are_separated_as_in_a_shell(
    place: Path, device: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def measure(assignment: Assignment, *_: Any, **__: Any) -> None:
        assert assignment.against is not None
        seen.append(assignment.against.options)
        raise DeviceError("not measured")

    monkeypatch.setattr("gpushmoo.interactive.ab.measure_pairs", measure)
    mine = place / "mine" / "copies"
    sides = Version(mine, options="'-DX=a b' -O3"), Version(mine, options=["-DX=a b"])
    with pytest.raises(DeviceError, match="not measured"):
        ab(*sides, **device)
    assert seen == [(("-DX=a b", "-O3"), ("-DX=a b",))]


def test_variants_and_options_make_versions(place: Path, device: dict[str, Any]) -> None:
    asked: Any = {"axes": {"block_x": 32}, "rounds": 4, "progress": False, **device}
    mine = place / "mine" / "copies"
    result = ab(Version(mine, "one"), Version(mine, "wrong"), **asked)
    [message] = result.cells["message"]
    assert message.startswith("B: 4096 of 4096 words differ")
    assert result.cells[["variant_a", "variant_b"]].to_numpy().tolist() == [["one", "wrong"]]
    result = ab(Version(mine, "two"), Version(mine, options="-DFACTOR=2.0f -Werror"), **asked)
    assert result.cells["status"].tolist() == ["build_failed"]


def test_the_shell_prints_and_the_guard_sets_the_exit_status(
    place: Path,
    device: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["ab", str(place / "mine" / "copies"), "--axes", "block_x=32", "--rounds", "4"]
    words += [
        word for name, value in device.items() for word in (f"--{name.replace('_', '-')}", value)
    ]
    words += ["--variant-a", "one", "--options-b=-cl-mad-enable", "--threshold", "0.9"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert " one -cl-mad-enable\n" in said.out
    assert "copies float, A and B: 1 pairs measured in" in said.err
    assert main([*words, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["block_x"], row["status"]) == (32, "ok")
    monkeypatch.setattr(Checkouts, "slower", ["copies"])
    assert main([*words, "--fail-on-regression"]) == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rounds": 3}, "Argument 'rounds' is 3; it must be at least 4 and at most 10000."),
        ({"rounds": True}, "Argument 'rounds' is true; it must be a whole number"),
        ({"threshold": 1}, "Argument 'threshold' is 1; it must be more than 0 and less than 1."),
        ({"min_samples": 9}, "measure: 'min_samples' is not known; allowed: cell_timeout_s, compi"),
        ({"options_b": 3}, "options_b: it is 3; it must be a text or a list of texts."),
        ({"options_a": "-DX='a"}, "cannot be separated"),
        ({"variant_a": "three"}, "variant_a: 'three' is not known; allowed: one, two, wrong."),
        ({"axes": {"TILE": 1}}, "axes: 'TILE' is not known; allowed: block_x."),
        ({"dtypes": "int"}, "dtypes: 'int' is not known; allowed: float"),
        ({"b": "nothing"}, "kernel: 'nothing' is not a kernel's folder; there is no"),
        ({"b": ROOT / "kernels/global_load"}, "variant_a, variant_b: A has one, two, wrong, B has"),
        (
            {"b": ROOT / "kernels/global_copy", "variant_a": "one", "variant_b": "plain"},
            "axes: 'unroll' is a parameter of B alone; give it one value (such as axes={'unroll'",
        ),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(
    given: dict[str, Any], sentence: str, place: Path, device: dict[str, Any]
) -> None:
    asked = {"b": None, **device, **given}
    sides = versions_of(place / "mine" / "copies", asked.pop("b"), asked)
    with pytest.raises(ConfigError) as told:
        ab(*sides, **asked, progress=False)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_former_keywords_are_one_sentence_with_the_new_form() -> None:
    said = (
        r"^ab: variant_a, variant_b, options_a are former keywords, which the next version "
        r"refuses; pass gpushmoo.Version\(folder, variant=…, options=…\)\.$"
    )
    with pytest.warns(DeprecationWarning, match=said), pytest.raises(ConfigError, match="nothing"):
        ab("nothing", variant_a="one", variant_b="two", options_a="-O3")
    asked = {"variant_b": "two", "options_a": "-O3", "device": 1}
    assert versions_of("x", None, asked) == (Version("x", options="-O3"), Version("x", "two"))
    assert asked == {"device": 1}
