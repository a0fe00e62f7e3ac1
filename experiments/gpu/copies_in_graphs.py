"""Time copies by the runtime of CUDA in a graph and one by one in a stream.

    python experiments/gpu/copies_in_graphs.py copies.json

Some sizes are copied more slowly in a graph, so the memcpy baseline is timed in the faster way.
Each figure is the fastest of five rows of copies between two events, behind one untimed row, in
10⁹ bytes read and written per second. Needs a CUDA device and CuPy.
"""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cupy

MIB = 2**20
# Around the sizes at which CUDA changes its way. Two of them are not multiples of 4,096.
SIZES = (
    *(n * MIB for n in (1, 4, 8, 16, 64, 128, 256, 384, 448, 512, 640, 768, 1024, 3072)),
    4 * 1448**2,
    4 * 4432**2,
    512 * MIB - 4096,
    512 * MIB + 4096,
)
# Copies in a row, and rows.
COPIES, ROWS = (2, 8), 5


def main() -> None:
    """Time all sizes, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    found = [
        {"copies": copies, "bytes": n_bytes, "gbs": ways_gbs(copies, n_bytes)}
        for copies in COPIES
        for n_bytes in sorted(SIZES)
    ]
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    versions = {
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "runtime": cupy.cuda.runtime.runtimeGetVersion(),
    }
    date = datetime.now(UTC).isoformat("T", "seconds")
    record = {"device": device, "date": date, "versions": versions, "rows": found}
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def ways_gbs(copies: int, n_bytes: int) -> dict[str, float]:
    """Return the bandwidth of this number of copies in a row, in a graph and in a stream."""
    stream = cupy.cuda.Stream(non_blocking=True)
    source, target = (cupy.zeros(n_bytes, cupy.uint8) for _ in range(2))

    def one_by_one() -> None:
        for _ in range(copies):
            target.data.copy_from_device_async(source.data, n_bytes, stream)

    with stream:
        stream.begin_capture()
        one_by_one()
        graph = stream.end_capture()
        graph.upload(stream)
        ways: dict[str, Callable[[], None]] = {"graph": graph.launch, "stream": one_by_one}
        return {
            name: 2 * n_bytes * copies / fastest_s(stream, one_by_one, way) * 1e-9
            for name, way in ways.items()
        }


def fastest_s(stream: Any, before: Callable[[], None], timed: Callable[[], None]) -> float:
    """Return the seconds of the fastest row."""
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    seconds = []
    for _ in range(ROWS):
        before()
        start.record(stream)
        timed()
        stop.record(stream)
        stream.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, stop) * 1e-3)
    return min(seconds)


if __name__ == "__main__":
    main()
