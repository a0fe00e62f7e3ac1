"""What the kernels that compute dot products share: the workload, exact sums, error bounds."""
