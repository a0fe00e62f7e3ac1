"""One model for a device: a single set of parameters for all kernels, sizes and shapes."""
