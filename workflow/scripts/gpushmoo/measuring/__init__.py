"""Cells in, a shard out: building, verifying and timing kernels."""

import os as _os

# Threads of NumPy's BLAS and of Numba's loops that have no work spin for up to 0.1 s, beside what
# is measured next, unless they are told to sleep sooner: here after less than 1 ms. The libraries
# read it when they are loaded, so it is for the processes that are started from here.
_os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
_os.environ.setdefault("GOMP_SPINCOUNT", "30000")
