"""Name the ways to compute a dot product on the host alone."""

from __future__ import annotations

import os

import numpy as np
from gpushmoo.workloads.contract import Array
from threadpoolctl import ThreadpoolController

from .host_dot import host_dot, loops

CORES = len(os.sched_getaffinity(0))
# Looked up once: finding the libraries takes longer than a short dot product.
_BLAS = ThreadpoolController()

WAYS = ("blas-all", "blas-one", "naive", "blocks-all")
# Their threads continue for a while after a call, and would share the cores with others.
THREADED = frozenset({"blas-all", "blocks-all"})


def dot_by(way: str, x: Array, y: Array) -> float:
    """Return x · y by NumPy's BLAS with all threads or one, a compiled loop, or host blocks."""
    if way == "naive":
        return float(loops().naive(x, y))
    if way == "blocks-all":
        return host_dot(x, y)
    # The controller's own context manager would dominate the time of a short dot product.
    for library in _BLAS.lib_controllers:
        library.set_num_threads(1 if way == "blas-one" else CORES)
    return float(np.dot(x, y))
