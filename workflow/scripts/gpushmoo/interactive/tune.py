"""Measure a kernel that one call describes: its source, arguments, size and axes."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.backends import AUTO
from ..core.dtypes import dtype_name
from ..core.errors import ConfigError, raises_at_caller
from ..core.numbers import plain
from ..core.schema import Status
from ..core.space import BLOCK_AXES
from ..planning.refusal import refuse_unknown
from ..storage.room import output_folder
from ..storage.temporary import OwnFolder
from ..workloads.call import ArrayArgument, Call, CallWorkload, called, size_values
from ..workloads.loader import copy_files, copy_folder, included_files, room_for
from ..workloads.unnamed import UnnamedFile
from .arguments import Request, argument_names, refuse_no_flag
from .described_call import described
from .measure import Sweep, empty_folder, measured
from .tune_arguments import (
    argument_of,
    bounds_of,
    constants_of,
    expected_outputs,
    limits_of,
    named_arguments,
    names_of,
    options_of,
    refuse_other_types,
    same_bytes,
    shared_place,
    shown,
    whole_size,
)
from .tune_axes import defined_axes, labelled, placed_axes, refuse_parameters, with_unseen
from .tune_bandwidth import unreachable
from .tune_options import FORMER, Build, Check, LaunchConfig, gathered
from .tune_source import read_source


@raises_at_caller
def tune(
    source: str | os.PathLike[str],
    name: str,
    arguments: Sequence[Any] | Mapping[str, Any],
    size: int | Sequence[int],
    axes: Mapping[str, Any],
    *,
    launch: LaunchConfig | None = None,
    check: Check | None = None,
    build: Build | None = None,
    **sweep: Any,
) -> Tuned:
    """Measure a kernel for every combination of its axes, verify each, and find the fastest.

    Parameters
    ----------
    source : str or path
        The kernel's source as text, or the path of its file. The suffix determines the language.
    name : str
        Name of the kernel function. ``sum<float, BLOCK>`` is an instance of a template.
    arguments : sequence or mapping
        Arguments in the kernel's order: arrays (NumPy, CuPy, or any object with ``get`` or
        ``numpy``), NumPy scalars as wide as the parameters, and ``SharedMemory(bytes)`` for an
        OpenCL parameter in local memory. A mapping also gives names. gpushmoo compares the types
        with those that the source declares, and refuses an argument that the kernel would read as
        another type.
    size : int or tuple
        Problem size, as the shape of an array: ``n``, ``(height, width)``, or three numbers.
    axes : mapping
        Values of each parameter: numbers or texts. Names that the source uses become macros, except
        template parameters and constants of Triton. An axis that nothing uses is refused.
    launch : LaunchConfig
        Grid, block and shared memory of a combination, and the bytes that it moves.
    check : Check
        Expected outputs and tolerances. Without it, outputs are not compared.
    build : Build
        Options of the compiler, and constant memory.
    **sweep
        ``backend``, ``device``, ``repeats``, ``budget``, ``progress`` and others, as in `sweep`.
        Fields of the objects above are former keywords, which the next version refuses.

    Returns
    -------
    Tuned
        A Sweep with `winner`, a dictionary. `best` and `cells` have the values of the axes, and
        `cells` has a column `tied` that is true for cells tied with the fastest.

    Raises
    ------
    ConfigError
        If an argument is wrong. It is a ValueError.
    DeviceError
        If no device can be used.
    """
    launch, check, build = gathered({"launch": launch, "check": check, "build": build}, sweep)
    own = [*inspect.signature(tune).parameters, *FORMER, "progress", *argument_names()]
    progress = sweep.pop("progress", True)
    refuse_unknown("tune", sweep, [n for n in own if n not in _OF_FOLDERS])
    refuse_no_flag(restore_in_place=check.restore_in_place, progress=progress)
    if check.function is not None and not callable(check.function):
        problem = f"it is {shown(check.function)}; it must be a function of all arguments"
        raise ConfigError(f"check: {problem}.")
    if not isinstance(launch.work_unit, str) or not launch.work_unit.strip():
        problem = f"it is {launch.work_unit!r}; it must be a text, such as 'FLOP'"
        raise ConfigError(f"work_unit: {problem}.")
    backend = sweep.pop("backend", AUTO)
    kernel_source = read_source(name, source, backend)
    kernel_source.refuse_absent()
    given, parameters = named_arguments(arguments, kernel_source, launch.shared or 0)
    expected = expected_outputs(check.expect, given, parameters)
    roles = _roles(given, parameters, expected, check)
    refuse_other_types(given, parameters, kernel_source, roles.is_read.__contains__)
    limits = limits_of(expected, check.ulp, check.rtol, check.atol)
    sides, words = whole_size(size), options_of(build.options)
    placed, labels = placed_axes(axes, size_values(sides))
    texts = [name, *words, *(str(value) for values in labels.values() for value in values)]
    compiled_for, macros = defined_axes(kernel_source, axes, texts)
    refuse_parameters(macros, parameters)
    call = Call(
        name,
        tuple(
            argument_of(key, value, expected, roles.reads, roles.free, limits)
            for key, value in given.items()
        ),
        sides,
        labels,
        compiled_for,
        launch.block,
        launch.grid,
        _listed(launch.valid),
        0 if launch.shared is None else launch.shared,
        launch.work,
        launch.bytes_moved,
        bool(check.restore_in_place),
        words,
        check.function,
        constants_of(build.constants),
        tuple(axis for axis in compiled_for if axis not in macros),
        shared_place(kernel_source, given.values(), launch.shared or 0),
    )
    if fault := call.fault({a: labels.get(a, values)[0] for a, values in placed.items()}):
        raise ConfigError(fault)
    if launch.block is None and not kernel_source.is_python and not {*BLOCK_AXES} & {*axes}:
        raise ConfigError("block: it is not given, nor is an axis block_x, block_y or block_z.")
    call = with_unseen(call, placed, kernel_source)
    dtype = _main_dtype(roles.arrays, expected)
    kernel = re.sub(r"\W+", "_", name).strip("_")[:64]
    workload = called(kernel, call, placed, dtype, launch.work_unit)
    contents = {key: roles.arrays[key] for key in roles.is_read}
    kept: list[UnnamedFile] = []

    def folder(values: Mapping[str, Any], work: Path, log_file: Path) -> Path:
        from .in_memory import write_folder

        parent = work / "kernels"
        found = dict[Path, Path]()
        file = kernel_source.file
        if file is not None:
            found = {place: path for path, place in included_files(file)}
            parent = room_for(parent, file.parent, found)
        texts = {kernel_source.suffix: kernel_source.data}
        made = write_folder(workload, texts, parent, workload.functions)
        held = {"arrays": contents, "expected": expected, "bounds": bounds_of(limits)}
        kept.extend(workload.save(made, {kind: some for kind, some in held.items() if some}))
        copy_files(found, made)
        return made

    asked = {"repeats": None, "budget": None, **sweep, "backend": kernel_source.backend}
    if progress and not expected and check.function is None:
        print(f"{kernel}: no result is compared, since `expect` is not given", file=sys.stderr)
    try:
        return Tuned(*measured(folder, asked, bool(progress)), labels, kept).warned()
    except BaseException:
        # A traceback that somebody keeps would keep the memory.
        for file in kept:
            file.close()
        raise


def _listed(valid: Any) -> Sequence[Any]:
    """Return the conditions of a combination as a sequence, which may be empty."""
    if valid is None:
        return ()
    return valid if isinstance(valid, list | tuple) else [valid]


@dataclass(frozen=True)
class _Roles:
    """Arrays of a call by name, and the names of the arrays in each role.

    Launches read the content of `reads` in place. They may write `free`, which is not compared.
    """

    arrays: dict[str, np.ndarray[Any, Any]]
    expected: Mapping[str, Any]
    reads: set[str]
    free: set[str]

    @property
    def is_read(self) -> list[str]:
        """Names of arrays whose content the kernel may read, in the caller's order."""
        return [key for key in self.arrays if key not in self.expected or key in self.reads]


def _roles(
    given: Mapping[str, Any],
    parameters: Mapping[str, Any],
    expected: Mapping[str, Any],
    check: Check,
) -> _Roles:
    """Return the role of each array, or raise ConfigError if a role does not fit an argument."""
    names = list(given)
    arrays = {key: value for key, value in given.items() if isinstance(value, np.ndarray)}
    reads = names_of("in_place", check.in_place, names)
    unchecked = check.unchecked
    if unchecked == "not const" or (unchecked is None and not expected):
        unchecked = [k for k in arrays if not (k in parameters and parameters[k].is_const)]
    free = names_of("unchecked", unchecked, names).difference(expected)
    for key in (*expected, *reads, *free):
        if key not in arrays:
            what = "expect, in_place, unchecked"
            raise ConfigError(f"{what}: '{key}' is not an array among the arguments.")
        if key in reads and key in expected and same_bytes(arrays[key], expected[key]):
            does = "already holds what is expected; a kernel that does nothing would pass"
            raise ConfigError(f"expect: '{key}' {does}.")
    return _Roles(arrays, expected, reads, free)


def _main_dtype(arrays: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the type name of the first output, or of the first array without outputs."""
    main = next(iter(expected or arrays), None)
    if main is None:
        return "float"
    dtype = dtype_name(arrays[main].dtype)
    if dtype is None:
        raise ConfigError(
            f"arguments: '{main}' is of type {arrays[main].dtype}, which no kernel has."
        )
    return dtype


# Arguments of `sweep` that are about a folder with several kernels.
_OF_FOLDERS = ("dtypes", "sizes", "variants")


class Tuned(Sweep):
    """A finished `tune`: a Sweep whose axes have the values that the caller gave.

    Parameters
    ----------
    request, place
        The measured sweep and its temporary folder, see `Sweep`.
    labels
        Values of axes that were swept by index, because they are not whole numbers.
    kept
        Files that contain the arrays. They exist as long as this object.
    """

    def __init__(
        self,
        request: Request,
        place: OwnFolder,
        labels: Mapping[str, Sequence[Any]],
        kept: Sequence[UnnamedFile] = (),
    ) -> None:
        """Read the data set, and replace indices by the values of their axes."""
        super().__init__(request, place)
        self._kept = kept
        self.cells["tied"] = self.cells["cell_key"].isin(self.best["cell_key"])
        self.best = labelled(self.best, labels)
        self.choices = labelled(self.choices, labels)
        self.cells = labelled(self.cells, labels)

    @property
    def winner(self) -> dict[str, Any]:
        """Values of the recommended combination by axis. Raises ConfigError if none worked."""
        if self.choices.empty:
            raise ConfigError(f"winner: no combination worked ({self.fault}).")
        return {axis: plain(self.choices[axis].iloc[0]) for axis in self._axes}

    def _remarks(self) -> list[str]:
        """Return also remarks on combinations that were not launched and on impossible bytes."""
        found = super()._remarks()
        failed = self.cells[self.cells["status"] == Status.WORKLOAD_FAILED]
        if not found and not failed.empty:
            n = f"{len(failed)} of {len(self.cells)}"
            said = failed["message"].iloc[0]
            found.append(f"{self.name}: {n} combinations were not launched, the first: {said}")
        rates = self.cells["bandwidth_gbs"].dropna()
        if not rates.empty:
            given = [a for a in self._call.arguments if isinstance(a, ArrayArgument)]
            copied = next((a.nbytes for a in given if a.limit is not None), 0)
            cell = self.cells.loc[rates.idxmax()]
            device = self.provenance[0]["device"]
            said = unreachable(cell, device, sum(a.nbytes for a in given), copied)
            found += filter(None, [said])
        return found

    @property
    def _call(self) -> Call:
        workload = self._swept.folder.workload
        assert isinstance(workload, CallWorkload)
        return workload.call

    def __repr__(self) -> str:
        """Return the text of a sweep with the recommended combination."""
        text = super().__repr__()
        if not self.choices.empty:
            used = ", ".join(f"{axis}={value}" for axis, value in self.winner.items())
            text = f"{text[:-1]}; use {used}>"
        untold = Status.OK in self.statuses and self.cells["bandwidth_gbs"].isna().all()
        return f"{text[:-1]}; no GB/s, since `bytes_moved` is not given>" if untold else text

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the arrays, the temporary folder and the kernel's classes."""
        return {**super().__getstate__(), "_kept": ()}

    @raises_at_caller
    def to_folder(self, folder: str | Path) -> Path:
        """Write the kernel as a kernel folder, which a configuration can name.

        The file ``workload.pickle`` in it requires this version of gpushmoo. ``README.md`` in it
        describes the content.

        Parameters
        ----------
        folder
            Folder that is empty or does not exist. It gets the kernel's folder.

        Returns
        -------
        Path
            The kernel's folder.

        Raises
        ------
        ConfigError
            If the folder is not empty, if it cannot be written, or if the result was pickled.
        """
        workload = self._swept.folder.workload
        assert isinstance(workload, CallWorkload)
        page = described(workload.call, self._swept.axes)
        out = empty_folder(folder)
        with output_folder(out, ConfigError) as fresh:
            copied = copy_folder(self._swept.folder.path, fresh)
            (copied / "README.md").write_text(page, encoding="utf-8")
        return out / copied.relative_to(fresh)
