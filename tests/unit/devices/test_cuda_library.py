"""cuBLAS by its C functions, on a made-up library."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpushmoo.core.errors import LaunchConfigError, LaunchFailedError
from gpushmoo.devices.cuda.library import Cublas, loaded_library


class MadeUp:
    """Writes down the functions that are called; `failing` ones return 13."""

    def __init__(self, failing: str = "") -> None:
        self.called: list[tuple[str, tuple[Any, ...]]] = []
        self.failing = failing

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.called.append((name, tuple(getattr(a, "value", a) for a in arguments)))
            return 13 if name == self.failing else 0

        return call


def array(dtype: str, address: int, size: int = 5) -> Any:
    return SimpleNamespace(dtype=np.dtype(dtype), data=SimpleNamespace(ptr=address), size=size)


@pytest.mark.parametrize(("dtype", "letter"), [("float32", "S"), ("float64", "D")])
def test_a_dot_product_is_queued_in_the_stream_with_its_result_on_the_device(
    dtype: str, letter: str
) -> None:
    library = MadeUp()
    queue = Cublas(library, 7).dot(array(dtype, 16), array(dtype, 32), array(dtype, 64, 1))
    assert [name for name, _ in library.called] == [
        "cublasCreate_v2",
        "cublasSetStream_v2",
        "cublasSetPointerMode_v2",
    ]
    assert library.called[1][1][1] == 7
    assert library.called[2][1][1] == 1
    library.called.clear()
    queue()
    queue()
    expected = (f"cublas{letter}dot_v2_64", (None, 5, 16, 1, 32, 1, 64))
    assert library.called == [expected] * 2


def test_a_status_of_the_library_is_a_failed_launch() -> None:
    cublas = Cublas(MadeUp("cublasSdot_v2_64"), 7)
    queue = cublas.dot(*[array("float32", 16)] * 3)
    with pytest.raises(LaunchFailedError, match="13"):
        queue()


def test_other_types_are_refused() -> None:
    with pytest.raises(LaunchConfigError, match="int32"):
        Cublas(MadeUp(), 7).dot(*[array("int32", 16)] * 3)


def test_a_library_that_is_not_loaded_is_refused(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 0 00:00 0 /opt/cuda lib/libcublasLt.so.13\n7f02-7f03 rw-p 0\n")
    with pytest.raises(LaunchConfigError, match="libcublas is not loaded"):
        loaded_library("libcublas", str(maps))
