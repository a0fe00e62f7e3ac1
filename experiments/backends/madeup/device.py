"""The made-up device, its programs and its memory, of which little is free."""

from __future__ import annotations

import json
import traceback
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gpushmoo.core import errors
from gpushmoo.core.dtypes import DTYPES, DType
from gpushmoo.core.space import USUAL, Condition
from gpushmoo.devices import build_file, memory
from gpushmoo.devices.base import Device, DeviceInfo, TimedInterval, check_limits
from gpushmoo.workloads.contract import BufferRef, Launch

SOURCE = "kernel.np"
UNITS, THREADS_PER_UNIT, REGISTERS_PER_UNIT = 8, 64, 8192
LAUNCH_S, BYTES_PER_S, COPY_BYTES_PER_S = 1e-6, 40e9, 50e9
Words = npt.NDArray[np.uint32]
# Another process uses the rest of the device's memory.
FREE_BYTES = 2**23


class MadeUpProgram:
    """Functions of a NumPy source. Its REGISTERS has the registers of each; 16 by default."""

    log = ""

    def __init__(self, names: Mapping[str, Any], element: np.dtype[Any], options: str) -> None:
        self._names, self.element, self.options = names, element, options
        self.facts: Mapping[str, build_file.EntryFacts] = {}

    def function(self, entry: str) -> Any:
        """The function `entry`. Raises BuildError."""
        function = self._names.get(entry)
        if not callable(function):
            raise errors.BuildError(f"{SOURCE} has no kernel '{entry}'.", "")
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
    """A command with the device's clock; see `base.PreparedLaunch`."""

    def __init__(self, device: MadeUpDevice, enqueue: Callable[[], None]) -> None:
        self._device, self._enqueue = device, enqueue

    def run(self) -> None:
        """Run it once."""
        self._enqueue()

    def interval(self, met: Condition) -> TimedInterval:
        """Return the interval by the clock, which counts launches alone."""
        return TimedInterval.LAUNCH

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Seconds per launch. The device has no cache that could be flushed."""
        begin = self._device.now
        for _ in range(launches):
            self._enqueue()
        return (self._device.now - begin) / launches


def compiled(folder: Path, dtype: str, defines: Mapping[str, str]) -> bytes:
    """The machine code of the made-up device."""
    source = build_file.kernel_source(folder, ".np")
    return json.dumps([source, dtype, dict(defines)], sort_keys=True).encode()


def program_of(code: bytes) -> MadeUpProgram:
    """Run the source that is in `code`. Raises BuildError."""
    source, dtype, defines = json.loads(code)
    element = DTYPES[dtype].scalar
    names = {"np": np, "element_t": element, **defines}
    try:
        exec(compile(source, SOURCE, "exec"), names)
    except Exception as err:
        line = getattr(err, "lineno", None) or traceback.extract_tb(err.__traceback__)[-1].lineno
        raise build_file.compile_error(SOURCE, f"{SOURCE}:{line}: error: {err}\n") from err
    return MadeUpProgram(names, element, " ".join(sorted(defines)))


class MadeUpDevice(Device):
    """Eight multiprocessors; buffers are the middles of arrays of 32-bit words."""

    target = "madeup_1"
    request = build_file.BuildRequest("madeup", "all", "auto", None, Path())

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
        # The device's clock, in seconds.
        self.now = 0.0
        self._launches, self._used, self._is_lost = 0, 0, False

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise LaunchFailedError, or DeviceLostError from an illegal access on."""
        if self._is_lost:
            raise errors.DeviceLostError("MADE_UP_CONTEXT_IS_GONE")
        try:
            yield
        except IndexError as err:
            self._is_lost = True
            raise errors.DeviceLostError(f"MADE_UP_ILLEGAL_ADDRESS: {err}") from err
        except ArithmeticError as err:
            raise errors.LaunchFailedError(f"MADE_UP_TRAP: {err}") from err

    def build(
        self, folder: Path, dtype: DType, defines: Mapping[str, str], options: Sequence[str] = ()
    ) -> MadeUpProgram:
        """Run the source; ``element_t`` and `defines` are names in it. Raises BuildError."""
        return program_of(compiled(folder, dtype.name, defines))

    def load(self, build: build_file.VersionBuild) -> MadeUpProgram:
        """Load the functions that `compiled` has written."""
        assert build.code is not None
        return program_of(build.code)

    def bind(
        self, program: MadeUpProgram, launch: Launch, buffers: Mapping[str, Any], renew: Any = None
    ) -> MadeUpLaunch:
        """Prepare `launch`. Raises LaunchConfigError or BuildError."""
        check_limits(launch, self.info)
        function = program.function(launch.entry)
        if launch.threads * program.registers(launch.entry) > REGISTERS_PER_UNIT:
            raise errors.LaunchConfigError("MADE_UP_OUT_OF_REGISTERS")
        args = [
            memory.named(a, buffers).view(program.element) if isinstance(a, BufferRef) else a
            for a in launch.args
        ]
        nbytes = sum(a.nbytes for a in args if isinstance(a, np.ndarray))
        resident = UNITS * program.resident_blocks(launch)
        waves = -(-launch.blocks // resident)
        busy = launch.blocks / (waves * resident)

        def run() -> None:
            with self.translated():
                function(np.arange(launch.blocks * launch.threads), *args)
            self._launches += 1
            # No two launches take the same time, by 1 % at most.
            uneven = 1 + (self._launches * 7919 % 101) * 1e-4
            self.now += (LAUNCH_S + nbytes / BYTES_PER_S / busy) * uneven

        return self.time(run)

    def time(self, enqueue: Callable[[], None]) -> MadeUpLaunch:
        """Make a command ready."""
        return MadeUpLaunch(self, enqueue)

    def copy(self, source: Words, target: Words) -> None:
        """Copy a whole buffer."""
        target[:] = source
        self.now += LAUNCH_S + source.nbytes / COPY_BYTES_PER_S

    def wait(self) -> None:
        """Every command has run when its call returns."""

    def allocate(self, nbytes: int) -> Words:
        """A buffer that holds what was there before. Raises OutOfDeviceMemoryError."""
        zone = memory.zone_bytes(nbytes) // 4
        whole = np.full(nbytes // 4 + 2 * zone, 0xDEADBEEF, np.uint32)
        if self._used + whole.nbytes > FREE_BYTES:
            raise errors.OutOfDeviceMemoryError(
                f"The buffer does not fit ({self._used} bytes are used)."
            )
        self._used += whole.nbytes
        weakref.finalize(whole, self._free, whole.nbytes)
        buffer = whole[zone:-zone]
        self.guard(buffer)
        return buffer

    def _free(self, nbytes: int) -> None:
        self._used -= nbytes

    def upload(self, array: npt.NDArray[Any]) -> Words:
        """A buffer that holds `array`."""
        buffer = self.allocate(array.nbytes)
        buffer[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
        return buffer

    def guard(self, buffer: Words) -> None:
        """Paint the zones around a buffer."""
        word, zones = _zones(buffer)
        for zone in zones:
            zone[:] = word

    def count(self, buffers: Sequence[Words], queue: Callable[[Any, Any], None]) -> Words:
        """Two words for each buffer."""
        found = np.zeros((len(buffers), 2), np.uint32)
        for buffer, row in zip(buffers, found, strict=True):
            queue(buffer, row)
        return found

    def check(self, check: memory.Check, buffer: Words, found: Any) -> None:
        """Add what a check finds."""
        match check:
            case memory.Differing(expected):
                found[0] += (buffer != expected).sum()
            case memory.Strays():
                word, zones = _zones(buffer)
                found += np.array([(zone != word).sum() for zone in zones], np.uint32)
            case memory.Checksum():
                found[0] += zlib.crc32(buffer.tobytes())

    def read(self, buffer: Words, begin: int, count: int) -> Words:
        """Copy words of a buffer."""
        return buffer[begin : begin + count].copy()

    def fill(self, words: Words, byte: int, but: int) -> None:
        """Write one byte all over a buffer, but for its end."""
        words.view(np.uint8)[: words.nbytes - but] = byte


def _zones(buffer: Words) -> tuple[int, tuple[Words, Words]]:
    """The guard word of a buffer, and the zones that hold it."""
    whole: Any = buffer.base
    zone = memory.zone_bytes(buffer.nbytes) // 4
    return memory.guard_word(whole.ctypes.data), (whole[:zone], whole[-zone:])
