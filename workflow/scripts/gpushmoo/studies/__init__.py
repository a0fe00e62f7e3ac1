"""Measure hardware counters and energy of chosen cells, separately from the sweeps."""
