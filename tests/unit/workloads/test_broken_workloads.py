"""What a user's workload.py or source gets wrong ends in rows that say where."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest
from bench import BACKENDS, Bench, choice_of
from conftest import CUDA_WORDS, OPENCL_WORDS, USER_CUDA, USER_OPENCL
from gpushmoo.core.errors import DeviceError, WorkloadError
from gpushmoo.devices.build_file import compile_error
from gpushmoo.measuring.programs import first_printf
from gpushmoo.workloads.loader import load_kernel

# A copy that gives cells of 64 threads and problems something of their own to break.
WORKLOAD = """
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch
from gpushmoo.workloads.contract import NullRef, TextureRef, ceil_div

class Mine(CopyWorkload):
    name = "mine"
    title = "A user's kernel"
    pattern = "one float per thread"
    dtypes = ("float",)
    variants = ("good", "absent", "broken", "past", "before", "input", "forgets")
    axes = {"block_x": [32, 64]}

    def defines(self, dtype, variant):
        DEFINES
        return {"BROKEN": "1"} if variant == "broken" else {}

    def inputs(self, problem, dtype, rng):
        INPUTS
        return super().inputs(problem, dtype, rng)

    def reference(self, inputs):
        REFERENCE
        return inputs["src"]

    def bytes_read(self, problem, dtype):
        BYTES
        return problem.height * problem.width * 4

    def work(self, cell):
        height = cell.problem.height
        AMOUNT
        return 1.0

    def accesses(self, entry, dtype, variant):
        return super().accesses(entry, dtype, variant) if entry == "copy_" + variant else ()

    def launch(self, cell):
        n = cell.problem.height * cell.problem.width
        x = cell["block_x"]
        entry, grid, args = "copy_" + cell.variant, (ceil_div(n, x), 1, 1), [
            BufferRef("dst"), BufferRef("src"), np.uint64(n)]
        LAUNCH
        return Launch(entry, grid, (x, 1, 1), tuple(args), n)

WORKLOAD = Mine()
"""
# Kernels that copy as they should, and write elsewhere as well.
STRAYS = """
%(kernel)s void copy_past(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s
    if (i < n) dst[i] = dst[i + n] = src[i]; }
%(kernel)s void copy_before(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s
    if (i < n) dst[i] = src[i];
    if (i == 0) dst[-1] = 1.0f; }
%(kernel)s void copy_input(%(g)sfloat *dst, %(g)sfloat *src, %(u)s n) { %(i)s
    if (i < n) dst[i] = src[i];
    if (i == 5) src[i] += 1.0f; }
"""
PLACES = ("DEFINES", "INPUTS", "REFERENCE", "BYTES", "AMOUNT", "LAUNCH")
Lines = Mapping[str, Sequence[str]]
NOTHING: Lines = {}
Measured = Callable[..., tuple[pd.DataFrame, str]]


@pytest.fixture(params=BACKENDS)
def measure(request: pytest.FixtureRequest, tmp_path: Path) -> Measured:
    """Measures the kernel with lines at some of PLACES; its rows and what the terminal said."""

    def run(
        lines: Lines = NOTHING,
        variant: str = "good",
        threads: Sequence[int] = (32, 64),
        heights: Sequence[int] = (8, 16),
    ) -> tuple[pd.DataFrame, str]:
        bench = Bench(choice_of(request, tmp_path), written(tmp_path, lines), tmp_path)
        sizes = [[height, 64] for height in heights]
        rows = bench.measure([variant], threads=[*threads], sizes=sizes)
        assert len(rows) == len(threads) * len(heights)
        return rows, bench.terminal.getvalue()

    return run


def written(root: Path, lines: Lines = NOTHING) -> Path:
    """The kernel's folder, with these `lines` in its workload."""
    folder = root / "kernels/mine"
    folder.mkdir(parents=True, exist_ok=True)
    text = WORKLOAD
    for name in PLACES:
        text = text.replace(name, "\n        ".join(lines.get(name, ["pass"])))
    (folder / "workload.py").write_text(text)
    (folder / "kernel.cu").write_text(USER_CUDA + STRAYS % CUDA_WORDS)
    (folder / "kernel.cl").write_text(USER_OPENCL + STRAYS % OPENCL_WORDS)
    return folder


# What a line at one of PLACES makes of the cells that it spoils, by their status.
LAUNCHES = {
    "workload_failed": [
        ("cell['block_z']", r"^kernels/mine/workload.py:.*KeyError: .no axis 'block_z'; there a"),
        ("grid = (0, 1, 1)", r"^kernels/mine/workload.py:.*the grid is \(0, 1, 1\)"),
        ("x = 0", r"^kernels/mine/workload.py:.*the block is \(0, 1, 1\)"),
        ("grid = (1.5, 1, 1)", r"^kernels/mine/workload.py:.*the grid is \(1.5, 1, 1\)"),
        ("args[2] = n", r"^kernels/mine/workload.py:.*argument 2 is \d+; it must be"),
        ("return None", r"^kernels/mine/workload.py:.*launch returns None \(NoneType\), not a La"),
    ],
    "launch_failed": [
        ("args.pop()", "'copy_good' takes 3 arguments, the launch has 2"),
        ("args.append(np.uint32(1))", "takes 3 arguments, the launch has 4"),
        ("args[2] = np.uint32(n)", "argument 2 .* is of (8 bytes|another size)"),
        ("args[1] = BufferRef('source')", "the buffer 'source'; there are: dst, src"),
        ("args[1] = TextureRef('src')", "'src' is a buffer and no image"),
    ],
}
# Of a problem that is 8 high; where several are broken, each has a height of its own in place of 8.
INPUTS = [
    ("if problem.height == 8: 1 / 0", r"workload.py:\d+: ZeroDivisionError"),
    ("if problem.height == 8: return [1]", r"inputs returns \[1\] \(list\)"),
    (
        "if problem.height == 8: return {'src': None}",
        r"inputs returns None \(NoneType\), not a NumPy array for 'src'",
    ),
    ("if problem.height == 8: exit(0)", r"workload.py:\d+: SystemExit: 0 \(a workl"),
]
REFERENCES = [
    ("inputs['a']", r"workload.py:\d+: KeyError: 'a'"),
    ("return None", r"reference returns None"),
    ("return [1.0]", r"reference returns \[1.0\]"),
    ("return inputs['src'] * np.float32('nan')", r"reference returns NaN at \[0, 0\]"),
    (
        "return inputs['src'][:, :-1].copy()",
        r"^mine: reference has shape \(8, 63\), the output \(8, 64\)$",
    ),
    (
        "return inputs['src'].astype(float)",
        "^mine: reference has dtype float64, the output float32$",
    ),
]
BYTES = [
    ("if problem.height == 8: return 1.5", r"bytes_read returns 1.5 \(float\)"),
    ("if problem.height == 8: 1 / 0", r"workload.py:\d+: ZeroDivisionError"),
]
AMOUNTS = [
    ("if height == 8: return 'many'", r"work returns 'many' \(str\), neither a number above 0 nor"),
    ("if height == 8: return float('nan')", r"work returns nan \(float\), neither a number"),
]
# What ends the process.
ENDS = [
    (
        "INPUTS",
        "import os; problem.height == 8 and os._exit(0)",
        r"^the measuring process ended with status 0 while workload.py made the data of 8x64$",
    ),
    (
        "REFERENCE",
        "if len(inputs['src']) == 8: import os; os.abort()",
        r"^the measuring process was ended by SIGABRT while workload.py made the data of 8x64$",
    ),
]


def test_each_faulty_launch_costs_its_own_cells(measure: Measured) -> None:
    faults = [(line, s, said) for s, cases in LAUNCHES.items() for line, said in cases]
    lines = [f"if x == {64 + i}: {line}" for i, (line, _, _) in enumerate(faults)]
    threads = range(64, 64 + len(faults))
    rows, _ = measure({"LAUNCH": lines}, threads=[32, *threads])
    assert set(rows.loc[rows["block_x"] == 32, "status"]) == {"ok"}
    for n, (line, status, said) in zip(threads, faults, strict=True):
        bad = rows[rows["block_x"] == n]
        assert set(bad["status"]) == {status}, line
        assert all(re.search(said, message) for message in bad["message"]), line


def test_each_faulty_problem_costs_its_own_cells(measure: Measured) -> None:
    faults = [
        *(("INPUTS", line, said) for line, said in INPUTS),
        *(("REFERENCE", f"if len(inputs['src']) == 8: {line}", said) for line, said in REFERENCES),
        *(("BYTES", line, said) for line, said in BYTES),
        *(("AMOUNT", line, said) for line, said in AMOUNTS),
    ]
    heights = range(17, 17 + len(faults))
    lines: dict[str, list[str]] = {}
    for height, (place, line, _) in zip(heights, faults, strict=True):
        lines.setdefault(place, []).append(line.replace("== 8", f"== {height}"))
    rows, _ = measure(lines, heights=[8, *heights])
    good = rows[rows["height"] == 8]
    assert set(good["status"]) == {"ok"}
    assert set(good["work"]) == {1.0}
    assert set(good["work_unit"]) == {"FLOP"}
    for height, (_, line, said) in zip(heights, faults, strict=True):
        bad = rows[rows["height"] == height]
        assert set(bad["status"]) == {"workload_failed"}, line
        words = said.replace(r"\(8, ", rf"\({height}, ")
        assert all(re.search(words, message) for message in bad["message"]), line


@pytest.mark.parametrize(("place", "line", "said"), ENDS)
def test_an_end_costs_its_problem(measure: Measured, place: str, line: str, said: str) -> None:
    rows, _ = measure({place: [line]})
    bad = rows["height"] == 8
    assert set(rows.loc[bad, "status"]) == {"workload_failed"}
    assert set(rows.loc[~bad, "status"]) == {"ok"}
    assert all(re.search(said, message) for message in rows.loc[bad, "message"])


def test_absent_entries_and_errors_before_the_build_cost_the_variant(measure: Measured) -> None:
    assert set(measure()[0]["status"]) == {"ok"}
    rows, _ = measure(variant="absent")
    assert set(rows["status"]) == {"build_failed"}
    assert rows["message"].str.contains("has no kernel 'copy_absent'").all()
    rows, terminal = measure({"DEFINES": ["raise LookupError"]})
    assert set(rows["status"]) == {"workload_failed"}
    assert rows["message"].str.contains(r"kernels/mine/workload.py:\d+: LookupError$").all()
    assert re.search(r"mine, float, variant good: kernels/mine/workload.py:\d+: Look", terminal)


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("past", "^wrote {n} words past the end of 'dst'$"),
        ("before", "^wrote 1 word before the beginning of 'dst'$"),
        ("input", "^changed its input 'src'$"),
        ("forgets", r"^1 of {n} words differ, the first at \[1, 13\]: expected 0\.\d+, found nan"),
    ],
)
def test_stray_writes_are_a_wrong_result(measure: Measured, variant: str, said: str) -> None:
    rows, _ = measure(variant=variant)
    assert set(rows["status"]) == {"wrong_result"}
    for height, message in zip(rows["height"], rows["message"], strict=True):
        assert re.search(said.format(n=64 * height), message)


def test_what_does_not_compile_is_said_with_its_first_error(measure: Measured) -> None:
    rows, terminal = measure(variant="broken")
    assert set(rows["status"]) == {"build_failed"}
    said = r"kernel.c[lu] does not compile: kernel.c[lu]:\d+: error: .*\bthis\b"
    assert all(re.match(said, message) for message in rows["message"])
    [line] = [x for x in terminal.splitlines() if x.startswith("gpushmoo: ")]
    assert re.search(rf"mine, float, variant broken: {said}.*\(whole message: the.log\)$", line)


@pytest.mark.parametrize(
    ("log", "first"),
    [
        ("Build on x:\n\n5:12:3: error: no such name\n", "kernel.cl:12: error: no such name"),
        ("/tmp/t.cl:7:3: fatal error: 'x.h' file not found", "kernel.cl:7: error: 'x.h' file"),
        ('x/kernel.cu(3): error: identifier "a" is', 'kernel.cl:3: error: identifier "a" is'),
        ("a/kernel.cu(3): error #20: bad", "kernel.cl:3: error: bad"),
        ("warning: odd\nerror: unknown target CPU\n", "compile: error: unknown target CPU"),
        ("Build on x:\n\nerror: /tmp/t.cl:9:5: use of 'a'", "kernel.cl:9: error: use of 'a'"),
        ("something else", "compile: something else"),
        ("", "does not compile: error"),
    ],
)
def test_the_first_error_of_any_compiler_is_found(log: str, first: str) -> None:
    assert first in str(compile_error("kernel.cl", log))


def test_an_end_before_the_device_is_asked_for_is_said_in_one_sentence(measure: Measured) -> None:
    with pytest.raises(DeviceError, match=r"^The device was not opened: .* ended with status 3"):
        measure({"DEFINES": ["import os; os._exit(3)"]})


def test_prints_and_errors_beside_the_users_files_are_said(tmp_path: Path) -> None:
    kernel = load_kernel(written(tmp_path))
    assert first_printf(kernel, ".cl") is None
    with (kernel.path / "kernel.cl").open("a") as source:
        source.write('// printf("no");\n/* printf("no");\n */ void fprintf(void);\n')
    assert first_printf(kernel, ".cl") is None
    (kernel.path / "more.h").write_text("#define SAY(x) \\\n    printf ((x))\n")
    assert first_printf(kernel, ".cl") == "more.h:2"
    assert first_printf(kernel, ".metal") == "more.h:2"
    workload = load_kernel(written(tmp_path)).workload
    with pytest.raises(WorkloadError, match=r"^kernels/mine/workload.py: in bytes_written: "):
        workload.bytes_written()  # type: ignore[call-arg]
