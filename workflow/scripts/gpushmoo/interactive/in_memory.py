"""Write a workload that a program or notebook defines as a kernel folder.

So all later steps are the same as for a kernel that a user wrote as files.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from .. import __name__ as library
from ..core.backends import BACKENDS
from ..core.errors import ConfigError
from ..planning.refusal import refuse_unknown
from ..workloads.contract import Workload

# The folder's workload.py. This process writes the pickle next to it, for its own children.
_LOADS = '''"""A workload that was defined in a running program."""

from pathlib import Path

import cloudpickle

WORKLOAD = cloudpickle.loads(Path(__file__).with_name("workload.pickle").read_bytes())
'''


def write_folder(
    workload: Workload,
    sources: Mapping[str, str | bytes],
    parent: Path,
    functions: Sequence[Callable[..., Any]] = (),
) -> Path:
    """Write the folder of a kernel whose workload is an object of this program.

    Parameters
    ----------
    workload
        The workload. It is pickled together with its class.
    sources
        Sources of the kernel, by suffix of their file, for example ``.cu``.
    parent
        Folder in which the kernel's folder is made.
    functions
        Functions that the workload contains. Modules of the user that define them are pickled, too.

    Returns
    -------
    Path
        The kernel's folder.

    Raises
    ------
    ConfigError
        If the workload has no valid name or no source, or if it cannot be pickled.
    """
    name = getattr(workload, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(
            f"kernel: the workload's name is {name!r}; it must consist of letters, digits and '_'."
        )
    known = sorted(suffix for backend in BACKENDS.values() for suffix in backend.suffixes)
    if not sources and workload.device_code:
        raise ConfigError(
            "source: a workload without a folder needs the text of its kernel, or texts by the "
            f"names {', '.join(known)}."
        )
    refuse_unknown("source", sources, known)
    folder = parent / name
    folder.mkdir(parents=True)
    for suffix, text in sources.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / f"kernel{suffix}").write_bytes(data)
    (folder / "workload.py").write_text(_LOADS, encoding="utf-8")
    (folder / "workload.pickle").write_bytes(_pickled(workload, functions))
    return folder


def _pickled(workload: Workload, functions: Sequence[Callable[..., Any]]) -> bytes:
    """Return a pickle of the workload with its class and functions, not only their names."""
    cls = type(workload)
    # Errors name a class of the folder.
    heir = type(cls.__name__, (cls,), {"__module__": f"{library}_kernel_{workload.name}"})
    instance = copy.copy(workload)
    object.__setattr__(instance, "__class__", heir)
    # User's modules that define them go along, as nobody else finds them.
    named = {one.__module__ for one in (*cls.__mro__, *functions)}
    modules = [sys.modules[name] for name in sorted(named) if _is_users(name)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled: bytes = cloudpickle.dumps(instance)
    except Exception as err:
        raise ConfigError(
            f"kernel: the workload cannot be sent to the measuring process "
            f"({type(err).__name__}: {err}); write it into a kernel folder."
        ) from err
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    return pickled


def _is_users(name: str) -> bool:
    """Return whether a module belongs to neither the library nor Python, and is not ``__main__``.

    pickle always copies the content of ``__main__``.
    """
    first = name.partition(".")[0]
    loaded = isinstance(sys.modules.get(name), ModuleType)
    return loaded and first != "__main__" and first not in {library, *sys.stdlib_module_names}
