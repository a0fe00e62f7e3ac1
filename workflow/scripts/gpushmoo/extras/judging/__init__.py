"""Reports what results of other tuners show, and what they cannot: the command ``judge``."""

from ...registry import Extra

EXTRA = Extra()
