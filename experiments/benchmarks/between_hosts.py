"""How often runs of the same thing on two devices of one model, on two hosts, raise an alarm.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/between_hosts.py OUT.json HOST HOST ...

Each HOST is a folder of runs as `record_pairs.py` measures them on one host; those of the
same thing (``r00``, ``r01``, ...) count. The first half of each host's runs is held against the
second half of the next one's, so that no run stands in two pairs. How far runs lie apart is told by
all runs that are not of the pair. Needs no device.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from false_alarms import judged_pair, rates
from gpushmoo.comparing.compare import DELTA
from gpushmoo.comparing.false_alarms import Rate
from gpushmoo.comparing.levels import levels_of
from gpushmoo.comparing.runs import read_run


def between(hosts: list[Path], delta: float = DELTA) -> dict[str, Any]:
    """Rates of alarms over pairs of runs of two hosts."""
    by_host = [[read_run(path) for path in sorted(host.glob("r[0-9]*"))] for host in hosts]
    runs = [run for of_host in by_host for run in of_host]
    levels = levels_of(runs)
    pairs = [
        {**judged_pair(runs, levels, i, runs[j], (i, j), delta), "hosts": names}
        for i, j, names in places([len(of_host) for of_host in by_host])
    ]
    return {
        "devices": len({device for run in runs for device in run.devices}),
        "runs": [len(of_host) for of_host in by_host],
        "delta": delta,
        "same": rates(pairs),
        "largest_change": max(pair["largest_change"] for pair in pairs),
        "pairs": pairs,
    }


def places(counts: list[int]) -> list[tuple[int, int, tuple[int, int]]]:
    """Pairs of places among all runs, and of which hosts they are; no place stands twice."""
    first = [sum(counts[:host]) for host in range(len(counts))]
    found = []
    for host, count in enumerate(counts):
        following = (host + 1) % len(counts)
        half = counts[following] // 2
        for k in range(min(count // 2, counts[following] - half)):
            found.append((first[host] + k, first[following] + half + k, (host, following)))
    return found


def main(out: Path, hosts: list[Path]) -> None:
    """Write what was found, and print the rates."""
    found = between(hosts)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, rate in found["same"].items():
        if isinstance(rate, dict):
            print(f"{name:30} {Rate(rate['hits'], rate['n'])}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(place) for place in sys.argv[2:]])
