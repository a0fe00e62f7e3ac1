"""Queue many samples, or many launches to verify, without a wait between them on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import TypedError
from ..base import PreparedLaunch, Sample, each_or_error
from ..memory import Checksum, OutOfBoundsWrites, ProofBuffers, ProofResult, Strays, deviation
from .buffers import CudaBuffers
from .timing import EventTimer


class CudaBatches:
    """Sampling and verification of several launches at once, see `base.Batches`.

    Parameters
    ----------
    device
        The device.
    timer
        Times commands on the device's stream.
    """

    def __init__(self, device: CudaBuffers, timer: EventTimer) -> None:
        """Keep the device and the timer of its stream."""
        self._device, self._timer = device, timer

    def sample(self, samples: Sequence[Sample]) -> Sequence[float | TypedError]:
        """Take all samples behind one spinning kernel. Isolated samples follow one by one."""
        if any(sample.met.timing_mode == "isolated" for sample in samples):
            return each_or_error(Sample.take, samples)
        return self._timer.time_all(samples)

    def prove(
        self, proofs: Sequence[PreparedLaunch], proof_buffers: ProofBuffers
    ) -> list[ProofResult | TypedError]:
        """Queue all launches with their checks, and fetch the results of all checks at once."""
        device = self._device
        outputs, guarded, inputs = (
            proof_buffers.outputs,
            proof_buffers.guarded,
            proof_buffers.inputs,
        )
        # A row for each proof: two words for each output and for each guarded buffer, one for each
        # input.
        zones_at = 2 * len(outputs)
        sums_at = zones_at + 2 * len(guarded)
        end = sums_at + len(inputs)

        def queue(proof: Any, start: Any, stop: Any, row: Any) -> None:
            with device.translated():
                for output in outputs:
                    device.queue_preparation(output, proof_buffers.poison)
                start.record(device.stream)
                proof.enqueue()
                stop.record(device.stream)
                for i, output in enumerate(outputs):
                    device.queue_comparison(device.linear(output.buffer), output, row[2 * i :])
                for i, buffer in enumerate(guarded):
                    device.check(Strays(), buffer, row[zones_at + 2 * i :])
                for i, buffer in enumerate(inputs):
                    device.check(Checksum(), buffer, row[sums_at + i :])

        def proven(start: Any, stop: Any, row: npt.NDArray[np.uint32]) -> ProofResult:
            seconds = 1e-3 * float(device.cupy.cuda.get_elapsed_time(start, stop))
            pairs = row[:sums_at].reshape(-1, 2)
            n = len(outputs)
            deviations = [deviation(o, pair) for o, pair in zip(outputs, pairs[:n], strict=True)]
            strays = [OutOfBoundsWrites(*map(int, pair)) for pair in pairs[n:]]
            return ProofResult(seconds, deviations, strays, row[sums_at:end].tolist())

        with device.translated(), device.stream:
            found = device.cupy.zeros((len(proofs), end + end % 2), dtype=np.uint32)
            events = self._timer.event_pairs(len(proofs))
            queued = [(p, *pair, row) for p, pair, row in zip(proofs, events, found, strict=True)]
            failed = each_or_error(lambda item: queue(*item), queued)
            rows = found.get(stream=device.stream)
            device.stream.synchronize()
            return [
                proven(*pair, row) if error is None else error
                for error, pair, row in zip(failed, events, rows, strict=True)
            ]
