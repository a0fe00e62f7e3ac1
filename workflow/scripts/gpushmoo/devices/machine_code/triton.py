"""Compile Triton kernels to machine code. No device and no PyTorch are required."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core.dtypes import TRITON_OPTIONS
from ...core.errors import BuildError, NoDeviceError
from ...core.space import Version
from ...workloads.loader import KernelFolder
from ..build_file import CompiledCode, EntryFacts, kept_code, kernel_source

SUFFIX = ".triton.py"
_FILE = f"kernel{SUFFIX}"


def compiler() -> str:
    """Return name and version of the compiler.

    Raises
    ------
    NoDeviceError
        If Triton is missing.
    """
    return f"Triton {_triton('triton').__version__}"


def compiled(
    folder: KernelFolder, dtype: str, version: Version, arch: str, cache: Path
) -> tuple[CompiledCode, tuple[str, ...]]:
    """Return the machine code of a version from the cache, or compile it. Also return its settings.

    Parameters
    ----------
    folder
        The kernel.
    dtype
        Name of the element type.
    version
        Defines of a variant, and of the axes that are compiled in.
    arch
        Architecture, for example ``sm_90``.
    cache
        Folder of the cache.
    """
    w = folder.workload
    macros = w.macros(dtype, version)
    types = tuple(w.signature(dtype, version))
    names = w.name_expressions(version)
    told = (*(f"{n}={v}" for n, v in sorted(macros.items())), *names, ", ".join(types))
    source = kernel_source(folder.path, SUFFIX)
    beside = sorted(set(folder.path.glob("*.py")) - {folder.path / "workload.py"})
    parts = (source, *(p.read_text("utf-8") for p in beside), *told, arch, compiler())
    make = partial(_compile, folder.path, names, macros, types, arch, cache)
    return kept_code(parts, cache / "triton", make), told


def _triton(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as err:
        said = f"Triton is missing ({err}); install the extra 'triton'."
        raise NoDeviceError(said) from err


def _compile(
    folder: Path,
    names: Sequence[str],
    macros: Mapping[str, str],
    types: Sequence[str],
    arch: str,
    cache: Path,
) -> CompiledCode:
    _triton("triton")
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache / "triton" / "own"))
    kernel = _kernel(_loaded(folder / _FILE), names)
    match = re.fullmatch(r"sm_(\d+)a?", arch)
    if match is None:
        raise BuildError(f"Triton compiles for no architecture '{arch}'.", "")
    constants, signature, hints, left_out = specialised(kernel, macros, types)
    options = {n: int(macros[n]) for n in TRITON_OPTIONS if n in macros}
    target = _triton("triton.backends.compiler").GPUTarget("cuda", int(match[1]), 32)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # announcements for its next releases
            source = _triton("triton.compiler").ASTSource(kernel, signature, constants, hints)
            made = _triton("triton").compile(source, target=target, options=options)
    except Exception as err:
        raise _failed(err) from err
    facts = made.metadata
    if facts.num_ctas > 1 or facts.global_scratch_size:
        raise BuildError(
            f"{_FILE}: '{kernel.__name__}' needs clusters or scratch memory, which are not "
            "launched here",
            "",
        )
    block = (facts.num_warps * facts.warp_size, 1, 1)
    entry = EntryFacts(facts.name, block, facts.shared, 2, left_out)
    return CompiledCode(made.asm["cubin"], "", {kernel.__name__: entry})


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpushmoo_triton", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as err:
        raise _failed(err) from err
    return module


def _failed(err: Exception) -> BuildError:
    """Return an error of the user's file or of Triton as one sentence, with its text as log."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    return BuildError(
        f"{_FILE} does not compile: {type(err).__name__}: {lines[-1] if lines else ''}", str(err)
    )


def _kernel(module: ModuleType, names: Sequence[str]) -> Any:
    """Return the kernel function of a module: the one that is named, or the only one."""
    jitted = _triton("triton.runtime.jit").JITFunction
    there = {name: _undecorated(value, jitted) for name, value in vars(module).items()}
    there = {name: value for name, value in there.items() if isinstance(value, jitted)}
    wanted = names or list(there)
    if len(wanted) != 1 or wanted[0] not in there:
        said = f"'{wanted[0]}'" if len(wanted) == 1 else "one kernel, which name_expressions names"
        raise BuildError(
            f"{_FILE} has not {said}; functions with @triton.jit: {', '.join(there) or 'none'}", ""
        )
    return there[wanted[0]]


def _undecorated(value: Any, jitted: type) -> Any:
    """Return the function below an autotuner or heuristics, because the sweep chooses values."""
    while not isinstance(value, jitted) and hasattr(value, "fn"):
        value = value.fn
    return value


def specialised(
    kernel: Any, macros: Mapping[str, str], types: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str], dict[tuple[int], Any], tuple[int, ...]]:
    """Return constants, types and hints in the forms of Triton, and indices of constant arguments.

    Parameters
    ----------
    kernel
        Triton's kernel function.
    macros
        Values of constants by name.
    types
        Types of the other parameters, in the notation of Triton's ahead-of-time compiler:
        ``*fp32:16`` is a pointer divisible by 16, ``1`` is a constant.

    Raises
    ------
    BuildError
        If the number of types is wrong, or if a constant has no value.
    """
    own = [p.name for p in kernel.params if not p.is_constexpr]
    if len(own) != len(types):
        raise BuildError(
            f"{_FILE}: '{kernel.__name__}' takes {_listed(own)}, the workload's signature has "
            f"{len(types)} types",
            "",
        )
    constants: dict[str, Any] = {}
    for p in (p for p in kernel.params if p.is_constexpr):
        if p.name in macros:
            constants[p.name] = _literal(macros[p.name])
        elif not p.has_default:
            raise BuildError(f"{_FILE}: no axis gives the constant '{p.name}'", "")
        else:
            constants[p.name] = p.default
    forms = dict(zip(own, types, strict=True))
    left_out = tuple(place for place, kind in enumerate(types) if _is_constant(kind))
    constants |= {name: _literal(kind) for name, kind in forms.items() if _is_constant(kind)}
    signature = {
        p.name: "constexpr" if p.name in constants else forms[p.name].split(":")[0]
        for p in kernel.params
    }
    hints = {
        (place,): [["tt.divisibility", 16]]
        for place, p in enumerate(kernel.params)
        if forms.get(p.name, "").endswith(":16")
    }
    return constants, signature, hints, left_out


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _is_constant(kind: str) -> bool:
    return not kind[:1].isalpha() and kind[:1] != "*"


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
