"""The made-up device and its programs."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo.core.dtypes import DTYPES, DType
from gpushmoo.core.errors import BuildError, LaunchRefusedError
from gpushmoo.core.space import USUAL, Condition
from gpushmoo.devices.base import DeviceInfo, TimedInterval, check_limits, flush_bytes
from gpushmoo.devices.buffers import named
from gpushmoo.devices.builds import BuildRequest, VersionBuild, compile_error, kernel_source
from gpushmoo.workloads.contract import BufferRef, Launch

from .memory import MadeUpMemory, Words
from .queue import Clock, Command, MadeUpQueue

SUFFIX = ".np"
UNITS, THREADS_PER_UNIT, REGISTERS_PER_UNIT = 8, 64, 8192
LAUNCH_S, BYTES_PER_S = 1e-6, 40e9


class MadeUpProgram:
    """Functions of a NumPy source; REGISTERS in it says how many a function takes, else 16."""

    log = ""

    def __init__(self, names: Mapping[str, Any], element: np.dtype[Any], options: str) -> None:
        self._names, self.element, self.options, self.facts = names, element, options, {}

    def function(self, entry: str) -> Callable[..., None]:
        """The function `entry`. Raises BuildError."""
        if not callable(self._names.get(entry)):
            raise BuildError(f"kernel{SUFFIX} has no kernel '{entry}'.", "")
        function: Callable[..., None] = self._names[entry]
        return function

    def registers(self, entry: str) -> int:
        """Return the registers that the source names for a function, or 16."""
        return int(self._names.get("REGISTERS", {}).get(entry, 16))

    def resident_blocks(self, launch: Launch) -> int:
        """Return how many blocks have threads and registers at once."""
        self.function(launch.entry)
        by_registers = REGISTERS_PER_UNIT // (launch.threads * self.registers(launch.entry))
        return max(1, min(THREADS_PER_UNIT // launch.threads, by_registers))


class MadeUpLaunch:
    """Something to queue; see `base.PreparedLaunch`."""

    def __init__(self, device: MadeUpDevice, enqueue: Callable[[], None]) -> None:
        self._device, self._enqueue = device, enqueue

    def run(self) -> None:
        """Queue it once and wait."""
        self.sample(1)

    def interval(self, met: Condition) -> TimedInterval:
        """Return the interval between two marks, which hold nothing else."""
        return TimedInterval.LAUNCH

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """All between two marks, or each between its own, behind a flush where one is asked for."""
        if met == USUAL:
            return self._together(launches)
        total_s = 0.0
        for _ in range(launches):
            if met.flushed:
                self._device.flush()
            total_s += self._together(1)
        return total_s / launches

    def _together(self, launches: int) -> float:
        """Return the seconds of these launches between two marks."""
        queue = self._device.queue
        start = queue.mark()
        for _ in range(launches):
            self._enqueue()
        stop = queue.mark()
        queue.wait()
        return stop.seconds_since(start) / launches


def compiled(folder: Path, dtype: str, defines: Mapping[str, str]) -> bytes:
    """The machine code of the made-up device."""
    source = kernel_source(folder, SUFFIX)
    return json.dumps([source, dtype, dict(defines)], sort_keys=True).encode()


def program_of(code: bytes) -> MadeUpProgram:
    """Run the source that is in `code`. Raises BuildError."""
    source, dtype, defines = json.loads(code)
    element = DTYPES[dtype].scalar
    names = {"np": np, "element_t": element, **defines}
    try:
        exec(compile(source, f"kernel{SUFFIX}", "exec"), names)
    except Exception as err:
        line = getattr(err, "lineno", None) or traceback.extract_tb(err.__traceback__)[-1].lineno
        raise compile_error(f"kernel{SUFFIX}", f"kernel{SUFFIX}:{line}: error: {err}\n") from err
    return MadeUpProgram(names, element, " ".join(sorted(defines)))


class MadeUpDevice(MadeUpMemory):
    """Act as a device of eight multiprocessors without images."""

    target = "madeup_1"
    request = BuildRequest("madeup", "all", "auto", None, Path())

    def __init__(self, index: int) -> None:
        self.info = DeviceInfo(
            backend="madeup",
            name="Made-up device",
            uuid=f"MADE-UP-{index}",
            kind="gpu",
            driver="1",
            runtime=f"NumPy {np.__version__}",
            multiprocessors=UNITS,
            max_threads_per_block=64,
            max_block=(64, 64, 64),
            max_grid=(2**16, 1, 1),
            global_memory=2**26,
            max_allocation=2**26,
            cache=2**16,
            core_clock_mhz=1000,
        )
        self._clock, self._launches = Clock(), 0
        self.queue = MadeUpQueue(self._clock, self.allocate, self._prepare)

    def translated(self) -> nullcontext[None]:
        """Nothing is to be translated: the queue raises the protocol's errors."""
        return nullcontext()

    def build(self, folder: Path, dtype: DType, defines: Mapping[str, str]) -> MadeUpProgram:
        """Run the source; ``element_t`` and `defines` are names in it. Raises BuildError."""
        return program_of(compiled(folder, dtype.name, defines))

    def load(self, build: VersionBuild) -> MadeUpProgram:
        """Load the functions that `compiled` has written."""
        assert build.code is not None
        return program_of(build.code)

    def _prepare(
        self, program: MadeUpProgram, launch: Launch, buffers: Mapping[str, Any]
    ) -> Command:
        check_limits(launch, self.info)
        function = program.function(launch.entry)
        if launch.threads * program.registers(launch.entry) > REGISTERS_PER_UNIT:
            raise LaunchRefusedError("MADE_UP_OUT_OF_REGISTERS")
        args = [
            named(a, buffers).view(program.element) if isinstance(a, BufferRef) else a
            for a in launch.args
        ]
        nbytes = sum(a.nbytes for a in args if isinstance(a, np.ndarray))
        resident = UNITS * program.resident_blocks(launch)
        waves = -(-launch.blocks // resident)
        busy = launch.blocks / (waves * resident)

        def run() -> float:
            function(np.arange(launch.blocks * launch.threads), *args)
            self._launches += 1
            # No two launches take the same time, by 1 % at most.
            uneven = 1 + (self._launches * 7919 % 101) * 1e-4
            return (LAUNCH_S + nbytes / BYTES_PER_S / busy) * uneven

        return run

    def bind(
        self, program: MadeUpProgram, launch: Launch, buffers: Mapping[str, Any], renew: Any = None
    ) -> MadeUpLaunch:
        """Prepare `launch`. Raises LaunchRefusedError or BuildError."""
        command = self._prepare(program, launch, buffers)
        return self._bound(lambda: self.queue.queue(command))

    def _bound(self, enqueue: Callable[[], None]) -> MadeUpLaunch:
        return MadeUpLaunch(self, enqueue)

    def _queue_copy(self, source: Words, target: Words) -> None:
        self.queue.copy(target, source)

    def flush(self) -> None:
        """The clock goes on as if so many bytes were written."""
        self.queue.queue(lambda: flush_bytes(self.info) / BYTES_PER_S)
        self.queue.wait()

    def _queue_fill(self, words: Words, byte: int, but: int) -> None:
        words.view(np.uint8)[: words.nbytes - but] = byte

    def _finish(self) -> None:
        self.queue.wait()
