"""gpushmoo: sweep memory kernels over launch parameters, model the cells, render the report.

What a user's program or ``workload.py`` needs has a short name here, imported when it is first
asked for; `__init__.pyi` lists them for type checkers.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.1.0"

# Raised whenever a change makes new samples incomparable with old ones.
PROTOCOL_VERSION = 1

# Relative names, as every rule's digest covers this file and what it imports (planning.digest):
# a rule shall not depend on what it does not use.
_HOMES = {
    ".comparing": ("CompareError",),
    ".comparing.compare": ("compare", "false_alarms"),
    ".comparing.comparison": ("Comparison",),
    ".comparing.history": ("History",),
    ".core.errors": ("DeviceError",),
    ".core.space": ("Cell", "Problem"),
    ".explorer.explore": ("ExplorerError", "explore"),
    ".exporting.choices": ("ExportError",),
    ".exporting.write": ("Exported", "export"),
    ".interactive.history": ("history",),
    ".interactive.measure": ("Sweep", "sweep"),
    ".interactive.predict": ("Prediction", "predict"),
    ".interactive.versus": ("Versus", "versus"),
    ".planning.config_schema": ("ConfigError",),
    ".workloads.contract": (
        *("BufferRef", "CopyWorkload", "Curve", "HeatMap", "Launch", "NullRef"),
        *("ReducingWorkload", "SharedMemory", "SurfaceRef", "TextureRef", "WorkingSet"),
        *("Workload", "ceil_div"),
    ),
}
_EXPORTS = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> _Any:
    """One of the names in `__all__`. Raises AttributeError for any other."""
    if name not in _EXPORTS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(_import_module(_EXPORTS[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, also those not yet imported."""
    return [*__all__, "PROTOCOL_VERSION", "__version__"]
