"""Types of arguments as Triton's ahead-of-time compiler writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# What Triton's compiler takes beside a kernel's own parameters; an axis may be called so.
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
    """The type of an argument, specialised as Triton's own launcher does.

    An array, or the type of its elements, is a pointer to aligned memory. A whole number that is 1
    is a constant; one that 16 divides is said to be so. Raises ValueError.
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
