"""Runs the function that a rule names as its parameter `call`: ``package.module:function``.

The function is given what its parameters are called by: an input or output of the rule, as a path
or a list of them, a param, or one of the names below.
"""

import importlib
import inspect
from pathlib import Path

from gpushmoo.core.errors import UserError
from gpushmoo.storage.joblog import JobSignalledError, job_log


def _paths(named):
    return {k: Path(v) if isinstance(v, str) else [*map(Path, v)] for k, v in named.items()}


with job_log(snakemake.log[0], (UserError, JobSignalledError)) as terminal:
    module, _, name = snakemake.params.call.partition(":")
    function = getattr(importlib.import_module(module), name)
    given = {
        **dict(snakemake.params.items()),
        **_paths(snakemake.input),
        **_paths(snakemake.output),
        "files": _paths(snakemake.input),
        "out": Path(next(iter(snakemake.output), "")),
        "log_file": snakemake.log[0],
        "terminal": terminal,
        "say": lambda text: print(f"gpushmoo: {snakemake.rule}: {text}", file=terminal, flush=True),
        "threads": snakemake.threads,
    }
    function(
        **{name: given[name] for name in inspect.signature(function).parameters if name in given}
    )
