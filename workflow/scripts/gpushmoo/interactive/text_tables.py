"""Define the columns of the tables that commands print, and list kernels and devices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .. import __name__ as library
from ..core.backends import AUTO, BACKENDS
from ..core.errors import ConfigError, KernelFolderError, NoDeviceError
from ..core.paths import KERNELS
from ..core.schema import BestCell, Float64, Group, Int32, Meaning, String, Table
from ..devices.select import DeviceChoice, probe
from ..storage.temporary import OwnFolder
from ..workloads.loader import find_kernels, load_kernel

if TYPE_CHECKING:
    from pandas import DataFrame


class Best(BestCell, Group):
    """A cell that is tied with its group's fastest cell. Its launch parameters are further keys."""


class ListedKernel(Table):
    """A kernel of the clone, or of the folder ``kernels`` in the working directory."""

    kernel: String
    dtypes: Annotated[list[String], Meaning("its element types")]
    variants: Annotated[list[String], Meaning("its variants")]
    axes: Annotated[list[String], Meaning("its launch parameters")]
    backends: Annotated[list[String], Meaning("backends that have its source")]
    title: Annotated[String, Meaning("what it is called in reports")]


class ListedDevice(Table):
    """A device that kernels can be measured on, and how to choose it."""

    device: Annotated[Int32, Meaning("its place among those of the backend, from 0")]
    backend: String
    opencl_runtime: Annotated[
        String | None, Meaning("which runtime of the backend; null if it has one")
    ]
    device_name: String
    memory_gib: Annotated[Float64, Meaning("memory of the device", "GiB")]
    driver: Annotated[String, Meaning("version of its driver")]
    device_uuid: Annotated[String, Meaning("identifier of the device that no other device has")]


def aligned(rows: DataFrame, justify: Callable[[str, int], str] = str.ljust) -> str:
    """Return a data frame as text in columns. `justify` pads a cell to the width of its column."""
    words = [[*rows], *rows.map(joined).fillna("").astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    lines = ("  ".join(map(justify, row, widths)).rstrip() for row in words)
    return "\n".join(lines)


def joined(value: Any) -> Any:
    """Return a list as one text, with blanks between its items, and any other value unchanged."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def found_kernels() -> tuple[DataFrame, list[str]]:
    """Return the kernels of the clone and of the folder ``kernels`` in the working directory.

    Returns
    -------
    tuple
        A row for each kernel, and notes: a sentence for each kernel that does not load, or on the
        searched folders if there is no kernel.

    Raises
    ------
    ConfigError
        If two kernels have the same name.
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
    if not rows:
        notes.append(
            f"There is no kernel in '{Path('kernels').resolve()}'; run this in a clone or beside "
            f"your folder 'kernels', or write a kernel by `{library} new NAME`."
        )
    return pd.DataFrame(rows), notes


def found_devices() -> tuple[DataFrame, list[str]]:
    """Return the devices of all backends that respond.

    Returns
    -------
    tuple
        A row for each device, and for each backend without a device a sentence with the reason.
    """
    import pandas as pd

    rows = []
    reasons: dict[str, list[str]] = {}
    with OwnFolder() as cache:
        for backend, runtime in ((b, r) for b in BACKENDS.values() for r in b.runtimes or (AUTO,)):
            for index in count():
                try:
                    info = probe(DeviceChoice(backend.name, index, runtime, Path(cache)))
                except NoDeviceError as err:
                    reasons.setdefault(backend.name, []).append(str(err))
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
    answering = {row["backend"] for row in rows}
    silent = [said for name, said in reasons.items() if name not in answering]
    return pd.DataFrame(rows), [sentence for said in silent for sentence in said]
