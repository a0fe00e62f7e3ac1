"""``python -m gpushmoo.worker FD WORDS``: the process that opens the device and runs kernels.

It is a process of its own so that a kernel that faults, hangs or takes the runtime down with it
costs one cell: the caller (`process`, `supervise`) replaces it. Messages are pickled dataclasses
over the socket FD, first a Job, then answers to what the caller says. WORDS is the descriptor of
memory that tells what of the user's runs (see `last_words`).
"""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

from .builds import build_variants
from .contract import MOST_SENTENCE, WorkloadError, one_line
from .devices.base import BuildError, Device, DeviceError, DeviceLostError
from .devices.cuda_runtime import candidates
from .devices.select import DeviceChoice, open_device
from .events import Event, Worked
from .job_params import ROOT, settings_of
from .kernels import KernelFolder, load_kernel
from .last_words import share
from .machine_code import checked
from .measure import ShardRun
from .messages import (
    Candidates,
    Crashed,
    Finished,
    Job,
    Locked,
    Lost,
    Measure,
    Message,
    Opened,
    Refused,
)
from .misfit import misfit
from .shard_cells import plan_cells
from .shard_space import ShardSpace, space_of
from .standstill import StandstillWatch

log = logging.getLogger(__name__)

# Seconds between two tellings of how far the work is.
_TELL_EVERY_S = 0.5


def main(fd: int) -> None:
    """Serve one job on the socket `fd`; the caller's end of the socket closing ends it."""
    _die_with_caller()
    # An interrupt ends it at once, as other signals do, and not as an error in a program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    connection: Connection[Any, Any] = Connection(fd)
    try:
        receive = receiver(connection)
        _serve(receive(), receive, connection.send)
    except (EOFError, BrokenPipeError):
        return
    except DeviceLostError as err:
        connection.send(Lost(str(err)))
    except DeviceError as err:
        connection.send(Refused(str(err)))
    except Exception as err:
        traceback.print_exc()
        connection.send(Crashed(one_line(f"{type(err).__name__}: {err}", MOST_SENTENCE)))


def receiver(connection: Connection[Any, Any]) -> Callable[[], Any]:
    """Receives messages; of a locked device also the lock, which this process then holds."""

    def receive() -> Any:
        message = connection.recv()
        if isinstance(message, Locked):
            # Never closed: the device is free when this process has ended.
            recv_handle(connection)
        return message

    return receive


def _die_with_caller() -> None:
    """A process that waits for a hung kernel reads no socket: the kernel must end it (Linux)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _serve(job: Job, receive: Callable[[], Any], send: Callable[[Message], None]) -> None:
    params = job.params
    device = _open(job, receive, send)
    log.info("device %s (%s), %s", device.info.name, device.info.uuid, device.info.runtime)
    folder = load_kernel(ROOT / params["folder"])
    space = space_of(params)
    _refuse_misfits(device, folder, params)
    builds = build_variants(device, folder, space.dtype, space.variants)
    code = _machine_code(device, folder, space, job.cache)
    for variant, told in (code or {}).get("variants", {}).items():
        if told["failure"] is not None:
            builds.refuse(variant, BuildError(told["failure"], ""))
    cells = plan_cells(device, folder, builds, space)
    options = {v: p.options for v, p in builds.programs.items()}
    failures = {v: str(err) for v, err in builds.failures.items()}
    log.info("%d cells, built: %s", len(cells), ", ".join(builds.programs) or "nothing")
    send(Opened(device.info, options, failures, code, cells))
    do: Measure = receive()
    run = ShardRun(
        device,
        folder,
        builds,
        settings_of(params),
        _Throttled(send),
        time.monotonic,
        job.started,
        do.together,
        do.launches,
        StandstillWatch(),
    )
    run.measure([c for c in cells if do.keys is None or c.key in do.keys])
    send(Finished())
    device.close()


def _open(job: Job, receive: Callable[[], Any], send: Callable[[Message], None]) -> Device:
    """Offer the devices that may measure, open the one that the caller has locked."""
    params = job.params
    wanted = None if params["device"] == "all" else int(params["device"])
    choice = DeviceChoice(params["backend"], wanted or 0, params["opencl_runtime"], job.cache)
    if choice.backend == "cuda":
        send(Candidates(candidates(wanted)))
        return open_device(replace(choice, index=receive().index))
    # OpenCL tells a device's identity only once it is open; "all" is the first device, since
    # runtimes list the same CPU under several names.
    device = open_device(choice)
    send(Candidates(((choice.index, device.info.uuid),)))
    receive()
    return device


def _refuse_misfits(device: Device, folder: KernelFolder, params: Mapping[str, Any]) -> None:
    memory, allocation = device.info.global_memory, device.info.max_allocation
    for problem in space_of(params).problems:
        try:
            reason = misfit(folder.workload, problem, params["dtype"], memory, allocation)
        except WorkloadError:  # which the problem's cells will tell
            continue
        if reason is not None:
            raise DeviceError(f"kernels.{folder.name}.sizes: {reason}; choose a smaller size.")


def _machine_code(
    device: Device, folder: KernelFolder, space: ShardSpace, cache: Path
) -> dict[str, Any] | None:
    """What `machine_code.checked` tells; None where there is no machine code to look at."""
    capability = device.info.extra.get("compute_capability")
    if capability is None or not folder.workload.device_code:
        return None
    arch = "sm_" + capability.replace(".", "")
    return checked(folder, space.dtype, space.variants, arch, cache)


class _Throttled:
    """Passes events on, but says how far the work is only every half second."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send, self._told = send, time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Worked):
            if time.monotonic() - self._told < _TELL_EVERY_S:
                return
            self._told = time.monotonic()
        self._send(event)


if __name__ == "__main__":
    share(int(sys.argv[2]))
    main(int(sys.argv[1]))
