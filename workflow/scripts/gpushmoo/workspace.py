"""One problem on the device: its inputs, its output, and what the output must be."""

from __future__ import annotations

import numpy as np

from .devices.base import Bound, Device, Program
from .dtypes import DTYPES
from .space import Problem
from .workload import Launch, Workload


class Workspace:
    """Buffers and images for the launches of one problem, element type and result.

    `words` counts the 32-bit words of the output; `copy` is the runtime's own copy of as many.
    """

    def __init__(
        self,
        device: Device,
        workload: Workload,
        problem: Problem,
        dtype: str,
        variant: str,
        seed: int,
    ) -> None:
        """Make everything that a launch of `variant`, or of another of its result, needs.

        Raises OutOfDeviceMemoryError or LaunchRefusedError when the device cannot hold it.
        """
        self._device, kind = device, DTYPES[dtype]
        # Inputs depend on the problem alone, so that every shard of it copies the same data.
        rng = np.random.default_rng([seed, problem.height, problem.width])
        inputs = workload.inputs(problem, dtype, rng)
        expected = workload.expected(inputs, variant)
        self.words = expected.nbytes // 4
        self._buffers = {
            name: device.upload_image(array, kind)
            if name in workload.images
            else device.upload(array)
            for name, array in inputs.items()
        }
        if workload.output in workload.images:
            self._output = device.allocate_image(problem, kind)
        else:
            self._output = device.allocate(expected.nbytes)
        self._buffers[workload.output] = self._output
        self._expected = device.upload(expected)
        # An image is copied to or from a buffer, not to another image.
        barred = workload.images if workload.output in workload.images else frozenset()
        same_size = [n for n in inputs if inputs[n].nbytes == expected.nbytes and n not in barred]
        source = self._buffers[same_size[0]] if same_size else self._expected
        self.copy = device.bind_copy(source, self._output)

    def bind(self, program: Program, launch: Launch) -> Bound:
        """`launch` on these buffers. Raises as `Device.bind` does."""
        return self._device.bind(program, launch, self._buffers)

    def poison(self) -> None:
        """Overwrite the output with what no verified output holds."""
        self._device.poison(self._output)

    def wrong_words(self) -> int:
        """Words of the output that are not as they must be."""
        return self._device.mismatches(self._output, self._expected)
