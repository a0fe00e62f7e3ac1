"""Devices behind one protocol: a folder for each backend."""
