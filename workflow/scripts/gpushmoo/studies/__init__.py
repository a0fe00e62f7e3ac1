"""Studies beside the sweep: what a device's own counters tell of designed samples of cells."""
