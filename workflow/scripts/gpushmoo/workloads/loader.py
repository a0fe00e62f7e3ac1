"""Find and load kernel folders, and query a workload before a sweep: versions, cells, memory.

A kernel is one folder; nothing else lists it.
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
    MAX_OF_CACHE,
    TYPICAL,
    Problem,
    RelativeSize,
    ShardSpace,
    Version,
    expand_axis,
    indexed,
    needs_device,
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
# Matches a comment in C, or a string or character, in which no comment begins.
_C_COMMENT = re.compile(
    rb"""//(?:\\\n|[^\n])*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)

# Attributes that choose the swept cells and figures, but do not affect how a cell is measured. The
# plan of a run gives each job its cells.
_SPACE = frozenset(
    {
        "axes",
        "cache_states",
        "controls",
        "default_variants",
        "dtypes",
        "pattern",
        "sizes",
        "title",
        "variants",
        "views",
    }
)


@dataclass(frozen=True)
class KernelFolder:
    """Kernel on disk with its loaded workload."""

    path: Path
    workload: Workload

    @property
    def name(self) -> str:
        """Name of the folder and of the kernel."""
        return self.path.name

    def digest(self, source_suffix: str | None) -> str:
        """Return the hash over the folder's files, a part of every row's provenance.

        It covers files outside the folder that the source includes. It ignores comments, and
        sources of other backends than the one that compiles ``kernel`` with the suffix
        `source_suffix` (None: all sources), unless another file includes them. For Python, it
        covers behavior, but not the attributes that choose the swept cells and figures, unless a
        method reads them.
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


# A file with a zero in its first bytes, up to this number, does not count as text.
_HEAD = 2**13


def _text(path: Path) -> bytes:
    """Return the content of a text, and nothing for other files, which may be gigabytes."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        return b"" if b"\0" in head else head + file.read()


def _content_digest(path: Path, is_source: bool, left_out: frozenset[str]) -> bytes:
    """Return a hash of a file's content; for a source, without comments."""
    if path.suffix == ".py":
        return python_digest(path.read_bytes(), left_out)
    if is_source:
        code = _C_COMMENT.sub(lambda found: found["text"] or b" ", path.read_bytes())
        lines = filter(None, map(bytes.strip, code.splitlines()))
        return hashlib.sha256(b"\n".join(lines)).digest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def source_files(folder: Path) -> Iterator[Path]:
    """Yield files below `folder`, except hidden ones, caches, Markdown, and arrays of a call."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_apart = any(p.startswith(".") or p == "__pycache__" for p in parts) or is_unnamed(path)
        if not is_apart and path.suffix != ".md" and path.is_file():
            yield path


def has_neighbours(workload: Path) -> bool:
    """Return whether a workload.py imports from its own folder, or from one beside it."""
    folders = workload.parent.parent, workload.parent
    names = [name for _, name in _IMPORT.findall(workload.read_bytes())]
    return any(_lies_in(folder, name.decode()) for folder in folders for name in names)


def _lies_in(folder: Path, module: str) -> bool:
    top = module.split(".")[0]
    return bool(top) and ((folder / top).exists() or (folder / f"{top}.py").exists())


def shared_code(folder: Path, elsewhere: Iterable[Path] = ()) -> dict[str, bytes]:
    """Return the modules beside a kernel's folder that it imports, directly or not, by path.

    The modules may also be in one of the folders `elsewhere`.
    """
    places = dict.fromkeys([folder.parent, *elsewhere])
    own = folder / "workload.py"
    # The folder of a recorded kernel may no longer exist.
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


# Files that a rule consists of, and not arrays, which may be gigabytes.
_OF_RULES = (".py", ".pickle")


def have_same_rule(a: Path, b: Path) -> bool:
    """Return whether two kernels have the same rule of which combinations are valid.

    They do if Python files and pickles, except sources (``kernel.*``), differ only in comments.
    """
    if a == b:
        return True
    digests = [
        {
            path.relative_to(folder): _content_digest(path, False, frozenset())
            for path in source_files(folder)
            if path.suffix in _OF_RULES and not path.name.startswith("kernel.")
        }
        for folder in (a, b)
    ]
    return digests[0] == digests[1] and shared_code(a) == shared_code(b)


def late_imports(folder: Path) -> list[str]:
    """Return files of a kernel, and of its shared code, that import the latter in a function."""
    files = {"workload.py": (folder / "workload.py").read_bytes(), **shared_code(folder)}
    return [
        file
        for file, text in files.items()
        for indent, name in _IMPORT.findall(text)
        if indent and (name.startswith(b".") or _lies_in(folder.parent, name.decode()))
    ]


def far_import(folder: Path, root: Path) -> str | None:
    """Return an import of a kernel from its checkout `root`, but not from beside it, or None."""
    above = [p for p in folder.parents[1:] if p.is_relative_to(root)] + [root / "src"]
    for _, name in _IMPORT.findall((folder / "workload.py").read_bytes()):
        top = str(name.decode()).split(".")[0]
        files = [p / file for p in above for file in (f"{top}.py", f"{top}/__init__.py")]
        near = _lies_in(folder.parent, top) or _lies_in(folder, top)
        if top and not near and any(map(Path.is_file, files)):
            return top
    return None


def included(source: bytes) -> Iterator[str]:
    """Yield the names of the files that a source includes, relative to its folder."""
    return (name.decode(errors="replace") for name in _INCLUDE.findall(source))


def included_files(source: Path) -> list[tuple[Path, Path]]:
    """Return the files that a source includes relative to its folder, directly or not.

    Each has its place, relative to the folder: ``../common.h`` is beside the folder.
    """
    folder = Path(os.path.abspath(source.parent))
    found = set[Path]()
    left = {source}
    while left:
        names = ((p, name) for p in left for name in included(p.read_bytes()) if name[0] != "/")
        # A link keeps the name by which it is included.
        own = {Path(os.path.abspath(p.parent / name)) for p, name in names}
        left = {p for p in own if p.is_file()} - found
        found |= left
    return [(path, Path(os.path.relpath(path, folder))) for path in sorted(found)]


def is_outside(place: Path) -> bool:
    """Return whether a place from `included_files` is outside the folder."""
    return place.parts[0] == os.pardir


def room_for(root: Path, folder: Path, places: Iterable[Path]) -> Path:
    """Return the folder in `root` for a copy of the kernel's `folder` and files at `places`.

    It is as deep as the farthest of the files is outside the kernel's folder, so that all are in
    `root`.
    """
    above = max((place.parts.count(os.pardir) for place in places), default=0)
    return root.joinpath(*folder.parts[-above:-1]) if above > 1 else root


def copy_folder(folder: Path, root: Path) -> Path:
    """Copy a kernel's folder into `root`, with headers from outside it; return its new path."""
    found = {place: path for s in folder.glob("kernel.*") for path, place in included_files(s)}
    outside = {place: path for place, path in found.items() if is_outside(place)}
    copied = room_for(root, folder, outside) / folder.name
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns("__pycache__"))
    copy_files(outside, copied)
    return copied


def copy_files(files: Mapping[Path, Path], folder: Path) -> None:
    """Copy files to their places relative to a kernel's `folder`."""
    for place, path in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / place)


def find_kernels(folders: Iterable[Path]) -> dict[str, Path]:
    """Return kernel folders by name; a kernel folder contains ``workload.py``."""
    return find_folders("kernel", "workload.py", folders, KernelFolderError)


def find_folders(
    what: str, file: str, folders: Iterable[Path], error: type[ValueError]
) -> dict[str, Path]:
    """Return the kernels or chapters (`what`) in `folders` by name: each contains `file`.

    Parameters
    ----------
    what
        Kind of folder, for the key in messages: ``kernel`` or ``chapter``.
    file
        Name of the file that such a folder contains.
    folders
        Folders to search.
    error
        Type of exception to raise for a folder that is missing, or a name that exists twice.
    """
    found: dict[str, Path] = {}
    # Each folder counts once, even if links or dots lead to it.
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
    """Return whether `path` is a readable folder."""
    try:
        return path.is_dir()
    except OSError:  # The name is too long, or a parent is not readable.
        return False


class _FreshLoader(SourceFileLoader):
    """Loader that always compiles: after a quick edit, byte code has the same second and size."""

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        """Fail, so that Python reads the source instead of trusting the time in the byte code."""
        raise OSError


def load_kernel(path: Path) -> KernelFolder:
    """Load ``workload.py`` of a kernel folder; raise KernelFolderError if it is not valid."""
    _lend(path)
    name = f"gpushmoo_kernel_{path.name}"
    file = path / "workload.py"
    loader = _FreshLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None or spec.loader is None:
        raise KernelFolderError(f"Kernel folder '{path}' contains no workload.py.")
    module = importlib.util.module_from_spec(spec)
    # A data class with postponed annotations looks up its module there.
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


# Folders of loaded kernels. The project's own may be on the path from the start.
_LENT = [str(KERNELS)]


def _lend(kernel: Path) -> None:
    """Let imports find modules beside a kernel, not modules of another checkout."""
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
    """Return the WORKLOAD of a loaded ``workload.py``; raise KernelFolderError without one."""
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
    # This applies to a copied folder, too, which is another kernel.
    object.__setattr__(workload, "name", folder)
    if not re.fullmatch("[A-Za-z0-9_]+", folder):
        raise KernelFolderError(
            f"Kernel '{folder}': its name must consist of letters, digits and '_'."
        )
    return workload


_NEEDED = ("name", "title", "pattern", "dtypes", "variants", "axes")
_FILLED = frozenset({"dtypes", "variants", "sizes", "cache_states"})


def declared_fault(workload: Workload) -> str | None:
    """Return the fault of a workload's attributes, as a clause after ``its``, or None."""
    missing = next((name for name in _NEEDED if not hasattr(workload, name)), None)
    if missing is not None:
        return f"WORKLOAD does not define '{missing}'"
    if not isinstance(workload.axes, Mapping):
        example = "list the values of each, as in {'block_x': [8, 16]}"
        return f"axes are {_show(workload.axes)}; {example}"
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
        if _needs_device(part):
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


def _needs_device(part: Any) -> bool:
    if not isinstance(part, Mapping) or {*part} != {"to_resident", "points"}:
        return False
    waves, points = part["to_resident"], part["points"]
    return isinstance(waves, int | float) and 0 < waves <= 16 and _is_whole(points) and points > 0


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _show(value: Any) -> str:
    return one_line(reprlib.repr(value), 80)


def _names_fault(workload: Workload) -> str | None:
    """Return the fault of the attributes that contain names, or None."""
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
    """Return the fault of `values` as a collection, or None."""
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
    is_factor = isinstance(factor, int | float) and 0 < factor <= MAX_OF_CACHE
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
    """Return the versions for the cells of `space`, in a fixed order, without a device.

    A kernel with compile-time axes has only versions with a valid cell, unless a size or the values
    of another axis depend on the device. `found` are the combinations of the space, if they were
    checked before.
    """
    values = [expand_axis(space.axes[axis], TYPICAL) for axis in workload.compile_axes]
    # If a size that depends on the device turns out larger than these, the job compiles by itself.
    sizes = [
        workload.problem(_USUAL_SIDE) if isinstance(size, RelativeSize) else size
        for size in space.sizes
    ]
    widths = sorted({workload.index_bits(problem) for problem in sizes})
    if workload.compile_axes and workload.is_restricted and not depends_on_the_device(space):
        found = found or look_through(workload, space, values_of(space))
        # The order is that of the product below.
        order = {variant: place for place, variant in enumerate(space.variants)}
        return sorted(found.versions, key=lambda v: (order[v.variant], v.values))
    return [
        indexed(Version(variant, tuple(zip(workload.compile_axes, point, strict=True))), bits)
        for variant in space.variants
        for point in itertools.product(*values)
        for bits in widths
    ]


def values_of(space: ShardSpace) -> dict[str, list[int]]:
    """Return the values of each axis, as on a typical device."""
    return {axis: expand_axis(spec, TYPICAL) for axis, spec in space.axes.items()}


def depends_on_the_device(space: ShardSpace) -> bool:
    """Return whether the set of cells depends on the device."""
    return space.asks_for_sizes or any(map(needs_device, space.axes.values()))


def refusal(workload: Workload, space: ShardSpace) -> str | None:
    """Return why a kernel's `valid` rejects all cells, as a clause.

    The result is None if it does not, or may not.
    """
    if depends_on_the_device(space) or not workload.is_restricted:
        return None
    found = look_through(workload, space, values_of(space), until_valid=True)
    return found.fault(workload.valid_is)


def misfit(
    workload: Workload, problem: Problem, dtype: str, memory: int, allocation: int
) -> str | None:
    """Return why a verified run does not fit on a device, a clause after the kernel's name.

    The result is None if the run fits.

    Parameters
    ----------
    workload, problem, dtype
        The kernel, its problem and its element type.
    memory, allocation
        Bytes of the device's memory, and of its largest buffer.
    """
    need = workload.footprint(problem, dtype)
    largest = workload.largest_buffer(problem, dtype)
    what = f"{problem.height} x {problem.width} {dtype} needs"
    if need > memory:
        return f"{what} {need / 2**30:,.2f} GiB, but the device has {memory / 2**30:,.2f} GiB"
    if largest > allocation:
        return (
            f"{what} a buffer of {largest / 2**30:,.2f} GiB, but the device allows "
            f"{allocation / 2**30:,.2f} GiB in one buffer"
        )
    return None
