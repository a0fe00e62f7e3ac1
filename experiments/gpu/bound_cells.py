"""Compiles cells of our kernels for a CUDA device, and binds them to buffers, for comparisons."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.cuda.backend import CudaDevice
from gpushmoo.devices.cuda.timing import CudaLaunch
from gpushmoo.workloads.loader import load_kernel


def bound_cells(device: CudaDevice, cells: Iterable[Cell]) -> Iterator[tuple[Cell, CudaLaunch]]:
    """Compile, upload and bind every cell, and launch it once; problems share their buffers."""
    buffers: dict[tuple[str, Problem, str], dict[str, Any]] = {}
    for cell in cells:
        folder = load_kernel(KERNELS / cell.kernel)
        workload = folder.workload
        key = (cell.kernel, cell.problem, cell.dtype)
        if key not in buffers:
            inputs = workload.inputs(cell.problem, cell.dtype, np.random.default_rng(1))
            uploaded = {n: device.upload(a) for n, a in inputs.items()}
            output = device.allocate(workload.reference(inputs).nbytes)
            buffers[key] = uploaded | {workload.output: output}
        macros = workload.macros(cell.dtype, workload.version(cell))
        program = device.build(folder.path, DTYPES[cell.dtype], macros)
        bound = device.bind(program, workload.launch(cell), buffers[key])
        bound.run()
        yield cell, bound
