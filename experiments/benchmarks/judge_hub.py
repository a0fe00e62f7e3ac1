"""What the published search spaces of AutoTuningAssociation/benchmark_hub show: winners and ties.

    export PYTHONPATH=workflow/scripts
    git clone https://github.com/AutoTuningAssociation/benchmark_hub
    python experiments/benchmarks/judge_hub.py benchmark_hub reports/reference/judged/hub.json

`gpushmoo judge` on each of the hub's Kernel Tuner caches, and on the T4 file beside it. Its tied
sets are checked in two ways that share no code with it: the winners of both halves of the samples,
and those of resampled blocks. On made-up samples whose truth is known, ``simulated`` says how often
the truly fastest is among the tied. Needs no device.
"""

import argparse
import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gpushmoo.comparing.compare import DELTA
from gpushmoo.extras.judging.judge import blocks_of, centres, judge

Floats = npt.NDArray[np.float64]
WARM_UP, BLOCK, RESAMPLES, TRIALS = 4, 4, 1000, 200
T4 = "_T4"


def judged(file: Path) -> dict[str, Any]:
    """The row of a cache, with both checks."""
    [row] = judge([file]).rows.to_dict("records")
    # The hub has every space in both forms.
    [twin] = judge([file.with_name(file.name.replace(".json", f"{T4}.json"))]).rows["tied"]
    entries = json.loads(gzip.decompress(file.read_bytes()))["cache"].values()
    timed = [e for e in entries if isinstance(e["time"], float)]
    days = sorted({str(e["timestamp"])[:10] for e in entries})
    samples = np.array([e["times"] for e in timed])
    means = np.array([e["time"] for e in timed]) / samples.mean(axis=1)
    samples = samples[:, WARM_UP:]
    names = ("device_name", "configurations", "timed", "samples", "tied", "near")
    return {
        "file": f"{file.parent.name}/{file.name}",
        **{name: row[name] for name in (*names, "winner", "published", "published_tied")},
        "days": [days[0], days[-1]],
        "t4_tied": twin,
        "no_means": int((abs(means - 1.0) > 1e-6).sum()),
        "halves": halves(samples),
        "resampled": resampled(samples),
    }


def halves(samples: Floats) -> dict[str, Any]:
    """Whether both halves name the same, and what the first one's choice costs in the second."""
    middle = samples.shape[1] // 2
    first, second = np.median(samples[:, :middle], axis=1), np.median(samples[:, middle:], axis=1)
    cost = float(second[first.argmin()] / second.min() - 1.0)
    return {"agree": bool(first.argmin() == second.argmin()), "cost": cost}


def resampled(samples: Floats) -> dict[str, Any]:
    """How often blocks drawn again name the same winner, and how many names 95 % of them have.

    `moved` is the share of configurations whose blocks differ by more than 5 %.
    """
    logs = np.log(np.median(samples.reshape(len(samples), -1, BLOCK), axis=2))
    moved = float(np.mean(np.ptp(logs, axis=1) > np.log(1.05)))
    means, rng = logs.mean(axis=1), np.random.default_rng(1)
    # Nothing slower than this has ever won.
    logs = logs[means < means.min() + 0.7]
    best, n = int(logs.mean(axis=1).argmin()), logs.shape[1]
    wins = np.zeros(len(logs), int)
    for _ in range(RESAMPLES):
        drawn = rng.integers(n, size=logs.shape)
        wins[np.take_along_axis(logs, drawn, axis=1).mean(axis=1).argmin()] += 1
    names = int(np.searchsorted(np.cumsum(np.sort(wins)[::-1]), 0.95 * RESAMPLES)) + 1
    return {"same": float(wins[best] / RESAMPLES), "names": names, "moved": moved}


def independent(rng: np.random.Generator, m: int) -> Floats:
    """Noise of 1 % without memory."""
    return 0.01 * rng.standard_normal((m, 32))


def remembering(rng: np.random.Generator, m: int) -> Floats:
    """As `independent`, each sample drawn towards the one before (first order, 0.8)."""
    noise = rng.standard_normal((m, 82))
    for i in range(1, 82):
        noise[:, i] = 0.8 * noise[:, i - 1] + 0.6 * noise[:, i]
    return 0.01 * noise[:, 50:]


def stepping(rng: np.random.Generator, m: int) -> Floats:
    """A clock that steps by 8 % and back, once in twenty samples."""
    steps = rng.random((m, 82)) < 0.05
    return 0.08 * (np.cumsum(steps, axis=1)[:, 50:] % 2) + 0.001 * rng.standard_normal((m, 32))


def simulated(noise: Callable[[np.random.Generator, int], Floats], near: int) -> dict[str, Any]:
    """How often the truly fastest is tied, of 2,000, `near` of which are within half a per cent."""
    rng = np.random.default_rng(near)
    hits, sizes = 0, []
    for _ in range(TRIALS):
        true = np.r_[0.0, rng.uniform(5e-4, 5e-3, near), rng.uniform(0.05, 0.6, 1999 - near)]
        middle, half = centres(blocks_of(np.exp(true[:, None] + noise(rng, len(true)))))
        first = int(middle.argmin())
        tied = middle - half <= middle[first] + half[first]
        hits += int(tied[0])
        sizes.append(int(tied.sum()))
    told = {"noise": noise.__name__, "near": near, "trials": TRIALS}
    return {**told, "held": hits / TRIALS, "tied": float(np.median(sizes))}


def main() -> None:
    """Judge all that is there, and say what is not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("hub", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", "-C", asked.hub, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    [commit], [day] = git("rev-parse", "HEAD"), git("log", "-1", "--format=%cs")
    listed = git("ls-tree", "-r", "--name-only", "HEAD", "cachefiles/")
    files = [asked.hub / name for name in listed if T4 not in name]
    there = [file for file in files if file.is_file()]
    told = {
        "repository": "AutoTuningAssociation/benchmark_hub",
        "commit": commit,
        "day": day,
        "licence": "MIT",
        "threshold": DELTA,
        "not_read": [f"{f.parent.name}/{f.name}" for f in files if f not in there],
        "spaces": [judged(file) for file in there],
        "simulated": [
            simulated(noise, near)
            for noise in (independent, remembering, stepping)
            for near in (20, 200)
        ],
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
