"""Closed formulas for bandwidth, fitted to measured cells."""
