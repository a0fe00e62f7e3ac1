"""Provide interfaces that other programs call: functions of other tuners, and a pytest plugin."""

from ...registry import Extra

EXTRA = Extra(pytest_plugins=[f"{__name__}.pytest_plugin"])
