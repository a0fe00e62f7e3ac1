"""Define the options of `tune`: how a kernel is launched, checked and built."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..core.errors import ConfigError
from ..workloads.call import Expression
from .tune_arguments import shown


@dataclass(frozen=True, eq=False)
class LaunchConfig:
    """Launch of a combination, as expressions of its values.

    An expression is a number, the name of an axis, a text such as ``ceil(n / block_x)``, or a
    function that gets a dictionary of the values.

    Parameters
    ----------
    grid, block : expression, or a tuple of up to three
        Blocks of the launch and threads of a block in x, y and z. By default the grid covers the
        size, and the block is the axes block_x, block_y and block_z. gpushmoo does not launch a
        combination whose number is not whole.
    shared : expression
        Bytes of dynamic shared memory. For OpenCL, bytes of the only parameter in local memory.
    valid : expression, or several
        Conditions that a combination must meet.
    bytes_moved : expression
        Bytes that the launch must read and write. If the device cannot have moved this number,
        gpushmoo warns.
    work : expression
        Amount of arithmetic of the launch, in units of `work_unit`.
    work_unit : str
        Unit of `work`.
    """

    grid: Any = None
    block: Any = None
    shared: Expression = 0
    valid: Any = ()
    bytes_moved: Expression | None = None
    work: Expression | None = None
    work_unit: str = "FLOP"


@dataclass(frozen=True, eq=False)
class Check:
    """Expected outputs of a launch, and how they are compared.

    Parameters
    ----------
    expect : array, sequence, mapping or function
        Expected outputs: one for each argument (None for inputs), a mapping by name, a single
        array, or a function of the arguments that returns one of these. gpushmoo rounds floats to
        the argument's type, and refuses a value that this type cannot represent. By default outputs
        are not compared.
    function : function
        Function of all arguments after a launch on the given arrays. It returns True if they are
        right, otherwise False or a text that describes the error.
    ulp, rtol, atol : int, float, float or array
        Largest error of an element. By default elements must be equal. See `Limit`.
    in_place : name or sequence
        Names or indices of outputs whose content the kernel reads. gpushmoo fills all other outputs
        with poison before a launch.
    restore_in_place : bool
        Whether this content is restored before each timed launch. Set it to False if that does not
        change the time.
    unchecked : name, sequence or "not const"
        Names or indices of arrays that launches may write and that are not compared. ``"not
        const"`` selects all that the source does not declare const. It is the default without
        `expect`. Otherwise no array is selected.
    """

    expect: Any = None
    function: Callable[..., Any] | None = None
    ulp: int | None = None
    rtol: float = 0.0
    atol: Any = 0.0
    in_place: Sequence[str | int] | str | int = ()
    restore_in_place: bool = True
    unchecked: Sequence[str | int] | str | int | None = None


@dataclass(frozen=True, eq=False)
class Build:
    """How the kernel is compiled and loaded.

    Parameters
    ----------
    options : text or sequence of texts
        Additional options of the compiler. Blanks in a text separate them.
    constants : mapping
        Arrays in constant memory, by the symbol's name (CUDA).
    """

    options: Sequence[str] | str = ()
    constants: Mapping[str, Any] | None = None


Options = tuple[LaunchConfig, Check, Build]
KINDS: Mapping[str, type[Any]] = {"launch": LaunchConfig, "check": Check, "build": Build}
# Keywords of `tune` before it had these objects, each with its object's name and its field.
# The next version takes them no longer.
FORMER = {
    "check" if field.name == "function" else field.name: (name, field.name)
    for name, kind in KINDS.items()
    for field in fields(kind)
} | {"moved": ("launch", "bytes_moved"), "resets": ("check", "restore_in_place")}


def gathered(given: Mapping[str, Any], keywords: MutableMapping[str, Any]) -> Options:
    """Return the option objects of `tune`, including values of former keywords.

    Parameters
    ----------
    given : mapping
        The objects that `tune` was called with, or None, by the parameter's name.
    keywords : mapping
        Other keywords of the call. Former keywords are removed.

    Returns
    -------
    Options
        The launch, the check and the build.

    Raises
    ------
    ConfigError
        If one of the objects has another type.
    """
    made = dict(given)
    former = {name: keywords.pop(name) for name in FORMER.keys() & keywords.keys()}
    if made["check"] is not None and not isinstance(made["check"], Check):
        former["check"], made["check"] = made["check"], None
        if not callable(former["check"]):
            wanted = "a Check, or a function of all arguments"
            raise ConfigError(f"check: it is {shown(former['check'])}; it must be {wanted}.")
    for name, kind in KINDS.items():
        if made[name] is None:
            made[name] = kind()
        elif not isinstance(made[name], kind):
            wanted = f"it must be a {kind.__name__}"
            raise ConfigError(f"{name}: it is {shown(made[name])}; {wanted}.")
    if former:
        warnings.warn(_now_called(former), DeprecationWarning, stacklevel=4)
    for old, value in former.items():
        name, field = FORMER[old]
        made[name] = replace(made[name], **{field: value})
    return made["launch"], made["check"], made["build"]


def _now_called(former: Mapping[str, Any]) -> str:
    """Return the deprecation warning for keywords that are now fields of objects."""
    ordered = [old for old in FORMER if old in former]
    forms = []
    for name, kind in KINDS.items():
        of_kind = [FORMER[old][1] for old in ordered if FORMER[old][0] == name]
        if of_kind:
            inner = ", ".join(f"{field}=…" for field in of_kind)
            forms.append(f"{name}=gpushmoo.{kind.__name__}({inner})")
    are = "is a former keyword" if len(ordered) == 1 else "are former keywords"
    what = f"{', '.join(ordered)} {are}, which the next version refuses"
    return f"tune: {what}; pass {', '.join(forms)}."
