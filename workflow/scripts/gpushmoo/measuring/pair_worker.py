"""``python -m gpushmoo.measuring.worker.pair_worker FD WORDS``: two versions, alternately.

As `worker`, which it shares all but what is measured with; the first message is a PairJob.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.paths import ROOT
from ..core.space import Cell, space_of
from ..devices.base import Device
from ..workloads.loader import KernelFolder, load_kernel
from ..workloads.user_code import share
from ..workloads.versions import versions_of
from .builds import ReadyPrograms, plan_cells, programs_for
from .events import MeasurePairs, Message, PairJob, PairsOpened
from .paired import Contender, PairedRun, matched
from .settings import settings_of
from .worker import StandstillWatch, Throttled, main, open_locked, refuse_misfits

log = logging.getLogger(__name__)


def serve(
    job: PairJob, device: Device | None, receive: Callable[[], Any], send: Callable[[Message], None]
) -> Device:
    """Build both versions, tell which cells they have in common, measure those that are wanted."""
    device = open_locked(job, None, receive, send, device)
    # One folder is loaded once: what both have in common is seen by its being the same.
    loaded = {s["folder"]: load_kernel(ROOT / s["folder"]) for s in job.sides}
    folders = [loaded[s["folder"]] for s in job.sides]
    made = [
        _ready(device, folder, params, options)
        for folder, params, options in zip(folders, job.sides, job.options, strict=True)
    ]
    (ready_a, cells_a), (ready_b, cells_b) = made
    variants = list(zip(*(s["variants"] for s in job.sides), strict=True))
    pairs = matched((cells_a, cells_b), variants)
    a, b = ready_a.builds, ready_b.builds
    send(
        PairsOpened(
            device.info,
            pairs,
            (len(cells_a) - len(pairs), len(cells_b) - len(pairs)),
            (ready_a.codes, ready_b.codes),
        )
    )
    do: MeasurePairs = receive()
    run = PairedRun(
        device,
        (Contender(folders[0], a), Contender(folders[1], b)),
        settings_of(job.params),
        job.blocks,
        Throttled(send),
        time.monotonic,
        do.together,
        StandstillWatch(),
    )
    run.measure({i: pair for i, pair in enumerate(pairs) if i in do.places})
    device.close()
    return device


def _ready(
    device: Device, folder: KernelFolder, params: Mapping[str, Any], options: tuple[str, ...]
) -> tuple[ReadyPrograms, list[Cell]]:
    """What one version was built into, and its cells."""
    refuse_misfits(device, folder, params)
    space = space_of(params)
    versions = versions_of(folder.workload, space)
    digest = params["kernel_digest"]
    ready = programs_for(device, folder, space.dtype, versions, None, digest, options)
    return ready, plan_cells(device, folder, ready.builds, versions, space)


if __name__ == "__main__":
    share(int(sys.argv[2]))
    main(int(sys.argv[1]), serve)
