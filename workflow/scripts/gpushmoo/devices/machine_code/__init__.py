"""Compile CUDA kernels without a device, and read their machine code."""
