"""CUDA kernels compiled without a device, and what the compiler made of them."""
