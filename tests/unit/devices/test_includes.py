"""Headers of a kernel are found in every folder, whatever its path is called."""

from pathlib import Path
from typing import Any

import pytest
from conftest import python
from gpushmoo.devices.build_file import own_headers
from gpushmoo.devices.opencl.runtime import include_option
from gpushmoo.workloads.loader import KernelFolder, included_files

# A path that needs every kind of quotes, and has a letter that is not ASCII.
ODD = 'a b/it\'s "5" é'
# A byte order mark before the first line.
SOURCE = """\ufeff#include "part.h"
__kernel void add(__global int *y, __global const int *x, const int n)
{
    int i = get_global_id(0);
    if (i < n) y[i] = x[i] + PART + NEAR + FAR;
}
"""
TUNE = """
import sys, numpy as np, gpushmoo
x = np.arange(8, dtype=np.int32)
made = gpushmoo.tune(sys.argv[1], "add", [0 * x, x, np.int32(8)], 8, {"block_x": [8]},
                     check=gpushmoo.Check([x + 7, None, None]), backend="opencl")
print(dict(made.statuses))
folder = made.to_folder(sys.argv[2])
print(dict(gpushmoo.sweep(folder, backend="opencl").statuses))
"""


def write_tree(root: Path) -> Path:
    """A source that includes from beside it, from the folder above, and from two above."""
    folder = root / "src" / "own"
    folder.mkdir(parents=True)
    (root / "far.h").write_text("#define FAR 4\n")
    (root / "src" / "near.h").write_text('#include "../far.h"\n#define NEAR 2\n')
    (folder / "part.h").write_text('\ufeff#include "../near.h"\n#define PART 1\n')
    (folder / "kernel.cl").write_text(SOURCE)
    return folder / "kernel.cl"


@pytest.mark.parametrize("is_odd", [False, True])
def test_headers_are_found_from_any_folder(is_odd: bool, tmp_path: Path) -> None:
    root = tmp_path / ODD if is_odd else tmp_path
    source = write_tree(root / "tree")
    (root / "tmp").mkdir()
    named = {"TMPDIR": str(root / "tmp"), "XDG_CACHE_HOME": str(root / "cache")}
    done = python(TUNE, source, root / "kept", **named)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'ok': 1") == 2, done.stdout + done.stderr


def test_a_link_to_an_odd_folder_stays_in_a_plain_cache(tmp_path: Path) -> None:
    """The runtime's own cache then finds the same options again."""
    source = write_tree(tmp_path / ODD)
    with include_option(source.parent, tmp_path / "cache") as first:
        assert (Path(first[1]) / "part.h").is_file()
        assert Path(first[1]).is_relative_to(tmp_path / "cache")
    with include_option(source.parent, tmp_path / "cache") as again:
        assert again == first
    source.write_text("")
    with include_option(source.parent, tmp_path / "cache") as none:
        assert none == ()


def test_all_that_is_included_is_listed_and_counts(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "tree")
    (source.parent / "linked.h").symlink_to(tmp_path / "tree/far.h")
    with source.open("a") as file:
        file.write('#include "linked.h"\n#include "missing.h"\n#include <math.h>\n')
    places = {place.as_posix() for _, place in included_files(source)}
    assert places == {"part.h", "../near.h", "../../far.h", "linked.h"}
    (source.parent / "workload.py").touch()
    none: Any = None
    folder, digests = KernelFolder(source.parent, none), set()
    for path in (source, source.parent / "part.h", tmp_path / "tree/src/near.h"):
        path.write_text(path.read_text() + "#define MORE 1\n")
        digests.add((folder.digest(".cl"), own_headers(source.parent, ".cl")))
    assert len({kernel for kernel, _ in digests}) == 3
    assert len({headers for _, headers in digests}) == 3
    other = folder.digest(".cu")
    (tmp_path / "tree/src/near.h").write_text("#define NEAR 5\n")
    assert folder.digest(".cu") == other
    assert folder.digest(None) not in {kernel for kernel, _ in digests}
