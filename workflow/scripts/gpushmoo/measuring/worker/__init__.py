"""The process that measures, and the one that watches over it."""
