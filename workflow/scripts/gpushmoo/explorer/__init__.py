"""Show a run's cells as one page that a browser opens from a file: see `explore`."""
