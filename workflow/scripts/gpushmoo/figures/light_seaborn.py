"""Seaborn, imported without SciPy: that takes longer than all else that a figure's job imports.

Seaborn does without SciPy where there is none; of what it draws only a density that is cumulated
and a dendrogram need it. The latter gets it when it is asked for. In a process that has imported
either already there is nothing to gain, and nothing is withheld.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class LateModule(ModuleType):
    """Stands for the module of its name, which is imported when something is asked of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


@contextmanager
def _without_scipy() -> Iterator[None]:
    cluster = ModuleType("scipy.cluster")
    vars(cluster)["hierarchy"] = LateModule("scipy.cluster.hierarchy")
    # None makes an import of that name an ImportError.
    withheld: dict[str, Any] = {"scipy.stats": None, "scipy.cluster": cluster}
    if sys.modules.keys() & withheld:
        withheld = {}
    sys.modules.update(withheld)
    try:
        yield
    finally:
        for name in withheld:
            del sys.modules[name]


with _without_scipy():
    import seaborn as sns

__all__ = ["sns"]
