"""Draw the figures, one function for each, from Parquet and JSON files alone."""
