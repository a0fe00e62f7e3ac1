"""Finds and loads kernel folders, and asks a workload before a sweep: versions, cells, memory.

A kernel is one folder; nothing else names it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import re
import reprlib
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from ..core.backends import BACKENDS
from ..core.display import one_line
from ..core.dtypes import DTYPES
from ..core.errors import KernelFolderError, WorkloadError
from ..core.paths import KERNELS
from ..core.python_digest import python_digest
from ..core.schema import axis_fault
from ..core.space import (
    CACHE_STATES,
    MOST_OF_CACHE,
    TYPICAL,
    Problem,
    RelativeSize,
    ShardSpace,
    Version,
    asks_the_device,
    expand_axis,
    indexed,
)
from .combinations import Combinations, look_through
from .contract import Workload
from .unnamed import is_unnamed
from .user_code import blamed, loading
from .views import view_fault

_IMPORT = re.compile(rb"^([ \t]*)(?:from|import)[ \t]+([\w.]+)", re.MULTILINE)
# The first line may have a byte order mark.
_INCLUDE = re.compile(
    rb'^(?:\xef\xbb\xbf)?[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE
)
# A comment of C, or a text or character, in which none begins.
_C_COMMENT = re.compile(
    rb"""//(?:\\\n|[^\n])*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)

# Attributes that choose what is swept and shown, not how a cell is measured. The plan of a run
# gives each job its cells.
_SPACE = frozenset(
    {
        *("axes", "cache_states", "controls", "default_variants", "dtypes", "pattern", "sizes"),
        *("title", "variants", "views"),
    }
)


@dataclass(frozen=True)
class KernelFolder:
    """A kernel on disk with its loaded workload."""

    path: Path
    workload: Workload

    @property
    def name(self) -> str:
        """The folder's name, which is the kernel's."""
        return self.path.name

    def digest(self, source_suffix: str | None) -> str:
        """Hash over the folder's files; part of every row's provenance.

        Leaves out sources of other backends than the one that compiles ``kernel`` with the suffix
        (with None: no source), unless another file includes them. Files outside of the folder that
        its source includes count as well. Comments count for nothing;
        of Python, behaviour counts, but not the attributes that choose what is swept and shown,
        unless a method reads them.
        """
        files = {path.relative_to(self.path).as_posix(): path for path in source_files(self.path)}
        kinds = next((b.suffixes for b in BACKENDS.values() if source_suffix in b.suffixes), ("",))
        own = tuple(f"kernel{kind or '.'}" for kind in kinds)
        names = {name for name in files if name.startswith(own) or not name.startswith("kernel.")}
        sources = {name for name in names if name.startswith("kernel.")}
        while more := {i for n in names for i in included(_text(files[n])) if i in files} - sources:
            sources |= more
            names |= more
        for source in [files[name] for name in sources]:
            beside = {p.as_posix(): path for path, p in included_files(source) if is_outside(p)}
            files |= beside
            sources |= beside.keys()
            names |= beside.keys()
        # Code shared with other kernels may read those attributes.
        left_out = frozenset() if has_neighbours(files["workload.py"]) else _SPACE
        h = hashlib.sha256()
        for name in sorted(names):
            is_source = name in sources and not name.endswith((".py", ".cubin"))
            content = _content_digest(files[name], is_source, left_out)
            h.update(name.encode() + b"\0" + content)
        return h.hexdigest()[:16]


# A file with a zero among so many first bytes is no text.
_HEAD = 2**13


def _text(path: Path) -> bytes:
    """The content of a text; nothing of other files, which may be gigabytes of numbers."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        return b"" if b"\0" in head else head + file.read()


def _content_digest(path: Path, is_source: bool, left_out: frozenset[str]) -> bytes:
    """A hash of what a file says; of a `source` without its comments."""
    if path.suffix == ".py":
        return python_digest(path.read_bytes(), left_out)
    if is_source:
        code = _C_COMMENT.sub(lambda found: found["text"] or b" ", path.read_bytes())
        lines = filter(None, map(bytes.strip, code.splitlines()))
        return hashlib.sha256(b"\n".join(lines)).digest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def source_files(folder: Path) -> Iterator[Path]:
    """All files below `folder` but hidden ones, caches, Markdown, and arrays of a running call."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_apart = any(p.startswith(".") or p == "__pycache__" for p in parts) or is_unnamed(path)
        if not is_apart and path.suffix != ".md" and path.is_file():
            yield path


def has_neighbours(workload: Path) -> bool:
    """Whether a workload.py imports from a folder beside its own, or from its own."""
    folders = workload.parent.parent, workload.parent
    names = [name for _, name in _IMPORT.findall(workload.read_bytes())]
    return any(_lies_in(folder, name.decode()) for folder in folders for name in names)


def _lies_in(folder: Path, module: str) -> bool:
    top = module.split(".")[0]
    return bool(top) and ((folder / top).exists() or (folder / f"{top}.py").exists())


def shared_code(folder: Path, elsewhere: Iterable[Path] = ()) -> dict[str, bytes]:
    """The modules beside a kernel's folder that it imports, or that these do: files by place.

    The modules may also be in one of the folders `elsewhere`.
    """
    places = dict.fromkeys([folder.parent, *elsewhere])
    own = folder / "workload.py"
    # A recorded kernel may be gone.
    files = dict[str, bytes]()
    seen = set[str]()
    left = [own.read_bytes()] if own.is_file() else []
    while left:
        tops = (
            {name.decode().split(".")[0] for _, name in _IMPORT.findall(left.pop())} - seen - {""}
        )
        names = [file for top in tops for file in (f"{top}.py", top)]
        for place, name in itertools.product(places, names):
            path = place / name
            found = [path] if path.is_file() else source_files(path)
            texts = {f.relative_to(place).as_posix(): f.read_bytes() for f in found}
            files |= texts
            left += texts.values()
        seen |= tops
    return files


def late_imports(folder: Path) -> list[str]:
    """The files of a kernel, and of what it shares, that import the latter within a function."""
    files = {"workload.py": (folder / "workload.py").read_bytes(), **shared_code(folder)}
    return [
        file
        for file, text in files.items()
        for indent, name in _IMPORT.findall(text)
        if indent and (name.startswith(b".") or _lies_in(folder.parent, name.decode()))
    ]


def far_import(folder: Path, root: Path) -> str | None:
    """What a kernel imports of its checkout `root` that lies elsewhere than beside it."""
    above = [p for p in folder.parents[1:] if p.is_relative_to(root)] + [root / "src"]
    for _, name in _IMPORT.findall((folder / "workload.py").read_bytes()):
        top = str(name.decode()).split(".")[0]
        files = [p / file for p in above for file in (f"{top}.py", f"{top}/__init__.py")]
        near = _lies_in(folder.parent, top) or _lies_in(folder, top)
        if top and not near and any(map(Path.is_file, files)):
            return top
    return None


def included(source: bytes) -> Iterator[str]:
    """Names of the files that a source includes, relative to its own folder."""
    return (name.decode(errors="replace") for name in _INCLUDE.findall(source))


def included_files(source: Path) -> list[tuple[Path, Path]]:
    """The files that a source includes by a path from its folder on, or that these include.

    Each with its place, from the folder on: ``../common.h`` is beside the folder.
    """
    folder = Path(os.path.abspath(source.parent))
    found = set[Path]()
    left = {source}
    while left:
        names = ((p, name) for p in left for name in included(p.read_bytes()) if name[0] != "/")
        # A link keeps its name, by which it is included.
        own = {Path(os.path.abspath(p.parent / name)) for p, name in names}
        left = {p for p in own if p.is_file()} - found
        found |= left
    return [(path, Path(os.path.relpath(path, folder))) for path in sorted(found)]


def is_outside(place: Path) -> bool:
    """Whether a place that `included_files` gives is not below the folder."""
    return place.parts[0] == os.pardir


def room_for(root: Path, folder: Path, places: Iterable[Path]) -> Path:
    """The folder in `root` for a copy of the kernel's `folder`, whose files have these `places`.

    It is as deep as the farthest of them is outside of the kernel's folder, so that all are in
    `root`.
    """
    above = max((place.parts.count(os.pardir) for place in places), default=0)
    return root.joinpath(*folder.parts[-above:-1]) if above > 1 else root


def copy_folder(folder: Path, root: Path) -> Path:
    """Copy a kernel's folder into `root`, with headers from outside of it; its new path."""
    found = {place: path for s in folder.glob("kernel.*") for path, place in included_files(s)}
    outside = {place: path for place, path in found.items() if is_outside(place)}
    copied = room_for(root, folder, outside) / folder.name
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns("__pycache__"))
    copy_files(outside, copied)
    return copied


def copy_files(files: Mapping[Path, Path], folder: Path) -> None:
    """Copy files, by their places from a kernel's `folder` on."""
    for place, path in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / place)


def find_kernels(folders: Iterable[Path]) -> dict[str, Path]:
    """Kernel folders by name; a kernel folder holds ``workload.py``."""
    return find_folders("kernel", "workload.py", folders, KernelFolderError)


def find_folders(
    what: str, file: str, folders: Iterable[Path], error: type[ValueError]
) -> dict[str, Path]:
    """What is in `folders`, kernels or chapters, by name: each holds `file`. Raises `error`."""
    found: dict[str, Path] = {}
    # Each once, whatever links and dots lead to it.
    for folder in {os.path.realpath(folder): folder for folder in folders}.values():
        if not is_folder(folder):
            raise error(f"{what}_folders: '{folder}' is not a folder.")
        if (folder / file).is_file():
            raise error(
                f"{what}_folders: '{folder}' is a {what}'s own folder; name the one that it is "
                f"in, '{folder.parent}'."
            )
        for path in sorted(p.parent for p in folder.glob(f"*/{file}")):
            if path.name in found:
                raise error(
                    f"{what}_folders: {what} '{path.name}' exists twice, in "
                    f"'{found[path.name].parent}' and '{folder}'; rename one."
                )
            found[path.name] = path
    return found


def is_folder(path: Path) -> bool:
    """Whether `path` is a readable folder."""
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, a parent that may not be read
        return False


class _FreshLoader(SourceFileLoader):
    """Compiles a file again: kept byte code has the same second and size after a quick edit."""

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        """Fail, so that Python reads the source: it would trust the time in the byte code."""
        raise OSError


def load_kernel(path: Path) -> KernelFolder:
    """Load ``workload.py`` of a kernel folder. Raises KernelFolderError if it does not fit."""
    _lend(path)
    name = f"gpushmoo_kernel_{path.name}"
    file = path / "workload.py"
    loader = _FreshLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None or spec.loader is None:
        raise KernelFolderError(f"Kernel folder '{path}' holds no workload.py.")
    module = importlib.util.module_from_spec(spec)
    # A data class with postponed annotations looks its module up there.
    sys.modules[spec.name] = module
    try:
        with loading(path):
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        del sys.modules[spec.name]
        where = blamed(path / "workload.py", "it", err)
        raise KernelFolderError(
            f"Kernel '{path.name}': workload.py does not load ({where})."
        ) from err
    workload = _workload_of(module, path.name)
    fault = declared_fault(workload)
    if fault is not None:
        raise KernelFolderError(f"Kernel '{path.name}': its {fault}.")
    return KernelFolder(path, workload)


# Folders whose kernels were loaded, and the project's own, which may be on the path from the start.
_LENT = [str(KERNELS)]


def _lend(kernel: Path) -> None:
    """Let imports find what is beside a kernel, not what another checkout calls the same."""
    own, shared = str(kernel.parent), shared_code(kernel)
    others = [place for place in _LENT if place != own]
    tops = {name.split("/")[0].removesuffix(".py") for name in shared}
    called_so = [name for name in sys.modules if name.split(".")[0] in tops]
    for place in map(Path, others):
        same = ((place / n).is_file() and (place / n).read_bytes() == shared[n] for n in shared)
        if all(same):
            continue
        for name in called_so:
            file = str(getattr(sys.modules.get(name), "__file__", None) or "")
            if file.startswith(f"{place}{os.sep}"):
                del sys.modules[name]
    first = min((i for i, p in enumerate(sys.path) if p in others), default=len(sys.path))
    if own not in sys.path[:first]:
        sys.path[:] = [p for p in sys.path if p != own]
        sys.path.insert(first, own)
    _LENT[:] = [own, *others]


def _workload_of(module: ModuleType, folder: str) -> Workload:
    """The WORKLOAD of a loaded ``workload.py``. Raises KernelFolderError where it is not one."""
    workload = getattr(module, "WORKLOAD", None)
    if not isinstance(workload, Workload):
        classes = ((n, v) for n, v in vars(module).items() if isinstance(v, type))
        own = (n for n, v in classes if issubclass(v, Workload) and v.__module__ == module.__name__)
        line = f"WORKLOAD = {next(own, 'TheClass')}()"
        said = "no WORKLOAD" if workload is None else f"WORKLOAD as {one_line(repr(workload), 60)}"
        if isinstance(workload, type):
            said = f"WORKLOAD as the class {workload.__name__}, not as an instance of it"
        raise KernelFolderError(
            f"Kernel '{folder}': workload.py defines {said}; end it by the line: {line}."
        )
    # Of a copied folder, too, which is another kernel.
    object.__setattr__(workload, "name", folder)
    if not re.fullmatch("[A-Za-z0-9_]+", folder):
        raise KernelFolderError(
            f"Kernel '{folder}': its name must consist of letters, digits and '_'."
        )
    return workload


_NEEDED = ("name", "title", "pattern", "dtypes", "variants", "axes")
_FILLED = frozenset({"dtypes", "variants", "sizes", "cache_states"})


def declared_fault(workload: Workload) -> str | None:
    """The fault of a workload's attributes, as a clause after ``its``; None without one."""
    missing = next((name for name in _NEEDED if not hasattr(workload, name)), None)
    if missing is not None:
        return f"WORKLOAD does not define '{missing}'"
    if not isinstance(workload.axes, Mapping):
        return f"axes are {_show(workload.axes)}; give each its values, as {{'block_x': [8, 16]}}"
    checks = (_names_fault, _axes_fault, _sizes_fault, _views_fault)
    return next(filter(None, (check(workload) for check in checks)), None)


def _axes_fault(workload: Workload) -> str | None:
    least = {axis: 0 if axis in workload.zero_axes else 1 for axis in workload.axes}
    faults = (_values_fault(axis, spec, least[axis]) for axis, spec in workload.axes.items())
    return axis_fault(workload.axes) or next(filter(None, faults), None)


def _values_fault(axis: str, spec: Any, least: int) -> str | None:
    parts = spec if isinstance(spec, list) else [spec]
    if not parts:
        return f"axis '{axis}' has no values"
    for part in parts:
        if _asks_the_device(part):
            continue
        values: dict[str, Any] = part if isinstance(part, dict) else {"from": part, "to": part}
        first, last, step = values.get("from"), values.get("to"), values.get("step", 1)
        known = {*values} <= {"from", "to", "step"}
        if not (known and _is_whole(first) and _is_whole(last) and _is_whole(step)):
            return (
                f"axis '{axis}' holds {_show(part)}; write whole numbers as [8, 16], a range as "
                "{'from': 8, 'to': 64, 'step': 8}, or {'to_resident': 2.0, 'points': 40}"
            )
        if first < least or last < first or step < 1:
            return f"axis '{axis}' holds {_show(part)}; a value must be at least {least}" + (
                ", 'to' at least 'from', and 'step' at least 1" if values is part else ""
            )
    return None


def _asks_the_device(part: Any) -> bool:
    if not isinstance(part, Mapping) or {*part} != {"to_resident", "points"}:
        return False
    waves, points = part["to_resident"], part["points"]
    return isinstance(waves, int | float) and 0 < waves <= 16 and _is_whole(points) and points > 0


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _show(value: Any) -> str:
    return one_line(reprlib.repr(value), 80)


def _names_fault(workload: Workload) -> str | None:
    """The fault of the attributes that hold names."""
    axes, variants = workload.axes, workload.variants
    known: dict[str, Collection[str] | None] = {
        "dtypes": DTYPES,
        **dict.fromkeys(("variants", "images", "options")),
        **dict.fromkeys(("default_variants", "controls"), variants),
        "cache_states": CACHE_STATES,
        **dict.fromkeys(("compile_axes", "zero_axes", "most"), axes),
    }
    for name, allowed in known.items():
        values = getattr(workload, name)
        fault = _several(name, values) or _unknown(f"{name} name", values, allowed)
        if fault is not None:
            return fault
    if not isinstance(workload.work_unit, str) or not workload.work_unit.isprintable():
        return f"work_unit is {_show(workload.work_unit)}, not a text such as 'FLOP'"
    for name, allowed in (("persistent_axis", axes), ("peak", ("load", "store", "work"))):
        value = getattr(workload, name)
        if value is not None and value not in [*allowed]:
            return _unknown(f"{name} is", [value], allowed)
    return None


def _several(name: str, values: Any) -> str | None:
    """The fault of `values` as a collection."""
    if isinstance(values, str | int | float):
        shown = _show(values)
        return f"{name} are {shown}, a single value; write ({shown},), with the comma"
    if not isinstance(values, Sequence | Mapping | frozenset | set):
        return f"{name} are {_show(values)}, not several values; write them as (…, …)"
    if not values and name in _FILLED:
        return f"{name} are empty; at least one is needed"
    return None


def _unknown(what: str, values: Iterable[Any], allowed: Collection[str] | None) -> str | None:
    seen = set()
    for value in values:
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            names = "texts" if allowed is None else ", ".join(allowed)
            return f"{what} {_show(value)}; allowed: {names}"
        if value in seen:
            return f"{what} '{value}' twice"
        seen.add(value)
    return None


def _sizes_fault(workload: Workload) -> str | None:
    fault = _several("sizes", workload.sizes)
    for size in () if fault else workload.sizes:
        if isinstance(size, Mapping) and _is_relative(size):
            continue
        sides = size if isinstance(size, list | tuple) and len(size) == 2 else [size]
        if not all(map(_is_whole, sides)):
            return (
                f"sizes hold {_show(size)}; a size is a whole number, or (height, width), or "
                "{'of_cache': 4}"
            )
    return fault


def _is_relative(size: Mapping[str, Any]) -> bool:
    factor, on_cpu = size.get("of_cache"), size.get("on_cpu", 1)
    is_factor = isinstance(factor, int | float) and 0 < factor <= MOST_OF_CACHE
    return {*size} <= {"of_cache", "on_cpu"} and is_factor and _is_whole(on_cpu)


def _views_fault(workload: Workload) -> str | None:
    try:
        return view_fault(workload.views, workload.axes)
    except WorkloadError as err:
        return f"views cannot be used: {err}"


# Before a sweep

_USUAL_SIDE = 1024


def versions_of(
    workload: Workload, space: ShardSpace, found: Combinations | None = None
) -> list[Version]:
    """The versions for the cells of `space`, in a fixed order; asks no device.

    For a kernel with compile-time axes only versions with a valid cell, unless a size or the values
    of another axis depend on the device. `found` are the combinations of the space, if they were
    looked through before.
    """
    values = [expand_axis(space.axes[axis], TYPICAL) for axis in workload.compile_axes]
    # A job compiles by itself if a size that depends on the device turns out larger than these.
    sizes = [
        workload.problem(_USUAL_SIDE) if isinstance(size, RelativeSize) else size
        for size in space.sizes
    ]
    widths = sorted({workload.index_bits(problem) for problem in sizes})
    if workload.compile_axes and workload.is_restricted and not depends_on_the_device(space):
        found = found or look_through(workload, space, values_of(space))
        # As in the product below.
        order = {variant: place for place, variant in enumerate(space.variants)}
        return sorted(found.versions, key=lambda v: (order[v.variant], v.values))
    return [
        indexed(Version(variant, tuple(zip(workload.compile_axes, point, strict=True))), bits)
        for variant in space.variants
        for point in itertools.product(*values)
        for bits in widths
    ]


def values_of(space: ShardSpace) -> dict[str, list[int]]:
    """The values of each axis, as if the device were a typical one."""
    return {axis: expand_axis(spec, TYPICAL) for axis, spec in space.axes.items()}


def depends_on_the_device(space: ShardSpace) -> bool:
    """Whether the device decides which cells there are."""
    return space.asks_for_sizes or any(map(asks_the_device, space.axes.values()))


def refusal(workload: Workload, space: ShardSpace) -> str | None:
    """Why a kernel's `valid` refuses all cells, as a clause; None if it does not, or may not."""
    if depends_on_the_device(space) or not workload.is_restricted:
        return None
    found = look_through(workload, space, values_of(space), until_valid=True)
    return found.fault(workload.valid_is)


def misfit(
    workload: Workload, problem: Problem, dtype: str, memory: int, allocation: int
) -> str | None:
    """Why a verified run does not fit a device, a clause after the kernel's name; or None."""
    need = workload.footprint(problem, dtype)
    largest = workload.largest_buffer(problem, dtype)
    what = f"{problem.height} x {problem.width} {dtype} needs"
    if need > memory:
        return f"{what} {need / 2**30:,.2f} GiB, the device holds {memory / 2**30:,.2f} GiB"
    if largest > allocation:
        return (
            f"{what} a buffer of {largest / 2**30:,.2f} GiB, the device allows "
            f"{allocation / 2**30:,.2f} GiB in one buffer"
        )
    return None
