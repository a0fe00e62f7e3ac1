"""Tables of the command line, as text, JSON or CSV; the kernels and the devices that there are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from .. import __name__ as library
from .. import __version__
from ..core.backends import AUTO, BACKENDS
from ..core.errors import NoDeviceError
from ..core.paths import KERNELS
from ..devices.select import DeviceChoice, probe
from ..planning.config_schema import ConfigError
from ..workloads.loader import KernelFolderError, find_kernels, load_kernel

if TYPE_CHECKING:
    from pandas import DataFrame

JSON, CSV = "json", "csv"


def print_table(
    command: str,
    form: str | None,
    rows: DataFrame,
    text: Callable[[], str],
    **more: Any,
) -> None:
    """Print the `rows` that a command found, in the `form` JSON or CSV or as `text` says.

    JSON is an object of the library's version, the command's name, the rows, and what is `more`,
    frames among it; null stands for what is missing.
    """
    if form == JSON:
        told = {library: __version__, "command": command, "rows": rows, **more}
        print(json.dumps(told, default=_plain, indent=1, ensure_ascii=False))
    elif form == CSV:
        rows.map(_joined).to_csv(sys.stdout, index=False)
    else:
        print(text())


def aligned(rows: DataFrame) -> str:
    """Texts in columns that begin below each other."""
    words = [[*rows], *rows.map(_joined).fillna("").astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in words)
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    """What JSON has no word for: a frame, an array or scalar of NumPy, a time."""
    if hasattr(value, "to_dict"):
        return value.astype(object).where(value.notna(), None).to_dict("records")
    return value.isoformat() if hasattr(value, "isoformat") else value.tolist()


def _joined(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def found_kernels() -> tuple[DataFrame, list[str]]:
    """A row for each kernel of the clone and of the folder ``kernels``; a sentence for a bad one.

    Raises ConfigError where a kernel is there twice.
    """
    import pandas as pd

    rows, notes = [], []
    try:
        paths = find_kernels(p for p in (KERNELS, Path("kernels").resolve()) if p.is_dir())
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err
    for name, path in sorted(paths.items()):
        try:
            workload = load_kernel(path).workload
        except KernelFolderError as err:
            notes.append(str(err))
            continue
        has = [
            b.name
            for b in BACKENDS.values()
            if any((path / f"kernel{suffix}").is_file() for suffix in b.suffixes)
        ]
        rows.append(
            {
                "kernel": name,
                **{c: list(getattr(workload, c)) for c in ("dtypes", "variants", "axes")},
                "backends": has if workload.device_code else list(BACKENDS),
                "title": workload.title,
            }
        )
    return pd.DataFrame(rows), notes


def found_devices() -> tuple[DataFrame, list[str]]:
    """A row for each device that answers; why none does, where none does."""
    import pandas as pd

    rows, reasons = [], []
    with TemporaryDirectory(prefix=f"{library}-") as cache:
        for backend, runtime in ((b, r) for b in BACKENDS.values() for r in b.runtimes or (AUTO,)):
            for index in count():
                try:
                    info = probe(DeviceChoice(backend.name, index, runtime, Path(cache)))
                except NoDeviceError as err:
                    reasons.append(str(err))
                    break
                rows.append(
                    {
                        "device": index,
                        "backend": backend.name,
                        "opencl_runtime": runtime if backend.runtimes else None,
                        "device_name": info.name,
                        "memory_gib": round(info.global_memory / 2**30, 1),
                        "driver": info.driver,
                        "device_uuid": info.uuid,
                    }
                )
    return pd.DataFrame(rows), [] if rows else reasons
