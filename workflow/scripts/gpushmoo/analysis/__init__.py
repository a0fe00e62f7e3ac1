"""Conclusions from measured cells: best launches, measured peaks, spread, fitted models."""
