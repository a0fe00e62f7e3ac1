"""Kernel folders whose OpenCL kernel copies an array, each with something of its own."""

from pathlib import Path
from string import Template
from typing import Any

_KERNEL = Template("""
typedef struct { float x, y, z; } packed_float3;
__kernel void $name(__global element_t *restrict dst, __global const element_t *restrict src,
                    const ulong n$parameter)
{
    const ulong i = get_global_id(0);
$before
    if (i < n)
        dst[i] = src[i];
}
""")
_WORKLOAD = Template("""
import os, time
from pathlib import Path
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Curve, Launch, ceil_div


class Copy(CopyWorkload):
    name = title = "$name"
    pattern = "one element per thread"
    dtypes = $dtypes
    variants = ("plain",)
    sizes = $sizes
    axes = $axes
    views = (Curve("block_x", unit="threads"),)

    def defines(self, dtype, variant):
        return {}

    def more(self, cell, blocks):
        return ()

$methods
    def launch(self, cell):
        n = cell.problem.height * cell.problem.width
        blocks = ceil_div(n, cell["block_x"])
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(n), *self.more(cell, blocks))
        return Launch("$name", (blocks, 1, 1), (cell["block_x"], 1, 1), args, blocks)


WORKLOAD = Copy()
""")


def write_copy(
    root: Path,
    name: str,
    axes: dict[str, Any],
    dtypes: tuple[str, ...] = ("float",),
    sizes: tuple[int, ...] = (64,),
    before: str = "",
    parameter: str = "",
    methods: str = "",
) -> None:
    """Write the kernel `name` into the project at `root`; one of ``block_x`` threads a block.

    `before` is what each thread does first, `parameter` one more of the kernel, whose value the
    method ``more`` gives; `methods` are those that the workload has beside its own.
    """
    folder = root / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    source = _KERNEL.substitute(name=name, parameter=parameter and f", {parameter}", before=before)
    (folder / "kernel.cl").write_text(source, encoding="utf-8")
    workload = _WORKLOAD.substitute(
        name=name, dtypes=dtypes, sizes=sizes, axes=axes, methods=methods
    )
    (folder / "workload.py").write_text(workload, encoding="utf-8")
