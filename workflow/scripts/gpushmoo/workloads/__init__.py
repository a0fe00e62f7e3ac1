"""Define the contract of a kernel folder, find and load folders, and guard their code."""
