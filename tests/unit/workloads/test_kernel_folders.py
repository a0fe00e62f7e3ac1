"""Kernel folders: mistakes get the messages of docs/troubleshooting.md, most before any job."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from fakes import Tiny
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import (
    BuildError,
    ConfigError,
    KernelFolderError,
    TypedError,
    WorkloadError,
)
from gpushmoo.core.space import Cell, Problem, ShardSpace, Version
from gpushmoo.devices.base import Device
from gpushmoo.devices.build_file import kernel_source
from gpushmoo.measuring.cell_memory import open_space
from gpushmoo.planning.sweeps import read_sweep, refuse_impossible
from gpushmoo.workloads.contract import uniform
from gpushmoo.workloads.loader import (
    find_kernels,
    have_same_rule,
    load_kernel,
    misfit,
    refusal,
    versions_of,
)

PAGE = (ROOT / "docs/kernel-folder.md").read_text()
# Its own kernel, of which every mistake changes one place.
SOURCES = {
    "kernel.cl": re.findall(r"```c\n(.*?)```", PAGE, re.S)[0],
    "workload.py": re.findall(r"```python\n(import numpy.*?)```", PAGE, re.S)[0],
}
# What is said of each mistake; ``…`` leaves something out.
MISTAKES = (ROOT / "docs/troubleshooting.md").read_text().partition("\n## Mistakes")[2]
ROWS = re.findall(r"^\* Message: `(.+?)`\n\* Cause: (.+)$", MISTAKES, re.M)
SAID = {written: ".+".join(map(re.escape, said.split("…"))) for said, written in ROWS}
# Where each mistake is made: in which file, what is there, what was written instead.
WORKLOAD = {
    "no line `WORKLOAD = ReverseRows()`": ("WORKLOAD = ReverseRows()", ""),
    "`WORKLOAD = ReverseRows`": ("WORKLOAD = ReverseRows()", "WORKLOAD = ReverseRows"),
    '`variants = ("plain")`': ('("plain",)', '("plain")'),
    "`sizes = (512)`": ("(512,)", "(512)"),
    '`compile_axes = ("TILE",)`': ("dtypes =", 'compile_axes = ("TILE",)\n    dtypes ='),
    '`"block_x": range(8, 65, 8)`': ("[8, 16, 32, 64]", "range(8, 65, 8)"),
    '`valid` returns `cell["block_x"] < 64`': (
        "    def defines",
        '    def valid(self, cell):\n        return cell["block_x"] < 64\n\n    def defines',
    ),
    '`cell["blok_x"]`': ('cell["block_x"]', 'cell["blok_x"]'),
    "`width` in place of `np.uint64(width)`": ("np.uint64(width)", "width"),
    "`np.uint32(width)` where the kernel takes `ulong`": ("np.uint64(width)", "np.uint32(width)"),
    "an argument is left out": (", np.uint64(height))", ")"),
    "arguments in another order": (
        'BufferRef("dst"), BufferRef("src")',
        'BufferRef("src"), BufferRef("dst")',
    ),
    '`BufferRef("source")`': ('BufferRef("src")', 'BufferRef("source")'),
    '`Launch("reverse_row", …)`': ('Launch("reverse_rows"', 'Launch("reverse_row"'),
    "the reference computes in double": ("[:, ::-1])", "[:, ::-1], dtype=float)"),
}
KERNEL = {
    "`float` where `element_t` belongs": ("element_t", "float"),
    "no test of `y < height`": (" && y < height", ""),
}
VIEW = "views = (type('V', (HeatMap,), {%s})('block_x', 'block_y'),)"
DECLARED = [
    ('compile_axes = ("TILE")', "compile_axes are 'TILE', a single value; write ('TILE',), with"),
    ("compile_axes = 3", "compile_axes are 3, a single value"),
    ("zero_axes = object()", "not several values; write them as (…, …)"),
    ('dtypes = ("float32",)', "dtypes name 'float32'; allowed: float, double"),
    ("dtypes = (np.float32,)", "dtypes name <class 'numpy.float32'>; allowed: float"),
    ("variants = ()", "variants are empty; at least one is needed"),
    ('variants = ("a", "a")', "variants name 'a' twice"),
    ('default_variants = ("fast",)', "default_variants name 'fast'; allowed: plain"),
    ('cache_states = ("cold",)', "cache_states name 'cold'; allowed: warm, flushed"),
    ('images = "src"', "images are 'src', a single value"),
    ('persistent_axis = "grid"', "persistent_axis is 'grid'; allowed: block_x, block_y"),
    ('peak = "read"', "peak is 'read'; allowed: load, store"),
    ("sizes = (512.0,)", "sizes hold 512.0; a size is a whole number, or (height, width)"),
    (
        'axes = ["block_x"]',
        "axes are ['block_x']; list the values of each, as in {'block_x': [8, 16]}",
    ),
    ('axes = {"block_x": []}', "axis 'block_x' has no values"),
    ('axes = {"block_x": [0, 8]}', "axis 'block_x' holds 0; a value must be at least 1"),
    ('axes = {"block_x": [8.0]}', "axis 'block_x' holds 8.0; write whole numbers as [8, 16]"),
    ('axes = {"block_x": "8"}', "axis 'block_x' holds '8'; write whole numbers"),
    ('axes = {"block_x": {"from": 8}}', "axis 'block_x' holds {'from': 8}; write whole numbers"),
    ('axes = {"block_x": {"to_resident": "2", "points": 3}}', "write whole numbers as [8, 16]"),
    ('axes = {"block_x": {"from": 8, "to": 4}}', "'to' at least 'from'"),
    ('axes = {"block_x": {"from": 8, "to": 9, "step": 0}}', "'step' at least 1"),
    ('axes = {"block_x": {"to_resident": 0, "points": 3}}', "write whole numbers as [8, 16]"),
    ('axes = {"block_x": {"to_resident": 17, "points": 3}}', "write whole numbers as [8, 16]"),
    ('axes = {"block_x": {"to_resident": 2, "points": 0}}', "write whole numbers as [8, 16]"),
    ('axes = {"block_x": {"to_resident": 2, "points": 3, "by": 1}}', "write whole numbers as"),
    ('axes = {"block_x": [True]}', "axis 'block_x' holds True; write whole numbers"),
    ('zero_axes = ("block_x",); axes = {"block_x": [-1]}', "a value must be at least 0"),
    ("sizes = ((8, 16, 4),)", "sizes hold (8, 16, 4); a size is a whole number"),
    ("sizes = (True,)", "sizes hold True; a size is a whole number"),
    ("work_unit = 3", "work_unit is 3, not a text such as 'FLOP'"),
    ('work_unit = "a\\nb"', "not a text such as 'FLOP'"),
    (
        'views = (HeatMap("blok_x", "block_y"),)',
        "shows 'blok_x', but the kernel has only the axes block",
    ),
    ('axes = {"height": [8]}', "axis 'height' has the name of a column"),
    ('views = HeatMap("block_x", "block_y")', "views are HeatMap(x='block_x', y='block_y'"),
    ('views = (HeatMap("block_x", "block_y"),) * 2', "views are both called 'heatmap-block_x-bl"),
    ("views = (HeatMap,)", "is not an instance of View"),
    (VIEW % "'each': ['dtyp']", "allowed: cache_state, dtype"),
    (VIEW % "'label': lambda _: 1 / 0", "workload.py:14: ZeroDivisionError"),
    (VIEW % "'label': lambda _: '../x'", "view 'heatmap-../x' must be called by letters"),
]
# Of the folder's text: what is there, what was written instead.
BROKEN = [
    ('title = "Rows reversed"', "", "its WORKLOAD does not define 'title'"),
    ("WORKLOAD = ReverseRows()", "WORKLOAD = 3", "WORKLOAD as 3; end it by the line: WORKLOAD = R"),
    ("import numpy as np", "import no_such_module", "reverse_rows/workload.py:1: ModuleNotFound"),
    ("import numpy as np", "import numpy as", "reverse_rows/workload.py:1: SyntaxError"),
    ("    def launch(self", "    def start(self", ": TypeError"),
    ("Rows reversed", "\udcf6", "reverse_rows/workload.py:7: SyntaxError: (unicode error)"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's kernel, as it should be."""
    made = tmp_path / "kernels/reverse_rows"
    made.mkdir(parents=True)
    for name, text in SOURCES.items():
        (made / name).write_text(text)
    return made


def write_instead(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new), errors="surrogateescape")


def refused(folder: Path) -> str:
    with pytest.raises(KernelFolderError) as caught:
        load_kernel(folder)
    assert folder.name in str(caught.value)
    return str(caught.value)


def told(folder: Path, device: Device, dtype: str = "float") -> str | None:
    """What is said of a kernel from its loading to the verdict on one cell; None of a right one."""
    try:
        kernel = load_kernel(folder)
        refuse_impossible({folder.name: read_sweep("kernels.reverse_rows.", {}, kernel)})
        params = (("block_x", 32), ("block_y", 4))
        # Of a height that blocks do not divide.
        cell = Cell(folder.name, dtype, "plain", Problem(62, 64), params)
        macros = kernel.workload.macros(dtype, Version("plain"))
        space = open_space(device, kernel.workload, cell.problem, dtype, "plain", 1)
        bound = space.bind(device.build(folder, DTYPES[dtype], macros), cell)
        space.poison()
        bound.run()
        return space.verdict(cell, bound).message
    except (KernelFolderError, ConfigError, TypedError) as err:
        return str(err)


def test_every_mistake_of_the_page_is_made_here() -> None:
    assert set(SAID) == {*WORKLOAD, *KERNEL}
    assert len(SAID) >= 12


@pytest.mark.parametrize("written", [*WORKLOAD, *KERNEL])
def test_a_mistake_in_a_kernel(written: str, folder: Path, opencl_device: Device) -> None:
    dtype = "double" if "element_t" in written else "float"
    assert told(folder, opencl_device, dtype) is None
    file = "workload.py" if written in WORKLOAD else "kernel.cl"
    write_instead(folder / file, *(WORKLOAD | KERNEL)[written])
    sentence = told(folder, opencl_device, dtype)
    assert re.fullmatch(SAID[written], str(sentence)), sentence


@pytest.mark.parametrize(("line", "said"), DECLARED)
def test_what_cannot_be_meant_is_refused(line: str, said: str, folder: Path) -> None:
    # What a class says twice counts as it was said last.
    write_instead(folder / "workload.py", "\n    def defines", f"    {line}\n\n    def defines")
    sentence = refused(folder)
    assert sentence.startswith("Kernel 'reverse_rows': its ")
    assert said in sentence


@pytest.mark.parametrize(
    "line",
    [
        'axes = {"block_x": [1], "block_y": 4}',
        'axes = {"block_x": {"from": 8, "to": 8}, "block_y": [{"from": 1, "to": 3, "step": 1}, 9]}',
        'axes = {"block_x": {"to_resident": 16, "points": 1}, "block_y": [4]}',
        'zero_axes = ("block_x",); axes = {"block_x": [0, 8], "block_y": [4]}',
        "sizes = (1, (8, 16), [4, 8])",
        "default_variants = (); controls = (); images = ()",
        'persistent_axis = "block_x"; peak = "work"; work_unit = "updates"',
    ],
)
def test_what_is_just_allowed_is_taken(line: str, folder: Path) -> None:
    write_instead(folder / "workload.py", "\n    def defines", f"    {line}\n\n    def defines")
    assert load_kernel(folder).name == "reverse_rows"


@pytest.mark.parametrize(("old", "new", "said"), BROKEN)
def test_a_broken_workload_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    write_instead(folder / "workload.py", old, new)
    assert said in refused(folder)


def test_folders_that_are_no_kernel_or_one_twice(folder: Path, tmp_path: Path) -> None:
    (folder.parent / "notes").mkdir()
    assert find_kernels([folder.parent]) == {"reverse_rows": folder}
    assert load_kernel(folder).workload.name == "reverse_rows"
    copied = shutil.copytree(folder, tmp_path / "copied")
    assert load_kernel(copied).workload.name == "copied"
    assert set(find_kernels([ROOT / "kernels", folder.parent])) >= {
        "reverse_rows",
        "copy2d_coalesced",
    }
    link = tmp_path / "link"
    link.symlink_to(folder.parent)
    assert set(find_kernels([folder.parent, link])) == {"reverse_rows"}
    other = Path(shutil.copytree(folder.parent, tmp_path / "other"))
    with pytest.raises(KernelFolderError, match="'reverse_rows' exists twice"):
        find_kernels([folder.parent, other])
    with pytest.raises(KernelFolderError) as caught:
        find_kernels([folder])
    assert str(caught.value) == (
        f"kernel_folders: '{folder}' is a kernel's own folder; name the one that it is in, "
        f"'{folder.parent}'."
    )
    write_instead(folder / "workload.py", '"reverse_rows"', '"my-copy"')
    assert "letters, digits and '_'" in refused(folder.rename(folder.with_name("my-copy")))


@pytest.mark.parametrize(
    ("file", "text", "counts"),
    [
        ("kernel.cl", '\n/* A\n remark, "*/ // another\n', set()),
        ("kernel.cl", '\n#define X "//"\n', {".cl"}),
        ("kernel.cu", "\nint x;\n", {".cu"}),
        ("workload.py", "\nCHANGED = 1\n", {".cl", ".cu"}),
        ("workload.py", "\n# A remark.\n", set()),
        ("common.hpp", "#define X\n", {".cl", ".cu"}),
        ("parts/table.inc", "1, 2\n", {".cl", ".cu"}),
        ("parts/helper.py", "X = 1\n", {".cl", ".cu"}),
        ("notes.md", "x", set()),
        ("__pycache__/workload.cpython-311.pyc", "x", set()),
        (".kernel.cl.swp", "x", set()),
    ],
)
def test_a_digest_is_of_its_files(folder: Path, file: str, text: str, counts: set[str]) -> None:
    kernel, path = load_kernel(folder), folder / file
    before = {suffix: kernel.digest(suffix) for suffix in (".cl", ".cu", None)}
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as f:
        f.write(text)
    changed = {suffix for suffix, digest in before.items() if kernel.digest(suffix) != digest}
    assert changed == counts | ({None} if counts else set())


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("kernel.cl", "", True),
        ("arrays/src.npy", "1", True),
        ("workload.py", SOURCES["workload.py"] + "# a comment\n", True),
        ("workload.py", SOURCES["workload.py"] + "LIMIT = 32\n", False),
        ("helper.py", "LIMIT = 32\n", False),
        ("workload.pickle", "2", False),
    ],
)
def test_a_rule_consists_of_python_and_pickles(
    folder: Path, tmp_path: Path, file: str, text: str, same: bool
) -> None:
    other = tmp_path / "other" / folder.name
    shutil.copytree(folder, other)
    (other / file).parent.mkdir(exist_ok=True)
    (other / file).write_text(text)
    assert have_same_rule(folder, other) == same


def test_a_source_of_another_backend_counts_where_it_is_included(folder: Path) -> None:
    (folder / "common.h").write_text('  #include "kernel.cu"\n')
    kernel = load_kernel(folder)
    before = kernel.digest(".cl")
    (folder / "kernel.cu").write_text("// Another.\n")
    assert kernel.digest(".cl") != before


def test_a_source_that_is_missing_or_no_text_is_a_failed_build(folder: Path) -> None:
    assert kernel_source(folder, ".cl") == SOURCES["kernel.cl"]
    with pytest.raises(
        BuildError, match=r"^Kernel 'reverse_rows' has no kernel\.cu, .*s: kernel\.cl$"
    ):
        kernel_source(folder, ".cu")
    (folder / "kernel.cu").write_bytes(b"// Gr\xc3\xb6\xc3\x9fe\n// Gr\xf6\xdfe\n")
    with pytest.raises(BuildError, match=r"^kernel\.cu, line 2: not UTF-8; save it as that\.$"):
        kernel_source(folder, ".cu")


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_a_copy_has_input_of_every_type(dtype: str) -> None:
    kind = DTYPES[dtype]
    src = Tiny().inputs(Problem(40, 50), dtype, np.random.default_rng(1))["src"]
    assert src.dtype == kind.scalar
    assert src.shape == kind.shape(40, 50)
    # Nothing that a memory path could compress.
    assert len(np.unique(src)) > 30


def test_random_inputs_are_drawn_in_parts_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpushmoo.workloads.contract._DRAWN", 5)
    drawn = [uniform(np.random.default_rng(1), (3, 7), np.dtype("float32")) for _ in range(2)]
    assert np.array_equal(*drawn)
    assert len(np.unique(drawn[0])) == 21
    assert drawn[0].min() >= 0.0
    assert drawn[0].max() < 1.0


def test_a_problem_may_take_all_of_a_device_and_not_a_byte_more() -> None:
    problem, tiny = Problem(40, 50), Tiny()
    need, largest = tiny.footprint(problem, "float"), tiny.largest_buffer(problem, "float")
    assert misfit(tiny, problem, "float", need, largest) is None
    assert "but the device has" in str(misfit(tiny, problem, "float", need - 1, largest))
    assert "in one buffer" in str(misfit(tiny, problem, "float", need, largest - 1))


class Chosen(Tiny):
    """Compiled for each number of threads; a rule leaves some cells out."""

    compile_axes = ("threads",)

    def __init__(self, valid: Callable[[Cell], str | None]) -> None:
        self._rule = valid

    def valid(self, cell: Cell) -> str | None:
        return self._rule(cell)


def of_axes(**axes: Any) -> ShardSpace:
    return ShardSpace("float", ("a", "b"), (Problem(4, 8),), ("warm",), axes, 0, 1)


def test_only_versions_with_a_valid_cell_are_compiled() -> None:
    even = Chosen(lambda cell: None if cell["threads"] % 2 == 0 else "odd")
    space = of_axes(threads=[1, 2, 3, 4], chunks=[1, 2])
    named = [(v.variant, dict(v.values)["threads"]) for v in versions_of(even, space)]
    assert named == [("a", 2), ("a", 4), ("b", 2), ("b", 4)]
    # What the device decides is compiled whatever it turns out to be.
    asking = of_axes(threads=[1, 2], chunks={"to_resident": 1, "points": 2})
    assert len(versions_of(even, asking)) == 4
    assert refusal(even, space) is None
    assert refusal(Chosen(lambda cell: "odd"), asking) is None
    said = refusal(Chosen(lambda cell: f"{cell['threads']} is odd"), space)
    assert "1 is odd" in str(said)


def test_a_rule_that_fails_for_some_cells_refuses_only_if_it_fails_for_all() -> None:
    def fails(cell: Cell) -> str | None:
        if cell["threads"] == 1:
            raise WorkloadError("the rule failed")
        return None if cell["threads"] == 4 else "not 4"

    assert refusal(Chosen(fails), of_axes(threads=[1, 2, 4], chunks=[1])) is None
    assert refusal(Chosen(fails), of_axes(threads=[1, 2], chunks=[1])) == "the rule failed"
    assert len(versions_of(Chosen(fails), of_axes(threads=[1, 2, 4], chunks=[1]))) == 2
