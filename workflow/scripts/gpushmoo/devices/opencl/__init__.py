"""Run kernels on OpenCL devices through pyopencl: the backend `opencl`."""
