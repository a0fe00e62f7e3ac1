"""gpushmoo: sweep memory kernels over launch parameters, model the cells, render the report.

What a user's program or ``workload.py`` needs has a short name here, imported when it is first
used; `__init__.pyi` lists the names, for type checkers and for this module.
"""

from importlib import import_module as _import_module
from os.path import dirname as _dirname
from os.path import isdir as _isdir
from os.path import join as _join
from typing import Any as _Any

__version__ = "0.1.0"

# Raised whenever a change makes new samples incomparable with old ones.
PROTOCOL_VERSION = 2


def _is_there(module: str) -> bool:
    """Whether the module is part of this gpushmoo: an extra's folder may be missing."""
    parts = module.split(".")
    return parts[1] != "extras" or _isdir(_join(_dirname(__file__), *parts[1:3]))


# Each line of the stub is "from .module import name as name". No rule's digest depends on the stub,
# because a rule must not depend on unused names (planning.digest).
with open(f"{__file__}i", encoding="utf-8") as _stub:
    _HOMES = {
        words[3]: words[1]
        for words in map(str.split, _stub)
        if words[:1] == ["from"] and _is_there(words[1])
    }

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _Any:
    """One of the names in `__all__`. Raises AttributeError for any other."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(_import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, also those not yet imported."""
    return [*__all__, "PROTOCOL_VERSION", "__version__"]
