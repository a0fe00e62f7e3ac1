"""A made-up device: its kernels are NumPy functions, its clock is simulated, its faults are real.

The folder of a third backend. A test copies it to the library's devices and adds one entry to the
registry; nothing else of the project knows it.
"""
