"""Show a run in the terminal while it measures: the command ``watch``."""

from ...registry import Extra

EXTRA = Extra()
