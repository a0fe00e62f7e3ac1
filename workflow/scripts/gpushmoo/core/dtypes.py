"""Define the element types of kernels, and the types of arguments as Triton names them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

# Types that ml_dtypes adds to NumPy, and their names there.
_OF_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}


@dataclass(frozen=True)
class DType:
    """NumPy scalar times lanes, packed; a `normalised` byte b is read from images as b / 255."""

    name: str
    numpy_name: str
    itemsize: int
    lanes: int = 1
    normalised: bool = False

    @cached_property
    def scalar(self) -> np.dtype[Any]:
        """NumPy's type of one lane; ml_dtypes provides that of bfloat16 and fp8."""
        if self.name in _OF_ML_DTYPES:
            # Imported only when needed: few kernels have such types.
            import_module("ml_dtypes")
        found: np.dtype[Any] = np.dtype(self.numpy_name)
        return found

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """Return the shape of the NumPy array of height × width elements; lanes come last."""
        return (height, width) if self.lanes == 1 else (height, width, self.lanes)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("float", "float32", 4),
        DType("double", "float64", 8),
        DType("float2", "float32", 8, 2),
        DType("float3", "float32", 12, 3),
        DType("float4", "float32", 16, 4),
        DType("unorm8", "uint8", 1, normalised=True),
        DType("unorm8x4", "uint8", 4, 4, normalised=True),
        *(DType(f"{u}int{n}", f"{u}int{n}", n // 8) for n in (8, 16, 32, 64) for u in ("", "u")),
        DType("half", "float16", 2),
        *(DType(name, of, 2 if name == "bfloat16" else 1) for name, of in _OF_ML_DTYPES.items()),
    )
}


def dtype_name(scalar: np.dtype[Any]) -> str | None:
    """Return the element type whose elements are this scalar, or None."""
    found = (d for d in DTYPES.values() if d.numpy_name == scalar.name and d.lanes == 1)
    return next((d.name for d in found if not d.normalised), None)


def is_of_ml_dtypes(scalar: np.dtype[Any] | str) -> bool:
    """Return whether a type, or the type of this name, is a float from ml_dtypes."""
    return (scalar if isinstance(scalar, str) else scalar.name) in _OF_ML_DTYPES.values()


# Options of Triton's compiler besides a kernel's parameters. An axis may have such a name.
TRITON_OPTIONS = ("num_warps", "num_stages", "maxnreg")

_SCALARS = {
    **{f"{u}int{n}": f"{'u' if u else 'i'}{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}


def triton_type(argument: npt.NDArray[Any] | np.generic | np.dtype[Any]) -> str:
    """Return the type of an argument, specialized as in Triton's own launcher.

    An array, or the type of its elements, becomes a pointer to aligned memory. The whole number 1
    becomes a constant. A number divisible by 16 is marked as such.

    Raises
    ------
    ValueError
        If Triton does not have the type.
    """
    kind = argument if isinstance(argument, np.dtype) else argument.dtype
    if kind.name not in _SCALARS:
        raise ValueError(f"Triton has no type '{kind.name}'")
    name = _SCALARS[kind.name]
    if not isinstance(argument, np.generic):
        return f"*{name}:16"
    if kind.kind in "iu" and argument == 1:
        return "1"
    return f"{name}:16" if kind.kind in "iu" and int(argument) % 16 == 0 else name
