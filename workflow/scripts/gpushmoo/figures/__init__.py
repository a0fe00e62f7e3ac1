"""One function for each figure; figures read only Parquet and JSON."""
