"""Whatever an OpenCL runtime offers, by way of pyopencl."""
