"""How a measuring process gets its device: it offers some, its caller locks one and lends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.errors import DeviceError
from ..locks import DeviceLock
from .handle import WorkerProcess
from .protocol import Candidates, Lost, Message
from .supervise import IDLE_LIMIT_S

Lock = Callable[[Sequence[tuple[int, str]]], tuple[int, DeviceLock]]


def opened_by(worker: WorkerProcess, lock: Lock) -> Message:
    """What the process tells once it has opened the device that `lock` has chosen and locked.

    Raises DeviceError, WorkerGoneError, WorkerSilentError; the process is to be stopped then.
    """
    offered = _heard(worker)
    assert isinstance(offered, Candidates)
    worker.lend(*lock(offered.devices))
    return _heard(worker)


def _heard(worker: WorkerProcess) -> Message:
    message = worker.hear(IDLE_LIMIT_S)
    if isinstance(message, Lost):
        raise DeviceError(f"The device was lost while it was opened ({message.message}).")
    return message
