"""Simulated devices: how blocks of threads move data between their arrays and the memory."""
