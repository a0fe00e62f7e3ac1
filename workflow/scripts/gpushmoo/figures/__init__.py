"""One function a figure; figures see only Parquet and JSON."""
