"""From cells to conclusions: best sets, status counts."""
