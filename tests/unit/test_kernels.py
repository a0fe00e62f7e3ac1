"""Kernel folders: what breaks the contract is refused before anything is measured."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, USER_CUDA, USER_OPENCL
from fakes import Tiny
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import BuildError
from gpushmoo.core.space import Problem
from gpushmoo.devices.builds import kernel_source
from gpushmoo.workloads.loader import KernelFolderError, find_kernels, load_kernel

Make = Callable[..., Path]


@pytest.fixture
def folder(make_kernel: Make) -> Path:
    return make_kernel("mine", USER_CUDA, USER_OPENCL)


CURVE = 'Curve("block_x", unit="threads")'


def refused(folder: Path) -> str:
    with pytest.raises(KernelFolderError) as caught:
        load_kernel(folder)
    assert folder.name in str(caught.value)
    return str(caught.value)


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "workload.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_every_folder_with_a_workload_is_a_kernel(folder: Path) -> None:
    (folder.parent / "notes").mkdir()
    assert find_kernels([folder.parent]) == {"mine": folder}
    assert load_kernel(folder).workload.name == "mine"
    assert set(find_kernels([ROOT / "kernels", folder.parent])) >= {"mine", "copy2d_coalesced"}


def test_kernel_that_two_folders_hold_is_refused(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder.parent)
    assert set(find_kernels([folder.parent, link])) == {"mine"}
    other = Path(shutil.copytree(folder.parent, tmp_path / "other"))
    with pytest.raises(KernelFolderError, match="'mine' exists twice"):
        find_kernels([folder.parent, other])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "mine"', 'name = "yours"', "calls itself 'yours'"),
        ('name = "mine"', "", "WORKLOAD does not define 'name'"),
        ('title = "A user\'s kernel"', "", "does not define 'title'"),
        ('axes = {"block_x": [32, 64, 2048]}', "", "does not define 'axes'"),
        ('dtypes = ("float",)', 'dtypes = ("half",)', "dtypes name 'half'; allowed: float"),
        ('{"block_x": [', '{"height": [', "axis 'height' has the name of a column"),
        ("WORKLOAD = Mine()", "WORKLOAD = 3", "WORKLOAD as 3; end it by the line: WORKLOAD = Mine"),
        ("import numpy as np", "import no_such_module", "mine/workload.py:2: ModuleNotFoundError"),
        ("import numpy as np", "import numpy as", "mine/workload.py:2: SyntaxError"),
        ("    def launch(self", "    def start(self", ": TypeError"),
        (",)\n\n    def d", ")\n\n    def d", "views are Curve(x='block_x', unit='threads'), not"),
        (CURVE, f"{CURVE}, {CURVE}", "views are both called 'curve-block_x'; give one"),
        (CURVE, "Curve", "is not an instance of View"),
        (CURVE, "type('V', (Curve,), {'each': ['dtyp']})('a', '')", "allowed: cache_state, dtype"),
        (CURVE, "type('V', (Curve,), {'label': lambda _: 1 / 0})('a', '')", ": ZeroDivisionError"),
        (CURVE, 'Curve("../x", "")', "view 'curve-../x' must be called by letters"),
    ],
)
def test_broken_workload_is_refused_saying_what_is_wrong(
    folder: Path, old: str, new: str, words: str
) -> None:
    edit(folder, old, new)
    assert words in refused(folder)


def test_a_workload_that_is_no_text_is_refused(folder: Path) -> None:
    path = folder / "workload.py"
    path.write_bytes(path.read_bytes().replace(b"user's", b"k\xf6nig's"))
    assert "mine/workload.py:7: SyntaxError: (unicode error)" in refused(folder)


def test_name_that_no_path_of_the_workflow_can_carry_is_refused(make_kernel: Make) -> None:
    folder = make_kernel("my-copy", USER_CUDA, USER_OPENCL)
    assert "letters, digits and '_'" in refused(folder)


@pytest.mark.parametrize(
    ("file", "text", "counts"),
    [
        ("kernel.cl", "\n// A remark.\n", {".cl"}),
        ("kernel.cu", "\n// A remark.\n", {".cu"}),
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
def test_digest_is_of_all_files_that_the_backend_in_use_compiles(
    folder: Path, file: str, text: str, counts: set[str]
) -> None:
    kernel, path = load_kernel(folder), folder / file
    before = {suffix: kernel.digest(suffix) for suffix in (".cl", ".cu", None)}
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as f:
        f.write(text)
    changed = {suffix for suffix, digest in before.items() if kernel.digest(suffix) != digest}
    assert changed == counts | ({None} if counts else set())


def test_a_source_of_another_backend_counts_where_it_is_included(folder: Path) -> None:
    (folder / "common.h").write_text('  #include "kernel.cu"\n')
    kernel = load_kernel(folder)
    before = kernel.digest(".cl")
    (folder / "kernel.cu").write_text("// Another.\n")
    assert kernel.digest(".cl") != before


def test_a_source_that_is_missing_or_no_text_is_a_failed_build(folder: Path) -> None:
    assert kernel_source(folder, ".cl") == USER_OPENCL
    (folder / "kernel.cu").unlink()
    with pytest.raises(BuildError, match=r"^Kernel 'mine' has no kernel\.cu, .*s: kernel\.cl$"):
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
    assert len(np.unique(src)) > 200
