"""Recomputes the numbers of the pages in docs/ from what the repository recorded."""
