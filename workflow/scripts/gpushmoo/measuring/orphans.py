"""A job that outlives its run writes nothing: another run may be at work on the same file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.run_plan import RunPlan, plain
from ..storage.wholefile import DamagedFileError, read_json


class OrphanError(Exception):
    """The job is no longer part of a run; one sentence."""


class Membership:
    """Whether this process is still a job of the run that started it."""

    def __init__(self, params: Mapping[str, Any], out: Path, plan_file: Path) -> None:
        """Remember who started this process, which measures `out` with `params`."""
        self._params, self._out, self._plan_file = params, out, plan_file
        self._parent = os.getppid()

    def check_parent(self) -> None:
        """Raise OrphanError when the process that started this one has ended."""
        if os.getppid() != self._parent:
            raise OrphanError(
                f"Snakemake, which had '{self._out}' measured, has ended; nothing was written, and "
                "the next start measures it."
            )

    def check(self) -> None:
        """The same, and raise OrphanError when the run is no longer to have this shard.

        Where the plan cannot be read (a job on another host, a damaged file) it says nothing: no
        result is lost for it, and `aggregate` compares the shard with the plan once more.
        """
        self.check_parent()
        try:
            plan = RunPlan.from_plain(read_json(self._plan_file))
            wanted = plan.shard_params(self._out)
        except (DamagedFileError, TypeError, KeyError, AttributeError):
            return
        if wanted != plain(self._params):
            raise OrphanError(
                f"The run has got another configuration since '{self._out}' was begun; nothing was "
                "written."
            )
