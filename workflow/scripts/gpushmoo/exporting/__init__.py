"""Write a run's results in the formats that other programs read: see `export`."""
