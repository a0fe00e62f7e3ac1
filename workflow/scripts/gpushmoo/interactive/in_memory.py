"""A workload that a notebook defines becomes a kernel folder, so that all else stays the same."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import cloudpickle

from .. import __name__ as library
from ..core.backends import BACKENDS
from ..planning.config_schema import ConfigError
from ..workloads.contract import Workload

# The folder's workload.py; the file beside it was written by this process for its own.
_LOADS = '''"""A workload that was defined in a running program."""

from pathlib import Path

import cloudpickle

WORKLOAD = cloudpickle.loads(Path(__file__).with_name("workload.pickle").read_bytes())
'''


def write_folder(
    workload: Workload,
    source: str | Mapping[str, str] | None,
    suffix: Callable[[], str],
    parent: Path,
) -> Path:
    """A kernel folder of `workload` in `parent`.

    `source` is the kernel's text, for the backend whose sources have what `suffix` returns, or
    texts by the suffixes of several backends. Raises ConfigError.
    """
    name = getattr(workload, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(
            f"kernel: the workload's name is {name!r}; it must consist of letters, digits and '_'."
        )
    folder = parent / name
    folder.mkdir(parents=True)
    for ending, text in _texts(workload, source, suffix).items():
        (folder / f"kernel{ending}").write_text(text, encoding="utf-8")
    (folder / "workload.py").write_text(_LOADS, encoding="utf-8")
    (folder / "workload.pickle").write_bytes(_pickled(workload))
    return folder


def _texts(
    workload: Workload, source: str | Mapping[str, str] | None, suffix: Callable[[], str]
) -> Mapping[str, str]:
    known = sorted(backend.source_suffix for backend in BACKENDS.values())
    if source is None and workload.device_code:
        raise ConfigError(
            "source: a workload that is no folder needs its kernel's text, or texts by the names "
            f"{', '.join(known)}."
        )
    texts = {suffix(): source} if isinstance(source, str) else dict(source or {})
    for ending in texts:
        if ending not in known:
            raise ConfigError(f"source: '{ending}' is not known; allowed: {', '.join(known)}.")
    return texts


def _pickled(workload: Workload) -> bytes:
    """The workload with its class, wherever that was defined.

    Its class gets a heir that belongs to the folder, by whose name errors are told.
    """
    cls = type(workload)
    of_folder = {"__module__": f"{library}_kernel_{workload.name}"}
    heir = type(cls.__name__, (cls,), of_folder)
    instance = copy.copy(workload)
    object.__setattr__(instance, "__class__", heir)
    with _by_value(cls):
        try:
            pickled: bytes = cloudpickle.dumps(instance)
        except Exception as err:
            raise ConfigError(
                f"kernel: the workload cannot be sent to the measuring process "
                f"({type(err).__name__}: {err}); write it into a kernel folder."
            ) from err
    return pickled


@contextmanager
def _by_value(cls: type) -> Iterator[None]:
    """Have user's modules that define `cls` and its bases sent along, as nobody else finds them."""
    named = {base.__module__ for base in cls.__mro__}
    modules = [sys.modules[name] for name in sorted(named) if _is_users(name)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(name: str) -> bool:
    """Whether a module is neither the library's nor Python's; ``__main__`` is sent in any case."""
    first = name.partition(".")[0]
    loaded = isinstance(sys.modules.get(name), ModuleType)
    return loaded and first != "__main__" and first not in {library, *sys.stdlib_module_names}
