"""What other programs call: functions of other tuners, and a plugin of pytest."""

from ...registry import Extra

EXTRA = Extra(pytest_plugins=[f"{__name__}.pytest_plugin"])
