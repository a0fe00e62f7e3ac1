"""Mechanistic models of memory bandwidth: the simulated device and the closed formulas."""
