"""What tests/gpu/sanitize.py reads out of a sanitizer's logs, and what it has it run; no GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, USER_CUDA, USER_OPENCL
from gpushmoo.core.errors import DeviceLostError
from gpushmoo.core.space import Problem
from gpushmoo.devices.base import Device
from gpushmoo.workloads.loader import load_kernel
from test_compare_kernel_tuner import load

logs = load("sanitizer_log")
script = load("sanitize")
program = load("sanitized_cells")

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
MEMCHECK = """========= COMPUTE-SANITIZER
a line of the program itself
========= Invalid __global__ write of size 4 bytes
=========     at copy_illegal+0x90
=========     by thread (1,0,0) in block (0,0,0)
=========     Access to 0x10000000004 is out of bounds
=========     and is 140,000 bytes after the nearest allocation at 0x7f00 of size 16,384 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x33] in libcuda.so.1
=========
========= Invalid __global__ write of size 4 bytes
=========     at copy_illegal+0x90
=========     by thread (2,0,0) in block (0,0,0)
=========
========= Invalid __global__ read of size 16 bytes
=========     at dot_4+0x1c0 in kernel.cu:41
=========     by thread (0,0,0) in block (3,0,0)
=========     Address 0x7f0000000008 is misaligned
=========
========= Target application returned an error
========= ERROR SUMMARY: 3 errors
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x120 in compare
=========     by thread (12,0,0) in block (0,0,0)
=========     Address 0x7f0000000030
=========
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at dot_piece+0x350
=========     and Read access at dot_piece+0x420 [124 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
NO_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


def told(text: str) -> list[tuple[str, str, int]]:
    return [(f.what, f.kernel, f.count) for f in logs.read_logs([text]).findings]


def test_accesses_are_counted_by_kind_and_kernel() -> None:
    log = logs.read_logs([MEMCHECK, CLEAN])
    assert [(f.what, f.kernel, f.count) for f in log.findings] == [
        ("Invalid __global__ write of size 4 bytes", "copy_illegal", 2),
        ("Invalid __global__ read of size 16 bytes", "dot_4", 1),
    ]
    assert (log.errors, log.summaries) == (3, 2)
    assert log.notes == ["Target application returned an error"]
    assert log.findings[0].example.splitlines()[1] == "at copy_illegal+0x90"
    assert "Host Frame" not in log.findings[0].example
    assert "misaligned" in log.findings[1].example


def test_uninitialised_reads_and_races_name_their_kernel() -> None:
    assert told(INITCHECK) == [
        ("Uninitialized __global__ memory read of size 4 bytes", "compare", 1)
    ]
    assert told(RACECHECK) == [("race of Write and Read", "dot_piece", 1)]
    assert logs.read_logs([RACECHECK]).errors == 1


def test_what_no_rule_knows_is_a_finding() -> None:
    """A report of a kind that nobody has seen yet must not pass for a clean run."""
    assert told("========= Something new\n=========     at copy_exact+0x10\n") == [
        ("Something new", "copy_exact", 1)
    ]


@pytest.mark.parametrize("text", [CLEAN, NO_RACE])
def test_a_clean_log_has_its_summary_and_no_finding(text: str) -> None:
    log = logs.read_logs([text])
    assert (log.findings, log.errors, log.summaries, log.notes) == ([], 0, 1, [])


def test_kernels_that_are_wrong_on_purpose_are_told_apart() -> None:
    parts = script.split(logs.read_logs([MEMCHECK]))
    assert [f["kernel"] for f in parts["expected"]] == ["copy_illegal"]
    assert [f["kernel"] for f in parts["findings"]] == ["dot_4"]


def test_every_test_on_a_device_is_in_a_file_that_the_suite_names(
    request: pytest.FixtureRequest,
) -> None:
    """Of all tests that were collected with this one."""
    files = set(script.gpu_files())
    assert "tests/unit/test_devices.py" in files
    assert "tests/unit/test_config.py" not in files
    for item in request.session.items:
        if item.get_closest_marker("gpu") is not None:
            assert str(item.path.relative_to(ROOT)) in files, item.nodeid


@pytest.mark.parametrize("name", script.LEFT_OUT)
def test_what_the_suite_leaves_out_exists(name: str) -> None:
    file, _, function = name.partition("::")
    assert f"tests/unit/{file}" in script.gpu_files()
    assert f"def {function}" in (ROOT / "tests/unit" / file).read_text()


def test_failed_tests_are_named_and_skipped_ones_not_counted() -> None:
    junit = """<testsuites><testsuite>
      <testcase classname="test_a" name="good"/>
      <testcase classname="test_a" name="not here"><skipped/></testcase>
      <testcase classname="test_b" name="bad"><failure>text</failure></testcase>
    </testsuite></testsuites>"""
    assert script.test_failures(junit) == (["test_b::bad"], 2)


# A tool that writes a log and what the program would have written, for runs of the script itself.
FAKE = """#!{python}
import json, os, sys
words = sys.argv[1:]
if words == ["--help"]:
    sys.exit(print("--padding N  --report-api-errors"))
log = words[words.index("--log-file") + 1].replace("%p", str(os.getpid()))
open(log, "w").write({log!r})
first = int(words[words.index("--first") + 1])
outcome = {outcomes!r}[min(first, 1)]
open(words[words.index("--out") + 1], "w").write(json.dumps(outcome))
open({record!r}, "a").write(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], words]) + "\\n")
"""
RIGHT = {"right": 5, "builds": 1, "left": 0, "seconds": 1.0, "lost": None, "wrong": []}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimpleNamespace]:
    """Runs the script with a tool that leaves `log`, and `outcomes` of the first call and later."""

    def once(log: str, *outcomes: dict[str, Any], tools: tuple[str, ...]) -> SimpleNamespace:
        record, fake = tmp_path / "record", tmp_path / "bin/compute-sanitizer"
        fake.parent.mkdir()
        text = FAKE.format(python=sys.executable, log=log, outcomes=outcomes, record=str(record))
        fake.write_text(text)
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", str(fake.parent))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        monkeypatch.setattr(sys, "argv", ["", "--out", str(tmp_path / "out"), "--tools", *tools])
        with pytest.raises(SystemExit) as ended:
            script.main()
        result = json.loads((tmp_path / "out/sanitize.json").read_text())
        calls = [json.loads(line) for line in record.read_text().splitlines()]
        return SimpleNamespace(status=ended.value.code, tools=result["tools"], calls=calls)

    return once


def test_tools_run_on_a_gpu_each_and_a_clean_run_succeeds(run: Callable[..., Any]) -> None:
    done = run(CLEAN, RIGHT, RIGHT, tools=("memcheck", "racecheck", "initcheck"))
    assert done.status == 0
    gpus = {words[words.index("--tool") + 1]: gpu for gpu, words in done.calls}
    assert gpus == {"memcheck": "4", "racecheck": "7", "initcheck": "4"}


def test_options_that_the_tool_does_not_know_are_left_out(run: Callable[..., Any]) -> None:
    [(_, words)] = run(CLEAN, RIGHT, RIGHT, tools=("memcheck",)).calls
    assert "--padding=512" in words
    assert not any("track-stream" in word for word in words)


@pytest.mark.parametrize(
    ("log", "outcome", "kernels"),
    [
        pytest.param(INITCHECK, RIGHT, ["compare"], id="a finding"),
        pytest.param("========= COMPUTE-SANITIZER\n", RIGHT, [], id="no summary"),
        pytest.param(CLEAN, RIGHT | {"wrong": ["a cell"]}, [], id="a wrong cell"),
    ],
)
def test_what_fails(
    run: Callable[..., Any], log: str, outcome: dict[str, Any], kernels: list[str]
) -> None:
    done = run(log, outcome, RIGHT, tools=("initcheck",))
    assert done.status == 1
    assert [f["kernel"] for f in done.tools["initcheck"]["findings"]] == kernels


def test_behind_a_fault_the_other_builds_are_run(run: Callable[..., Any]) -> None:
    lost = RIGHT | {"lost": "copy: an illegal address", "left": 3}
    done = run(CLEAN, lost, RIGHT, tools=("memcheck",))
    assert [words[words.index("--first") + 1] for _, words in done.calls] == ["0", "1"]
    assert [c["lost"] for c in done.tools["memcheck"]["cells"]] == [lost["lost"], None]
    assert done.status == 1


# What is run


def test_every_build_of_every_kernel_that_runs_on_a_device_is_there() -> None:
    found = {(b.folder.name, b.variant) for b in program.builds_of(None)}
    assert {name for name, _ in found} == {
        p.parent.name for p in ROOT.glob("kernels/*/workload.py") if p.parent.name != "dot_host"
    }
    assert ("tex2d_sum", "morton-linear-mirror-written") in found


def test_cells_hold_both_ends_of_every_axis(opencl_device: Device) -> None:
    [build] = {
        b for b in program.builds_of(["copy2d_coalesced"]) if b.label.endswith("float tile32")
    }
    cells = list(program.cells_of(opencl_device, build, Problem(33, 31)))
    limit = opencl_device.info.max_threads_per_block
    wanted = {(x, y) for x in (4, 36, 64) for y in (4, 36, 64) if x * y <= limit}
    assert {(c["block_x"], c["block_y"]) for c in cells} == wanted


def test_cells_are_verified_and_faults_of_the_kernel_named(
    opencl_device: Device, make_kernel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = ("good", "forgets", "broken")
    folder = load_kernel(make_kernel("mine", USER_CUDA, USER_OPENCL, variants))
    monkeypatch.setattr(program, "SQUARES", (Problem(33, 31),))
    builds = [program.Build(folder, "float", variant) for variant in variants]
    outcome = program.run_builds(opencl_device, builds, 60.0)
    right = len(list(program.cells_of(opencl_device, builds[0], Problem(33, 31))))
    assert right >= 2
    assert (outcome.right, outcome.builds, outcome.left) == (right, 3, 0)
    named = [text.split(" ")[2].rstrip(":") for text in outcome.wrong]
    assert named == [*["forgets"] * right, "broken"]


def test_a_lost_device_ends_the_run_and_tells_what_is_left(
    opencl_device: Device, make_kernel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> None:
        raise DeviceLostError("an illegal address")

    folder = load_kernel(make_kernel("mine", USER_CUDA, USER_OPENCL))
    monkeypatch.setattr(program, "open_space", lambda *_, **__: lost())
    outcome = program.run_builds(opencl_device, [program.Build(folder, "float", "good")] * 3, 60.0)
    assert outcome.lost == "mine float good: an illegal address"
    assert (outcome.builds, outcome.left) == (1, 2)


def test_no_build_is_begun_when_the_time_is_up(
    opencl_device: Device, make_kernel: Callable[..., Path]
) -> None:
    folder = load_kernel(make_kernel("mine", USER_CUDA, USER_OPENCL))
    outcome = program.run_builds(opencl_device, [program.Build(folder, "float", "good")], -1.0)
    assert (outcome.builds, outcome.left) == (0, 1)
