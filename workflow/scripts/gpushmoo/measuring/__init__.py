"""Measure cells on a device and write shards: compile, verify and time kernels."""

import os as _os

# Idle threads of NumPy's BLAS and of Numba's loops spin for up to 0.1 s and would disturb the next
# measurement; here they sleep after less than 1 ms. The libraries read this when they are loaded,
# so it holds for child processes.
_os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
_os.environ.setdefault("GOMP_SPINCOUNT", "30000")
