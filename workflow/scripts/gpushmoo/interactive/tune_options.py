"""The options of `tune`: how a kernel is launched, checked and built."""

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
    """The launch of a combination, as expressions of its values.

    An expression is a number, an axis, a text such as ``ceil(n / block_x)``, or a function of a
    dictionary of the values.

    Parameters
    ----------
    grid, block : expression, or a tuple of up to three
        Blocks of the launch and threads of a block: x, y and z. By default the grid covers the
        size, and the block is the axes block_x, block_y and block_z. gpushmoo does not launch a
        combination whose number is not whole.
    shared : expression
        Bytes of dynamic shared memory; of OpenCL those of the one parameter in local memory.
    valid : expression, or several
        Conditions that a combination must meet.
    bytes_moved : expression
        Bytes that the launch must read and write. If the device cannot have moved as many,
        gpushmoo warns.
    work : expression
        What the launch computes.
    work_unit : str
        The unit of `work`.
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
    """How the outputs of a launch are checked.

    Parameters
    ----------
    expect : array, sequence, mapping or function
        The expected outputs: of each argument, None for inputs, or by name; or a function of the
        arguments that returns these, or one array. gpushmoo rounds floats to the argument's type
        and refuses a value that this type cannot hold. By default it compares nothing.
    function : function
        Of all arguments after a launch that found in arrays what `arguments` have: True if they are
        right, else False or a text on what is wrong.
    ulp, rtol, atol : int, float, float or array
        How far off an element may be; by default it must be equal. See `Limit`.
    in_place : name or sequence
        Names or places of outputs whose content the kernel reads. gpushmoo poisons others.
    restore_in_place : bool
        Whether this content is restored before each timed launch; False if that changes no time.
    unchecked : name, sequence or "not const"
        Names or places of arrays that launches may write and nobody compares, or all that the
        source does not declare as const, which is the default without `expect`; else none.
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
        Additional options of the compiler; blanks in a text separate them.
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
    """Take former keywords out of `keywords`, and make the option objects of `tune`.

    Parameters
    ----------
    given : mapping
        The objects that `tune` was called with, or None, by the parameter's name.
    keywords : mapping
        The other keywords of the call.

    Returns
    -------
    Options
        The launch, the check and the build.

    Raises
    ------
    ConfigError
        One of the objects has another type.
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
        warnings.warn(_now_called(former), DeprecationWarning, stacklevel=3)
    for old, value in former.items():
        name, field = FORMER[old]
        made[name] = replace(made[name], **{field: value})
    return made["launch"], made["check"], made["build"]


def _now_called(former: Mapping[str, Any]) -> str:
    """Word the sentence on keywords that are now fields of objects."""
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
