"""Conclusions from measured cells: best launches, ceilings, spread, fitted models."""
