"""CUDA kernels compiled without a device, and the contents of their machine code."""
