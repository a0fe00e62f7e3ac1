"""Share code between kernels of dot products: the workload, exact sums, and error bounds."""
