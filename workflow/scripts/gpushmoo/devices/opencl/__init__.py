"""The OpenCL backend, by pyopencl."""
