"""Measure kernels on this machine from Python or the shell, and write folders of new kernels."""
