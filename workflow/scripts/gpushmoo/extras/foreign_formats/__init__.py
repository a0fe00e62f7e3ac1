"""Export in the formats of other programs: T4, Kernel Tuner, vLLM and Triton."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...registry import Extra

if TYPE_CHECKING:
    from ...exporting.export_format import Format


def _format(name: str) -> type[Format]:
    from .forms import FORMATS

    return FORMATS[name]


EXTRA = Extra(
    formats={name: partial(_format, name) for name in ("t4", "kernel-tuner", "vllm", "triton")}
)
