"""Provide Kernel Tuner's `tune_kernel` and `run_kernel`, version 1.5.0; gpushmoo measures.

``python -m gpushmoo.extras.compat.kernel_tuner script.py`` runs a script of Kernel Tuner, which
need not be installed. Differences: a time is the median of a sufficient number of samples, not the
mean of `iterations`. A failure or a wrong result affects only its own configuration. A `strategy`
is a random sample of ``max_fevals`` configurations, otherwise all are measured. Arrays that the
source declares as const must not change, and nothing may be written outside arrays.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from importlib import import_module
from inspect import signature
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ... import __name__ as library
from ...core.backends import BACKENDS
from ...core.errors import ConfigError
from ...core.names import several
from ...core.schema import MAX_THREADS, Status
from ...exporting.vocabulary import INVALIDITY, VERSION, t4_metadata
from ...interactive.tune import Tuned, tune
from ...interactive.tune_options import Build, Check, LaunchConfig
from ...storage.temporary import OwnFolder

Params = dict[str, Any]

# Arguments in their order. The first five are required.
_KERNEL = "kernel_name kernel_source problem_size arguments"
_DIVISORS = ("grid_div_x", "grid_div_y", "grid_div_z")
_WHERE = "lang device platform smem_args cmem_args texmem_args compiler compiler_options defines"
_OF_TUNE = (
    f"{_KERNEL} tune_params {' '.join(_DIVISORS)} restrictions answer atol verify verbose {_WHERE} "
    "log iterations block_size_names quiet strategy strategy_options cache metrics simulation_mode "
    "parallel observers objective objective_higher_is_better objectives seed"
)
_OF_RUN = f"{_KERNEL} params {' '.join(_DIVISORS)} {_WHERE} block_size_names quiet log"
_DEFAULTS: Params = {"atol": 1e-6, "device": 0, "iterations": 7}
_REFUSED = {
    "texmem_args": "CUDA has no texture references any more; pass the array as an argument",
    "compiler": "code of the host is not tuned here; leave it out",
    "cache": f"cache files are not read here; `{library} export` writes them",
    "simulation_mode": "nothing is simulated here; leave it out",
    "observers": "nothing but time is observed here; leave them out",
    "objectives": "there is one; name it by objective",
    "platform": "the first OpenCL that answers is used; leave it out",
}
_OTHER_NAMES = dict.fromkeys(("CUPY", "NVCUDA", "PYCUDA"), "CUDA")
_BLOCK = ("block_size_x", "block_size_y", "block_size_z")
_GRID = ("grid_size_x", "grid_size_y", "grid_size_z")
# The one axis, which counts configurations; the macro that chooses among several texts; and what
# names of parameters begin with where a script's own `defines` may leave them out.
_AXIS, _TEXT, _OWN = "GPUSHMOO_CONFIGURATION", "GPUSHMOO_TEXT", "GPUSHMOO_"
# Names that expressions may use besides parameters.
_FUNCTIONS: Params = {"np": np, "numpy": np, "ceil": math.ceil, "floor": math.floor}
# Options that are ignored, because the compiler gets the device's own architecture.
_ARCHITECTURE = re.compile("--?(arch|gpu-architecture|code|gpu-code|gencode)")


class ErrorConfig(str):
    """Reason why a configuration has no time; the text is the message."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return the class, as in Kernel Tuner."""
        return type(self).__name__

    __repr__ = __str__


# By T4's words. For a wrong result, Kernel Tuner raises RuntimeError.
_WORDS = ("constraints", "compile", "runtime", "correctness")
_NAMES = ("Invalid", "CompilationFailed", "RuntimeFailed", "WrongResult")
_CLASSES = {
    word: type(f"{name}Config", (ErrorConfig,), {"__slots__": ()})
    for word, name in zip(_WORDS, _NAMES, strict=True)
}


def tune_kernel(*values: Any, **options: Any) -> tuple[list[Params], Params]:
    """Measure a kernel for each configuration; the arguments are Kernel Tuner's.

    Each result is a dictionary with the parameters, ``time`` and ``times`` in milliseconds, and
    metrics; or ``__error__``. The second return value has ``device_name``, ``best_config``, and in
    ``tied_configs`` all that are tied with the fastest. Raises ConfigError for unsupported
    features.
    """
    given = _given(_OF_TUNE.split(), values, options)
    tune_params = given["tune_params"]
    metrics = given["metrics"] or {}
    kernel = _Kernel(given, tune_params)
    instances = [kernel.instance(params) for params in _configurations(tune_params, given)]
    tuned = kernel.tuned(instances, not given["quiet"], kernel.verified())
    rows = tuned.cells.sort_values(_AXIS).to_dict("records")
    results = [
        _result(instance[0], row, metrics)
        for instance, row in zip(instances, rows, strict=True)
        # Kernel Tuner leaves out configurations with more threads than the device allows.
        if row["status"] != Status.TOO_MANY_THREADS or given["block_size_names"]
    ]
    _PROVENANCE[:] = tuned.provenance
    device = dict(tuned.provenance[0]["device"])
    env: Params = {name: given[name] for name in ("iterations", "compiler_options")}
    env |= {"device_name": device["name"], "uuid": device["uuid"], "device_properties": device}
    env["tied_configs"] = [instances[n][0] for n in tuned.best[_AXIS]]
    goal = given["objective"] or "time"
    higher = given["objective_higher_is_better"]
    if any(goal in result for result in results):
        higher = goal.endswith(("/s", "/W", "/J")) if higher is None else higher
        env["best_config"] = get_best_config(results, goal, higher)
    _tell(results, [*tune_params, "time", *metrics], env, given)
    return results, env


def run_kernel(*values: Any, **options: Any) -> list[Any]:
    """Launch once and return all arguments afterwards; may raise ConfigError or RuntimeError."""
    given = _given(_OF_RUN.split(), values, options)
    kernel = _Kernel(given, given["params"])
    with OwnFolder() as place:
        file = Path(place) / "left.npz"
        few = {"min_samples": 6, "max_samples": 6}

        def keep(*left: Any) -> bool:
            np.savez(file, *left)
            return True

        instance = kernel.instance(dict(given["params"]))
        tuned = kernel.tuned([instance], False, Check(function=keep), **few)
        if not file.is_file():
            raise RuntimeError(f"{kernel.name}: {tuned.cells['message'].iloc[0]}")
        with np.load(file) as held:
            left = [held[name] if np.ndim(held[name]) else held[name][()] for name in held.files]
    # CuPy's arrays are returned as CuPy arrays.
    pairs = zip(left, kernel.arguments, strict=True)
    return [import_module("cupy").asarray(a) if hasattr(b, "get") else a for a, b in pairs]


def _given(names: Sequence[str], values: Sequence[Any], options: Params) -> Params:
    """Return all arguments by name; raise TypeError or ConfigError."""
    given = dict.fromkeys(names[5:]) | _DEFAULTS | dict(zip(names, values, strict=False)) | options
    odd = {*names[:5], *given}.symmetric_difference(given.keys() & {*names, *_DEFAULTS})
    if odd or len(values) > len(names):
        raise TypeError(f"missing or unknown arguments: {', '.join(sorted(odd)) or 'too many'}")
    for name, why in _REFUSED.items():
        if given.get(name):
            raise ConfigError(f"{name}: {why}.")
    return given


# A configuration, its block, grid, bytes of dynamic shared memory, macros, and the kernel's text.
_Instance = tuple[Params, tuple[int, ...], tuple[int, ...], int, Params, str]


class _Kernel:
    """A kernel from the arguments of Kernel Tuner's functions."""

    def __init__(self, given: Params, names: Iterable[str]) -> None:
        """Store the arguments; `names` are the parameters. Raises ConfigError."""
        source, lang = given["kernel_source"], given["lang"]
        sources = source if isinstance(source, list | tuple) else [source]
        self.name = given["kernel_name"]
        self.arguments = given["arguments"]
        self.given = given
        self.source = sources[0]
        self.size = given["problem_size"]
        if lang is None:
            if callable(self.source):
                raise ConfigError("lang: a function as kernel_source needs 'CUDA' or 'OpenCL'.")
            text = self._text({})
            lang = "CUDA" if "__global__" in text else "OpenCL" if "__kernel" in text else "C"
        self.lang = _OTHER_NAMES.get(lang.upper(), lang.upper())
        if self.lang.lower() not in BACKENDS:
            raise ConfigError(f"lang: '{lang}' is not tuned here; it must be CUDA or OpenCL.")
        if len(sources) > 1:
            raise ConfigError("kernel_source: one text, file or function; not several.")
        self.is_cuda = self.lang == "CUDA"
        # The default names may be in capitals.
        other = [name for name in names if name.lower() in _BLOCK and name not in _BLOCK]
        asked = given["block_size_names"]
        block = sorted(other, key=str.casefold) if asked is None else several(asked)
        self.block = [*block, *_BLOCK[len(block) :]]

    def _text(self, params: Params) -> str:
        if callable(self.source):
            return str(self.source(params))
        text = os.fspath(self.source)
        is_file = len(text) <= 250 and not {*"(){};\n"} & {*text}
        return Path(text).read_text(encoding="utf-8") if is_file else text

    def _sides(self, params: Params) -> list[int]:
        """Return the problem's size: x, y and z."""
        size = self.size(params) if callable(self.size) else self.size
        each = [size] if isinstance(size, str | int | np.integer) else [*size]
        return [int(_value(side, params)) for side in [*each, 1, 1][:3]]

    def instance(self, params: Params) -> _Instance:
        """Return the launch and code of a configuration."""
        named = zip(self.block, (256, 1, 1), strict=True)
        block = tuple(int(params.get(name, default)) for name, default in named)
        by = [self.given[option] for option in _DIVISORS]
        by = [params.get(n, 1) if d is None else d for n, d in zip(self.block, by, strict=True)]
        sides = zip(self._sides(params), by, strict=True)
        # As in Kernel Tuner: in floating point, rounded up.
        grid = tuple(math.ceil(float(side) / float(_divisor(d, params))) for side, d in sides)
        size = (self.given["smem_args"] or {}).get("size", 0)
        shared = int(_value(size, params)) if self.is_cuda else 0
        sizes = dict(zip((*_GRID, *self.block), (*grid, *block), strict=True))
        macros = {**sizes, **params, "kernel_tuner": 1}
        defines = self.given["defines"]
        if defines is not None:
            texts = {n: v(params) if callable(v) else str(v) for n, v in defines.items()}
            macros = {name: _filled(str(text), params) for name, text in texts.items()}
        text = self._text(params)
        before = ""
        for name in [n for n in macros if "loop_unroll_factor" in n and self.is_cuda]:
            # The pragma requires a constant instead of a macro; 0 means that there is no bound.
            number = macros.pop(name)
            if str(number) == "0":
                text = re.sub(rf"\n\s*#pragma\s+unroll\s+{name}", "\n", text)
            else:
                before += f"constexpr int {name} = {number};\n"
        macros |= {_OWN + name: value for name, value in params.items()}
        return params, block, grid, shared, macros, f"{before}#line 1\n{text}"

    def tuned(
        self, instances: Sequence[_Instance], progress: bool, check: Check, **more: Any
    ) -> Tuned:
        """Measure all instances in one call: a hidden axis selects among them by ``#if``."""
        every, *launches, macros, texts = zip(*instances, strict=True)
        block, grid, shared = map(_listed, launches)
        head, bracket, template = self.name.partition("<")
        name = head + bracket + _filled(template, {name: _OWN + name for name in every[0]})
        options = [o for o in self.given["compiler_options"] or () if not _ARCHITECTURE.match(o)]
        constants = self.given["cmem_args"] if self.is_cuda else None
        return tune(
            _source(macros, texts),
            name,
            self.arguments,
            self._sides(every[0])[::-1],
            {_AXIS: range(len(every))},
            launch=LaunchConfig(grid=grid, block=block, shared=shared),
            # Launches find the results of earlier launches.
            check=replace(check, unchecked="not const", restore_in_place=False),
            build=Build([*options, f"-I{Path.cwd()}"], constants),
            thread_limit=MAX_THREADS,
            backend=self.lang.lower(),
            device=self.given["device"],
            progress=progress,
            **more,
        )

    def verified(self) -> Check:
        """Return the check that compares with the answer; may raise ConfigError."""
        answer, verify, atol = (self.given[name] for name in ("answer", "verify", "atol"))
        if answer is None and verify is None:
            return Check()
        held = [_on_host(a) for a in answer] if answer is not None else None
        if held is not None and (n := len(held)) != (wanted := len(self.arguments)):
            raise ConfigError(f"answer: it has {n} entries for {wanted} arguments.")
        if verify is None:
            pairs = [(a, _on_host(b)) for a, b in zip(held or (), self.arguments, strict=True)]
            expect = [a if isinstance(b, np.ndarray) else None for a, b in pairs]
            # An array that already contains its answer is poisoned.
            told = enumerate(zip(expect, pairs, strict=True))
            reads = [i for i, (a, (_, b)) in told if a is not None and not np.array_equal(a, b)]
            # The relative tolerance is that of numpy.allclose.
            return Check(expect, in_place=reads, rtol=1e-5, atol=atol)
        more = {"atol": atol} if "atol" in signature(verify).parameters else {}

        # The measuring process imports it by the name of its module.
        @wraps(verify)
        def check(*left: Any) -> bool:
            wanted = left if held is None else held
            pairs = zip(wanted, left, strict=True)
            arrays = [b if a is not None and isinstance(b, np.ndarray) else None for a, b in pairs]
            return bool(verify(held, arrays, **more))

        return Check(function=check)


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


def _listed(values: Sequence[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function of the axis that returns the value of each configuration."""
    return lambda at: values[at[_AXIS]]


def _source(macros: Sequence[Params], texts: Sequence[str]) -> str:
    """Return one source with all configurations."""
    different = list(dict.fromkeys(texts))
    lines = []
    for n, (own, text) in enumerate(zip(macros, texts, strict=True)):
        lines.append(f"#{'elif' if n else 'if'} {_AXIS} == {n}")
        told = {**own, _TEXT: different.index(text)}
        lines += [f"#define {k} {v}".replace("\n", "\\\n") for k, v in told.items()]
    lines.append("#endif")
    for n, text in enumerate(different):
        lines += [f"#{'elif' if n else 'if'} {_TEXT} == {n}", text]
    return "\n".join([*lines, "#endif", ""])


def _filled(text: str, params: Mapping[str, Any]) -> str:
    """Return the text with the parameters replaced by their values."""
    return "".join(str(params.get(word, word)) for word in re.split("([a-zA-Z0-9_]+)", text))


def _value(expression: Any, params: Params) -> Any:
    """Return the value of a number, a text or a function."""
    if isinstance(expression, str):
        # This is the script's own text.
        return eval(_filled(expression, params), {**_FUNCTIONS})  # noqa: S307
    return expression(params) if callable(expression) else expression


def _divisor(asked: Any, params: Params) -> Any:
    if isinstance(asked, list | tuple):
        return math.prod(_divisor(one, params) for one in asked)
    found = _value(asked, params)
    return int(found) if isinstance(asked, str) else found


def _configurations(params: Mapping[str, Sequence[Any]], given: Params) -> list[Params]:
    """Return the configurations to measure; raise ConfigError for invalid ones."""
    asked = given["restrictions"]
    options = given["strategy_options"] or {}
    asked = [r for r in (asked if isinstance(asked, list) else [asked]) if r is not None]
    combined = (dict(zip(params, values, strict=True)) for values in product(*params.values()))
    every = [one for one in combined if all(_meets(restriction, one) for restriction in asked)]
    if not every:
        raise ConfigError("restrictions: no configuration meets them.")
    if given["strategy"] not in (None, "brute_force"):
        most = min(len(every), options.get("max_fevals", len(every)))
        said = f"strategy: {most} of {len(every)} configurations are measured, taken at random."
        warnings.warn(said, stacklevel=3)
        every = random.Random(given["seed"]).sample(every, most)
    return every


def _meets(restriction: Any, params: Params) -> bool:
    if isinstance(restriction, str):
        return bool(eval(restriction, {**_FUNCTIONS, **params}))  # noqa: S307
    if not callable(restriction) or hasattr(restriction, "preProcess"):
        raise ConfigError(f"restrictions: {restriction!r} is neither an expression nor a function.")
    names = [*signature(restriction).parameters]
    is_one = len(names) == 1 and names[0] not in params
    return bool(restriction(params) if is_one else restriction(**params))


def _result(params: Params, row: Mapping[str, Any], metrics: Mapping[str, Any]) -> Params:
    """Return a configuration in Kernel Tuner's form."""
    kinds = ("benchmark", "compile", "verification", "strategy", "framework")
    result: Params = {**params, "timestamp": str(row["measured_at"])}
    result |= {f"{kind}_time": 0.0 for kind in kinds}
    if row["status"] != Status.OK:
        kind = _CLASSES[INVALIDITY.get(row["status"], "runtime").replace("timeout", "runtime")]
        return result | {"__error__": kind(row["message"] or "")}
    times = [1e3 * float(s) for s in row["samples_s"]]
    result |= {"time": 1e3 * float(row["median_s"]), "times": times}
    result["benchmark_time"] = sum(times) * float(row["launches_per_sample"])
    for name, metric in metrics.items():
        result[name] = _value(metric, result)
    return result


def _tell(results: Sequence[Params], keys: Sequence[str], env: Params, given: Params) -> None:
    """Print the results, and warn of failures."""
    errors: list[Any] = [result["__error__"] for result in results if "__error__" in result]
    for kind in dict.fromkeys(map(str, errors)):
        same = [one for one in errors if str(one) == kind]
        said = f"{len(same)} of {len(results)} configurations: {kind}, {same[0][:]}"
        warnings.warn(said, stacklevel=3)
    if not given["quiet"]:
        shown = [r for r in results if "__error__" not in r or given["verbose"]]
        best = ["", "Best:", env["best_config"]] if "best_config" in env else []
        for one in [f"Using: {env['device_name']}", *shown, *best]:
            print(one if isinstance(one, str) else get_config_string(one, [*keys, "__error__"]))


# Functions that scripts import from other modules, and the device of the last kernel.
_PROVENANCE: list[Mapping[str, Any]] = []


def get_config_string(params: Params, keys: Sequence[str] = (), units: Any = None) -> str:
    """Format a configuration as ``block_size_x=128, time=0.123``."""
    shown = [(k, v) for k, v in params.items() if not keys or k in keys]
    return ", ".join(f"{k}={f'{v:.3f}' if isinstance(v, float) else v}" for k, v in shown)


def get_best_config(
    results: Any, objective: str, objective_higher_is_better: bool = False
) -> Params:
    """Return the result with the least, or greatest, objective."""
    sign = -1 if objective_higher_is_better else 1
    best: Params = min(results, key=lambda one: sign * one.get(objective, sign * math.inf))
    return best


def store_output_file(
    output_filename: str, results: Sequence[Params], tune_params: Any, objective: str = "time"
) -> None:
    """Write the results as T4, the auto-tuning community's JSON; the objective is in it."""
    words = {kind: word for word, kind in _CLASSES.items()}
    unknown = dict.fromkeys(("compilation", "framework", "search_algorithm", "validation"), 0.0)
    t4: Params = {
        "schema_version": VERSION,
        "metadata": {"timeunit": "milliseconds"},
        "results": [],
    }
    for result in results:
        word = words.get(type(result.get("__error__")), "correct")
        times = {"benchmark": result["benchmark_time"], "runtimes": result.get("times", [])}
        one: Params = {
            "timestamp": result["timestamp"],
            "times": times | unknown,
            "invalidity": word,
        }
        one["configuration"] = {name: result[name] for name in tune_params}
        one |= {"correctness": float(word != "correctness"), "objectives": [objective]}
        goals = [name for name in dict.fromkeys(("time", objective)) if name in result]
        units = {"time": "ms"}
        one["measurements"] = [
            {"name": name, "value": result[name], "unit": units.get(name, "")} for name in goals
        ]
        t4["results"].append(one)
    _write(output_filename, t4)


def store_metadata_file(metadata_filename: str) -> None:
    """Write the device and versions of the last measurement in the tuning format T4 (JSON)."""
    _write(metadata_filename, t4_metadata(_PROVENANCE))


def _write(name: str, content: Params) -> None:
    path = Path(f"{name.removesuffix('.json')}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, default=lambda value: value.tolist()), encoding="utf-8")


_STAND_INS: Mapping[str, Sequence[Any]] = {
    "kernel_tuner": (tune_kernel, run_kernel),
    "kernel_tuner.util": (get_best_config, get_config_string, ErrorConfig, *_CLASSES.values()),
    "kernel_tuner.file_utils": (store_output_file, store_metadata_file),
    "kernel_tuner.strategies": (),
}


def install() -> None:
    """Make ``import kernel_tuner`` import the functions of this module."""
    for name, members in _STAND_INS.items():
        module = ModuleType(name)
        sys.modules[name] = module
        vars(module).update({member.__name__: member for member in members})
        vars(sys.modules["kernel_tuner"])[name.rpartition(".")[2]] = module
    # Its other modules are not found.
    sys.modules["kernel_tuner"].__path__ = []
    # Each strategy by its name.
    vars(sys.modules["kernel_tuner.strategies"])["__getattr__"] = str


def main(arguments: Sequence[str]) -> None:
    """Run a script with its own arguments."""
    if not arguments:
        raise SystemExit(
            f"usage: python -m {library}.extras.compat.kernel_tuner script.py [argument ...]"
        )
    install()
    sys.argv = [*arguments]
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except ConfigError as err:
        raise SystemExit(f"{library}: {err}") from err
    except ModuleNotFoundError as err:
        if not (err.name or "").startswith("kernel_tuner"):
            raise
        there = ", ".join(_STAND_INS)
        raise SystemExit(f"{library}: '{err.name}' is not supported; there are {there}.") from err


if __name__ == "__main__":
    # Its classes must be those of the imported module.
    import_module(f"{library}.extras.compat.kernel_tuner").main(sys.argv[1:])
