"""Read the source of a kernel that `tune` measures, and find its parameters in the text."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..core.backends import AUTO, BACKENDS
from ..core.dtypes import TRITON_OPTIONS
from ..core.errors import ConfigError
from ..planning.refusal import refuse_unknown
from ..workloads.loader import included, included_files

WORD = r"[A-Za-z_]\w*"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Words beside a type in a declaration that do not change how many bytes are read.
_QUALIFIERS = frozenset(
    (
        "const",
        "volatile",
        "restrict",
        "__restrict",
        "__restrict__",
        "struct",
        "private",
        "__global",
        "global",
        "__constant",
        "constant",
        "__grid_constant__",
        "__private",
    )
)
_LOCAL = frozenset(("__local", "local"))
# C's types by their sorted words, in NumPy's names; of 64-bit devices.
_C_TYPES = {
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "size_t": "uint64",
    "char": "int8",
    "char signed": "int8",
    "char unsigned": "uint8",
    "uchar": "uint8",
    "short": "int16",
    "short unsigned": "uint16",
    "ushort": "uint16",
    "int": "int32",
    "signed": "int32",
    "unsigned": "uint32",
    "uint": "uint32",
    "long": "int64",
    "long unsigned": "uint64",
    "ulong": "uint64",
    "ptrdiff_t": "int64",
    "long long": "int64",
    "long long unsigned": "uint64",
    **{f"{u}int{n}_t": f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
}
_VECTOR = re.compile(
    r"(u?(?:char|short|int|long|longlong)|float|double|half|__half|__nv_bfloat16)(?:2|3|4|8|16)"
)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, with a declaration for each of several definitions (``#if``)."""

    name: str
    declarations: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.declarations[0].split())

    @property
    def is_const(self) -> bool:
        """Whether all definitions declare the parameter as const."""
        return all("const" in words_of(one) for one in self.declarations)

    @property
    def is_local(self) -> bool:
        """Whether the parameter points to OpenCL's local memory."""
        return all(_LOCAL.intersection(words_of(one)) for one in self.declarations)

    @property
    def is_pointer(self) -> bool:
        """Whether the parameter points to elements."""
        return all("*" in one or "[" in one for one in self.declarations)

    @property
    def element(self) -> str | None:
        """NumPy name of the parameter's type, or of a pointer's elements, or None if unknown."""
        found = {_element(one) for one in self.declarations}
        return found.pop() if len(found) == 1 else None


def words_of(text: str) -> list[str]:
    """Return the identifiers and keywords of a text in C, in their order."""
    return re.findall(WORD, text)


def _element(declaration: str) -> str | None:
    """Return the NumPy name of the type in a declaration of a number or of one pointer."""
    stars = declaration.count("*") + declaration.count("[")
    plain = re.sub(rf"{WORD}\s*::\s*", "", declaration)
    words = [w for w in words_of(plain)[:-1] if w not in _QUALIFIERS | _LOCAL]
    vector = _VECTOR.fullmatch(" ".join(words))
    if vector:
        words = [vector[1].replace("longlong", "long")]
    if stars > 1 or "&" in declaration or "<" in declaration or (vector and not stars):
        return None
    if len(words) > 1:
        implied = {"int"} if "char" in words else {"int", "signed"}
        words = [word for word in words if word not in implied]
    return _C_TYPES.get(" ".join(sorted(words)))


@dataclass(frozen=True)
class KernelSource:
    """Source of a kernel for one backend.

    Attributes
    ----------
    name
        Name of the kernel function, possibly with template arguments.
    data
        Content of the source.
    suffix
        Suffix of the file name, which determines the language.
    backend
        Name of the backend.
    file
        Path of the file, or None if the caller gave the text.
    """

    name: str
    data: bytes
    suffix: str
    backend: str
    file: Path | None = None

    @property
    def is_python(self) -> bool:
        """Whether the kernel is a function in Python (Triton), whose constants are parameters."""
        return self.suffix.endswith(".py")

    @property
    def is_code(self) -> bool:
        """Whether the source is machine code (a cubin), which has no macros."""
        return self.suffix == ".cubin"

    @property
    def entry(self) -> str:
        """Name of the kernel function without namespaces and template arguments."""
        return re.split("[<(]", self.name)[0].split("::")[-1].strip()

    @cached_property
    def text(self) -> str:
        """Source as text without comments, empty for machine code."""
        text = "" if self.is_code else self.data.decode(errors="replace")
        return text if self.is_python else _COMMENT.sub(" ", text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Words in the source, and in files that it includes from its own folder."""
        beside = [] if self.file is None else included_files(self.file)
        texts = [_COMMENT.sub(" ", path.read_text(errors="replace")) for path, _ in beside]
        return frozenset(words_of(" ".join([self.text, *texts])))

    def may_use(self, options: Iterable[str]) -> bool:
        """Return whether the source may use names that are not among its `words`.

        It may if it joins names with ``##``, or if it includes a header that was not read. A header
        in angle brackets does not count, because it is the compiler's, unless `options` name
        folders of headers.
        """
        if self.is_code or self.is_python:
            return False
        known = set() if self.file is None else {path.name for path, _ in included_files(self.file)}
        names = set(included(self.data))
        if not any("-I" in one or "include" in one for one in options):
            names -= set(re.findall(r"#\s*include\s*<([^>\n]+)>", self.text))
        return "##" in self.text or any(Path(name).name not in known for name in names)

    @cached_property
    def _function(self) -> ast.FunctionDef | None:
        """The kernel's definition in a Python source, if it is found."""
        try:
            nodes = ast.walk(ast.parse(self.text)) if self.is_python else ()
        except SyntaxError:  # which its compiler names
            return None
        named = (n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == self.entry)
        return next(named, None)

    @cached_property
    def constants(self) -> frozenset[str] | None:
        """Names of a Triton kernel's constants that axes can set, or None without the kernel."""
        if self._function is None:
            return None
        given = {one.arg for one in _python_parameters(self._function) if _is_constexpr(one)}
        return frozenset(given | {*TRITON_OPTIONS})

    @cached_property
    def template_parameters(self) -> frozenset[str]:
        """Names of all template parameters in the source."""
        found = set[str]()
        for head in re.finditer(r"\btemplate\s*<", self.text):
            for one in _parts(_bracketed(self.text, head.end())):
                words = words_of(one.split("=")[0])
                found.update(words[-1:])
        return frozenset(found)

    def parameters(self, *counts: int) -> list[Parameter]:
        """Return the kernel's parameters, or an empty list if they are not known.

        Parameters
        ----------
        *counts
            Possible numbers of parameters. The first number that a definition of the kernel has
            counts.

        Raises
        ------
        ConfigError
            If no definition has one of these numbers and no macro can change that.
        """
        if self._function is not None:
            every = [one for one in _python_parameters(self._function) if not _is_constexpr(one)]
            return [Parameter(one.arg, (one.arg,)) for one in every]
        known = [*self._definitions()]
        of_one_count = [[one for one in known if len(one) == count] for count in counts]
        fitting = next(filter(None, of_one_count), [])
        if not fitting and known and all(_is_plain(d) for one in known for d in one):
            takes = " or ".join(f"{len(one)} ({', '.join(map(_name, one))})" for one in known)
            hint = "; local memory is an argument, too: give `shared`, or SharedMemory at its place"
            raise ConfigError(
                f"arguments: '{self.name}' takes {takes}, not {counts[0]}"
                f"{hint if self.local_places() else ''}."
            )
        columns = zip(*fitting, strict=True)
        made = [Parameter(_name(one[0]), one) for one in columns]
        return made if len({one.name for one in made}) == len(made) else []

    def local_places(self) -> list[int]:
        """Return the indices of parameters that point to local memory, in the first definition."""
        first = next(self._definitions(), [])
        return [place for place, one in enumerate(first) if _LOCAL.intersection(words_of(one))]

    def _definitions(self) -> Iterator[list[str]]:
        """Yield the declarations of the parameters in each definition of the kernel."""
        for head in re.finditer(rf"\b{re.escape(self.entry)}\s*\(", self.text):
            inside = _bracketed(self.text, head.end(), "()")
            after = self.text[head.end() + len(inside) :]
            parts = [one.split("=")[0] for one in _parts(inside) if one.strip() != "void"]
            # A call has no types, and a declaration no body.
            if re.match(r"\)\s*\{", after) and all(len(words_of(one)) > 1 for one in parts):
                yield parts

    def refuse_absent(self) -> None:
        """Raise ConfigError if no text, macro or header of the source can define the kernel."""
        marks = "|".join(mark for b in BACKENDS.values() for mark in b.marks)
        heads = rf"\b(?:{marks}|def)\b[^;{{]*?({WORD})\s*\([^(){{;]*\)\s*[{{:]"
        kernels = ", ".join(re.findall(heads, self.text))
        is_hidden = re.search(rf'\b{re.escape(self.entry)}\b|##|#\s*include\s*"', self.text)
        if kernels and not is_hidden:
            raise ConfigError(f"name: the source has no kernel '{self.name}'; it has: {kernels}.")

    def redefines(self, word: str) -> bool:
        """Return whether the source defines a macro with this name."""
        return bool(re.search(rf"#\s*define\s+{word}\b", self.text))


def read_source(name: str, source: str | os.PathLike[str], backend: str) -> KernelSource:
    """Return the source of a kernel.

    Parameters
    ----------
    name
        Name of the kernel function.
    source
        The source as text, or the path of its file.
    backend
        Name of the backend, or ``auto`` to derive it from the text or the suffix.

    Raises
    ------
    ConfigError
        If the file cannot be read, or if the text has no kernel of the backend.
    """
    if not isinstance(name, str) or not words_of(name):
        raise ConfigError(f"name: it is {name!r}; it must be the name of a kernel function.")
    if not isinstance(source, str | os.PathLike) or not os.fspath(source):
        kind = type(source).__name__
        raise ConfigError(f"source: it is {kind}; it must be a kernel's text or a file.")
    refuse_unknown("backend", [backend], [AUTO, *BACKENDS])
    if isinstance(source, str) and ("\n" in source or "{" in source):
        found = [b for b in BACKENDS.values() if any(mark in source for mark in b.marks)]
        found = [BACKENDS[backend]] if backend != AUTO else found
        if not found:
            marks = ", ".join(mark for b in BACKENDS.values() for mark in b.marks)
            raise ConfigError(
                f"source: its text has no kernel: none of {marks}; or name a backend."
            )
        return KernelSource(name, source.encode(), found[0].source_suffix, found[0].name)
    file = Path(source).expanduser().absolute()
    known = {suffix: b for b in BACKENDS.values() for suffix in b.suffixes}
    suffix = next((s for s in known if file.name.endswith(s)), None)
    if suffix is None:
        ends = ", ".join(known)
        raise ConfigError(f"source: '{source}' ends in none of {ends}, nor is it a kernel's text.")
    if backend not in (AUTO, known[suffix].name):
        raise ConfigError(f"source: '{source}' is not a source for backend '{backend}'.")
    try:
        data = file.read_bytes()
        if suffix in {b.source_suffix for b in BACKENDS.values()}:
            data.decode()
        return KernelSource(name, data, suffix, known[suffix].name, file)
    except OSError as err:
        raise ConfigError(f"source: '{source}' cannot be read ({err}).") from err
    except UnicodeDecodeError as err:
        line = err.object[: err.start].count(b"\n") + 1
        raise ConfigError(f"source: '{source}', line {line}: not UTF-8; save it as that.") from err


def _bracketed(text: str, begin: int, pair: str = "<>") -> str:
    """Return the text from `begin`, the first character in a bracket, to the end of the bracket."""
    depth = 1
    for place in range(begin, len(text)):
        depth += (text[place] == pair[0]) - (text[place] == pair[1])
        if depth == 0:
            return text[begin:place]
    return text[begin:]


def _parts(text: str) -> list[str]:
    """Return the entries of a list, which are separated by commas outside of brackets."""
    parts = [""]
    depth = 0
    for letter in text:
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if text.strip() else []


def _name(declaration: str) -> str:
    return words_of(declaration.split("[")[0])[-1]


def _is_plain(declaration: str) -> bool:
    """Return whether a declaration is one parameter and not a macro, which may be several."""
    return bool(re.fullmatch(r"[\w\s*&]*\w[\s*&]+\w+\s*(\[\w*\]\s*)?", declaration))


def _python_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def _is_constexpr(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)
