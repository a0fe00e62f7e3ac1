"""Tells how far a run is while it is measured; reads its files and changes nothing."""
