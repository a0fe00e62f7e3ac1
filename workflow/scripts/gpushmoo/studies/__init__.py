"""Studies: hardware counters and energy of chosen cells, measured outside of the sweeps."""
