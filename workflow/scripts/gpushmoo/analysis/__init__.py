"""Draw conclusions from measured cells: best launches, measured peaks, spread between repeats."""
