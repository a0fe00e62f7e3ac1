"""Checks the machine code of a kernel before it is measured: what is timed must be in it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ...core.errors import WorkloadError
from ...workloads.loader import KernelFolder
from .sass import EntryCode, complaints

log = logging.getLogger(__name__)


def failed_check(
    folder: KernelFolder, dtype: str, variant: str, entries: Iterable[EntryCode]
) -> str | None:
    """Why this code must not be timed, in one sentence; None where it does what it should.

    It must not where a timed access is not in it as the workload says, and where the workload fails
    to say so. All complaints go to the log.
    """
    accesses = folder.workload.accesses
    try:
        faults = [
            fault
            for code in entries
            for fault in complaints(code, accesses(code.entry, dtype, variant))
        ]
    except WorkloadError as err:
        log.error("%s", err)
        return str(err)
    if not faults:
        return None
    log.error("%s, %s:\n%s", dtype, variant, "\n".join(faults))
    more = f" And {len(faults) - 1} more, in the log." if len(faults) > 1 else ""
    return f"what is to be timed is not run: {faults[0]}{more}"
