"""Define the commands that use the results of a run: ``export`` and ``predict``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.display import number_of
from ...core.errors import ConfigError
from ..answers import FILES, FOLDER, NOTES, ROWS, Answer
from . import options
from .options import Command, add_command

# Rows of the table of predictions.
_MAX_ROWS = 5


def add_commands(commands: options.Subparsers) -> None:
    """Add the commands of this module to the parser."""
    _add_export(commands)
    _add_predict(commands)


def _add_export(commands: options.Subparsers) -> None:
    """Add the command ``export`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "export",
            _export,
            "write a run's results for other programs",
            (FOLDER, FILES, NOTES),
        ),
        example="results/local --formats header,json",
    )
    options.add_run(parser)
    parser.add_argument(
        "--formats",
        metavar="header,json",
        type=options.words,
        action="extend",
        help="by default header, json, t4, kernel-tuner, vllm, triton",
    )
    options.add_out(parser)


def _export(**asked: Any) -> Answer:
    """Run the command ``export``, and return its answer."""
    from ...exporting.write import export

    done = export(**asked)
    written = number_of(len(done.files), "file")
    return Answer(vars(done), lambda: f"{written} written to {done.folder}.")


def _add_predict(commands: options.Subparsers) -> None:
    """Add the command ``predict`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "predict",
            _predict,
            "predict how long launches take, by the model of a device",
            (ROWS.of("interactive.predict.PredictedLaunch"),),
        ),
        example=(
            "kernels/copy2d_coalesced --dtype float --size 8192 "
            "--axes block_x=8:1024:8 block_y=1,2,4"
        ),
    )
    options.add_kernel(parser)
    parser.add_argument("--dtype", metavar="TYPE", required=True, help="element type")
    options.add_size(parser)
    parser.add_argument("--variant", metavar="NAME", help="variant of the kernel")
    options.add_cache(parser)
    options.add_axes(parser)
    parser.add_argument(
        "--model", metavar="FILE", help="a run's model/device.json; by default an NVIDIA H200's"
    )
    options.add_csv(parser)


def _predict(
    axes: Mapping[str, Sequence[Any]] | None = None, cache: Sequence[str] = (), **asked: Any
) -> Answer:
    """Run the command ``predict``, and return its answer."""
    from ..predict import fastest, predict

    if cache:
        if len(cache) > 1:
            raise ConfigError("cache needs one value.")
        asked["cache"] = cache[0]
    values = axes or {}
    if all(len(v) == 1 and isinstance(v[0], int) for v in values.values()):
        one = predict(**asked, **{name: value for name, [value] in values.items()})
        return Answer({"rows": one.row}, one.__str__)
    found = predict(**asked, axes=values)
    return Answer({"rows": found}, lambda: fastest(found, values, _MAX_ROWS))
