"""Exports a run: from Python and from the shell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..core.run_plan import PLAN_FILE
from ..explorer.errors import ExplorerError
from ..explorer.sources import opened
from ..storage.store import BadParquetError
from .errors import ExportError
from .write import FORMATS, Exported, write_exports

FOLDER_NAME = "export"


def export(
    run: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    formats: Sequence[str] = FORMATS,
) -> Exported:
    """Write what a run has found in the forms that other programs read; what was written.

    `run` is a run's folder, a data set or a folder of recorded shards. `formats` are ``t4`` (the
    auto-tuning community's form, a file a group), ``kernel-tuner`` (its cache files, for its
    simulation mode), ``header`` (the launches to use, for C and C++) and ``json`` (the same as
    data). They lie in `out`: by default in ``export`` in the run's folder, or in the working
    directory for recorded shards. An earlier export there is replaced. Raises ExportError, a
    ValueError, with one sentence.
    """
    place = Path(run).expanduser()
    # A run's export lies in its folder; into folders that others recorded nothing is written.
    usual = (place if (place / PLAN_FILE).is_file() else Path()) / FOLDER_NAME
    target = usual if out is None else Path(out).expanduser()
    try:
        with opened(place) as source:
            return write_exports(source.dataset, source.name, target, formats)
    except (ExplorerError, BadParquetError) as err:
        raise ExportError(str(err)) from err
    except OSError as err:
        raise ExportError(f"'{target}' cannot be written ({err.strerror}).") from err
