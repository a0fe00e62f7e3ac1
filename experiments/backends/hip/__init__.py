"""A skeleton of a HIP backend on CuPy for ROCm, which nobody has run on a device.

It shares buffers, checks and timing with the CUDA backend. `docs/backends.md` says what is left.
"""
