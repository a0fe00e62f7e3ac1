"""Cells in, a shard out: building, verifying and timing kernels."""
