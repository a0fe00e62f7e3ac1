"""Run kernels on NVIDIA GPUs through CuPy: the backend `cuda`."""
