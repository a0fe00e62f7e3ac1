"""A device's clocks, locked while a job measures on it by a process that outlives the job."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from ..core.backends import BACKENDS
from ..core.paths import IMPORTED
from ..devices.clock_guardian import FREE, PROGRAM
from ..devices.clock_lock import LockedClocks
from .locks import DeviceLock

log = logging.getLogger(__name__)

# Seconds within which the guardian answers, and ends once it is told to.
_PATIENCE_S = 60.0


class HeldClocks:
    """The clocks of the locked device `uuid`, held at `asked` as far as that is allowed.

    The guardian holds the device's lock as well: nobody measures on it before it is free.
    """

    def __init__(self, backend: str, uuid: str, asked: int | str, lock: DeviceLock) -> None:
        self._backend, self._uuid, self._lock = backend, uuid, lock
        self.asked, self._guardian = asked, None
        if not BACKENDS[backend].locks_clocks:
            self.told = LockedClocks(None, why=f"backend '{backend}' has no way to lock clocks")
            return
        guardian = self._guardian = self._started(str(asked))
        assert guardian.stdout is not None
        line = guardian.stdout.readline()
        ended = f"the process that holds them ended with status {guardian.poll()}"
        self.told = LockedClocks(**json.loads(line)) if line else LockedClocks(None, why=ended)
        log.info("clocks: %s", self.told)

    def _started(self, asked: str) -> subprocess.Popen[bytes]:
        paths = [*map(str, IMPORTED), os.environ.get("PYTHONPATH", "")]
        assert self._lock.descriptor is not None
        return subprocess.Popen(
            [sys.executable, "-m", PROGRAM, self._backend, self._uuid, asked],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._lock.descriptor,),
            # A signal to this process's group is none to it.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    @property
    def sentence(self) -> str | None:
        """What to say where they are not locked as asked."""
        if self.told.why is None:
            return None
        return (
            f"The clocks were not locked (measure.lock_clocks: {self.asked}): {self.told.why}; the "
            "device chooses them itself."
        )

    def provenance(self) -> dict[str, Any]:
        """For the shard's metadata."""
        return {"asked": self.asked, "locked": self.told.core is not None, **asdict(self.told)}

    def free(self) -> None:
        """Free them; nothing where that is done. Says in the log where it could not be."""
        if self._guardian is None:
            return
        guardian, self._guardian = self._guardian, None
        if _ended(guardian) == 0:
            return
        # It was killed itself, or its driver did not answer: once more, by another.
        if _ended(self._started(FREE)) != 0:
            log.error("the clocks of %s may still be locked: 'nvidia-smi -rgc -rmc'", self._uuid)


def _ended(guardian: subprocess.Popen[bytes]) -> int:
    """The exit status of a guardian whose pipe is closed; that of a kill where it hangs."""
    assert guardian.stdin is not None
    guardian.stdin.close()
    try:
        return guardian.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        guardian.kill()
        return guardian.wait()
    finally:
        if guardian.stdout is not None:
            guardian.stdout.close()
