"""The entry point of pytest: the plugins of the extras that there are."""

from .registry import extras

pytest_plugins = [name for extra in extras().values() for name in extra.pytest_plugins]
