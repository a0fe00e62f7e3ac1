"""Kernel folders: what breaks the contract is refused before anything is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, USER_CUDA, USER_OPENCL
from fakes import Tiny
from gpushmoo.devices.base import BuildError
from gpushmoo.devices.sources import kernel_source
from gpushmoo.dtypes import DTYPES
from gpushmoo.kernels import KernelFolderError, find_kernels, load_kernel
from gpushmoo.space import Problem

Make = Callable[..., Path]


@pytest.fixture
def folder(make_kernel: Make) -> Path:
    return make_kernel("mine", USER_CUDA, USER_OPENCL)


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


def test_kernel_that_two_folders_hold_is_refused(folder: Path, make_kernel: Make) -> None:
    with pytest.raises(KernelFolderError, match="'mine' exists twice"):
        find_kernels([folder.parent, folder.parent])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "mine"', 'name = "yours"', "calls itself 'yours'"),
        ('name = "mine"', "", "calls itself 'None'"),
        ('title = "A user\'s kernel"', "", "does not define 'title'"),
        ('axes = {"block_x": [32, 64, 2048]}', "", "does not define 'axes'"),
        ('dtypes = ("float",)', 'dtypes = ("half",)', "dtype 'half' is not known; allowed: float"),
        ('{"block_x": [', '{"height": [', "axis 'height' has the name of a column"),
        ("WORKLOAD = Mine()", "", "must define WORKLOAD"),
        ("WORKLOAD = Mine()", "WORKLOAD = Mine", "must define WORKLOAD, an instance"),
        ("import numpy as np", "import no_such_module", "mine/workload.py:2: ModuleNotFoundError"),
        ("import numpy as np", "import numpy as", "mine/workload.py:2: SyntaxError"),
        ("    def launch(self", "    def start(self", ": TypeError"),
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


def test_digest_changes_with_every_source_and_nothing_else(folder: Path) -> None:
    seen = [load_kernel(folder).digest()]
    for name in ("kernel.cu", "kernel.cl", "workload.py"):
        with (folder / name).open("a") as f:
            f.write("\n")
        seen.append(load_kernel(folder).digest())
    (folder / "common.h").write_text("#define X\n")
    seen.append(load_kernel(folder).digest())
    assert len(set(seen)) == len(seen)
    (folder / "notes.md").write_text("x")
    assert load_kernel(folder).digest() == seen[-1]


def test_a_source_that_is_missing_or_no_text_is_a_failed_build(folder: Path) -> None:
    assert kernel_source(folder, ".cl") == USER_OPENCL
    (folder / "kernel.cu").unlink()
    with pytest.raises(BuildError, match=r"^Kernel 'mine' has no kernel\.cu\.$"):
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
