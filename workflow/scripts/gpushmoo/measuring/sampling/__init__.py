"""Which cells are sampled next, how many launches a sample has, and when a cell has enough."""
