"""Strikes small runs that really measure, and judges what they leave.

    make chaos STRIKES=200 MINUTES=25 SEED=7
    make chaos SEED=7 REPLAY=12          # round 12 of that chaos run alone, step by step

Each round begins with nothing or with the results of a complete run. Its drawn strikes are signals
(KILL, TERM, INT) and pauses (STOP, then CONT) for Snakemake, its jobs and their measuring
processes, and truncated files of the results. Then Snakemake is started until a start ends well,
and separate code compares the data set with the configuration. A round with findings keeps its
terminals and logs. Figures go to ``results/chaos/chaos.json``.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from conftest import ROOT
from copies import write_copy
from filelock import FileLock, Timeout
from processes import MARK, Process, end_all, gone, marked
from projects import Project, Run
from workflow_fixtures import new_project

RUN, CONFIG = "chaos", "chaos.yaml"
SPIN, COPY = "chaos_spin", "copy2d_coalesced"
THREAD_LIMIT, SAMPLES, REPEATS = 1024, 6, 2
# Launches are checked against this and a grace of the library's own, so that rounds stay short.
CELL_TIMEOUT_S = 1.0

# Its launches take some ten milliseconds, so that strikes meet a process that is in a kernel.
_TURNS = """
    def more(self, cell, blocks):
        return (np.uint32(12_000_000 // blocks),)

"""
_SPIN = """
    uint state = 1;
    if (get_local_id(0) == 0)
        for (uint t = 0; t < turns; ++t) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
        }
    if (state == 0)
        return;
"""


SWEEPS: dict[str, Any] = {
    COPY: {"variants": ["element"], "axes": {"block_x": [8, 16, 32, 512], "block_y": [4, 8]}},
    SPIN: {"variants": ["plain"], "axes": {"block_x": [32, 64, 128, 256]}},
}
for _sweep in SWEEPS.values():
    _sweep |= {"dtypes": ["float"], "sizes": [48, 64], "cache": ["warm"]}
MEASURE = {"repeats": REPEATS, "min_samples": SAMPLES, "max_samples": SAMPLES, "warmup": 0}
MEASURE |= {"cell_timeout_s": CELL_TIMEOUT_S, "cells_per_shard": 4}
SETTINGS: dict[str, Any] = {
    "run": RUN,
    "backend": "opencl",
    "only": list(SWEEPS),
    "kernels": SWEEPS,
    "measure": MEASURE,
    "chapters": None,
}

WORKER, JOB, SNAKEMAKE, GROUP = "measuring process", "job", "Snakemake", "process group"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
PAUSE, TRUNCATED = "pause", ("truncated to 0", "truncated to half")
# Most of a run is measuring, and a promise is made of those who measure alone.
STRUCK = (WORKER, WORKER, JOB, SNAKEMAKE, GROUP)
# A long pause is longer than a launch may take here, with the library's grace of ten seconds.
LONG_PAUSE_S, SHORT_PAUSE_S, LONG_SHARE = (12.0, 15.0), (0.2, 2.5), 0.12
PARTS = ("cells", "dataset", "summary", "figures", "report")


@dataclass(frozen=True)
class Strike:
    """One strike as drawn: `place` is a role or a part of the results.

    `delay_s` is waited for after the target has appeared; `seconds` is how long a pause lasts;
    `draw` (0 to 1) chooses among files.
    """

    kind: str
    place: str
    delay_s: float = 0.0
    seconds: float = 0.0
    draw: float = 0.0


@dataclass(frozen=True)
class Round:
    """A round before it begins: from which state it starts, what is asked for, what strikes."""

    number: int
    from_finished: bool
    target: str
    strikes: tuple[Strike, ...]


def draw_round(seed: str, number: int) -> Round:
    """Round `number` of the chaos run `seed`: the same whatever rounds came before it."""
    rng = Random(f"{seed}/{number}")
    from_finished = rng.random() < 0.4
    kinds = [_truncation] if from_finished and rng.random() < 0.5 else [_signal, _signal, _pause]
    if from_finished:
        kinds.append(_truncation)
    strikes = tuple(rng.choice(kinds)(rng) for _ in range(8))
    target = "" if from_finished or rng.random() < 0.15 else f"results/{RUN}/dataset"
    return Round(number, from_finished, target, strikes)


def _signal(rng: Random) -> Strike:
    # Most strikes at a measuring process meet it at work, which begins a second after it does.
    role = rng.choice(STRUCK)
    late = role == WORKER and rng.random() > 0.25
    return Strike(rng.choice(SIGNALS), role, delay_s=rng.uniform(0.9 if late else 0.0, 2.2))


def _pause(rng: Random) -> Strike:
    shortest, longest = LONG_PAUSE_S if rng.random() < LONG_SHARE else SHORT_PAUSE_S
    seconds = rng.uniform(shortest, longest)
    role = rng.choice((WORKER, JOB, GROUP))
    return Strike(PAUSE, role, delay_s=rng.uniform(0.8, 2.0), seconds=seconds)


def _truncation(rng: Random) -> Strike:
    return Strike(rng.choice(TRUNCATED), rng.choice(PARTS), draw=rng.random())


# A start that takes longer hangs, where a whole run that nothing strikes takes a third at most.
START_LIMIT_S = 120.0
# How long a target is waited for, and processes that have nothing more to do.
TARGET_LIMIT_S, GONE_LIMIT_S = 12.0, 20.0
STARTS_PROMISED, STARTS_AT_MOST = 2, 6
# So often may the measuring process of one job be ended from outside without blame: documented.
FORGIVEN = 2


@dataclass(frozen=True)
class Finding:
    """A broken promise: `kind` to count by, `detail` to look at."""

    kind: str
    detail: str


@dataclass
class Attack:
    """The state of one round."""

    project: Project
    mark: str
    screens: Path
    drawn: Round
    verbose: bool
    limit_s: float
    starts: list[Run] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    starts_after_last: int = 0
    _kills: Counter[int] = field(default_factory=Counter)
    _timers: list[threading.Timer] = field(default_factory=list)

    def play(self) -> None:
        """Let all strikes fall, then start until the run is complete."""
        for strike in self.drawn.strikes:
            if strike.kind in TRUNCATED:
                self._truncate(strike)
            else:
                self._strike_process(strike)
        self._recover()

    def close(self) -> None:
        """End what is left of the round."""
        for timer in self._timers:
            timer.cancel()
        end_all(self.mark)

    def _note(self, event: str) -> None:
        if self.verbose:
            print(f"  {datetime.now():%H:%M:%S}  {event}", flush=True)

    def _count(self, strike: Strike, what: str) -> None:
        self.counted[f"{strike.kind}: {strike.place}"] += 1
        self.starts_after_last = 0
        self._note(f"{strike.kind}: {strike.place}, {what}")

    # Starting

    def _call(self, *args: str) -> Run:
        screen = self.screens / f"terminal-{len(list(self.screens.iterdir())):02d}.txt"
        return self.project.start(*args, config=(CONFIG,), screen=screen, **{MARK: self.mark})

    def _start(self) -> Run:
        if any((self.project.root / ".snakemake" / "locks").glob("*")):
            self._call("--unlock").end(self.limit_s)
        self.starts.append(self._call(*([self.drawn.target] if self.drawn.target else [])))
        self.starts_after_last += 1
        self._note("start")
        return self.starts[-1]

    @property
    def _running(self) -> Run | None:
        return self.starts[-1] if self.starts and not self.starts[-1].ended else None

    def _ensure_running(self) -> Run:
        """The present start; where all is made, a start that measures everything again."""
        if self._running is None:
            complete = self._wait(self.starts[-1]) == 0 if self.starts else self.drawn.from_finished
            if complete:
                shutil.rmtree(self.project.root / "results" / RUN)
            return self._start()
        return self._running

    def _wait(self, start: Run) -> int:
        """Wait for its end; a start that hangs is a finding and is ended."""
        try:
            status = start.end(self.limit_s)
        except subprocess.TimeoutExpired:
            self.findings.append(Finding("hangs", "a start did not end"))
            end_all(self.mark)
            status = start.process.wait()
        self._note(f"ended with {status}")
        return status

    def _recover(self) -> None:
        while self._wait(self._running or self._start()) != 0:
            if self.starts_after_last >= STARTS_AT_MOST:
                break
        if self.starts_after_last > STARTS_PROMISED:
            self.findings.append(Finding("more than two starts", str(self.starts_after_last)))
        for timer in self._timers:
            timer.join()
        for left in gone(self.mark, GONE_LIMIT_S):
            self.findings.append(Finding("process left over", left.command))

    # Striking

    def _truncate(self, strike: Strike) -> None:
        results = self.project.root / "results" / RUN
        folder = results if strike.place == "report" else results / strike.place
        files = [p for p in products(results) if p.is_relative_to(folder)]
        if not files:
            return
        path = files[int(strike.draw * len(files))]
        size = path.stat().st_size
        # In place, so that no other name of the file escapes.
        os.truncate(path, 0 if strike.kind == TRUNCATED[0] else size // 2)
        self._count(strike, f"{path.relative_to(results)}, {size} bytes before")

    def _strike_process(self, strike: Strike) -> None:
        """Wait for the target and the drawn moment; where it ends before, for the next one."""
        for attempt in range(4):
            start = self._ensure_running()
            if not self._await(strike.place, start):
                continue
            # Sooner each time, because a short-lived target was gone at the drawn moment.
            time.sleep(strike.delay_s / 2**attempt)
            found = self._targets(strike.place)
            if found and self._hit(strike, found[-1]):
                self._count(strike, f"{found[-1].pid}, {strike.seconds:.1f} s")
                return
        self._note(f"missed: {strike}")

    def _await(self, place: str, start: Run) -> bool:
        """Wait for the target; strikes at Snakemake also wait until it has a job at work."""
        deadline, present = time.monotonic() + TARGET_LIMIT_S, False
        while time.monotonic() < deadline and not start.ended and not present:
            time.sleep(0.02)
            present = all(map(self._targets, (place, place if place == WORKER else JOB)))
        return present

    def _targets(self, place: str) -> list[Process]:
        """Whom a strike at `place` meets."""
        alive = marked(self.mark)
        if place in (SNAKEMAKE, GROUP):
            running = self._running
            return [p for p in alive if running and p.pid == running.process.pid]
        return [p for p in alive if _role(p) == place and not p.is_orphan]

    def _hit(self, strike: Strike, target: Process) -> bool:
        if strike.place == WORKER and strike.kind in SIGNALS:
            if self._kills[target.parent] == FORGIVEN:
                return False
            self._kills[target.parent] += 1
        number = signal.SIGSTOP if strike.kind == PAUSE else signal.Signals[strike.kind]
        if not _send(target, number, strike.place):
            return False
        if strike.kind == PAUSE:
            later = (target, signal.SIGCONT, strike.place)
            self._timers.append(threading.Timer(strike.seconds, _send, later))
            self._timers[-1].start()
        elif strike.place in (SNAKEMAKE, GROUP):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.starts[-1].end(0.3)
        return True


def _send(target: Process, number: signal.Signals, place: str) -> bool:
    if place != GROUP:
        return target.send(number)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(target.pid, number)
        return True
    return False


def _role(process: Process) -> str:
    """What a process is by its command line."""
    if ".worker " in process.command:
        return WORKER
    if ".snakemake/scripts/" in process.command or "gpushmoo.measuring.job" in process.command:
        return JOB
    return SNAKEMAKE if "-m snakemake" in process.command else "other"


def judge(attack: Attack) -> Iterator[Finding]:
    """Yield all faults in the results that a round has left."""
    yield from attack.findings
    root = attack.project.root
    results = root / "results" / RUN
    yield from judge_dataset(results / "dataset")
    if not attack.drawn.target:
        yield from judge_products(results)
    if any((root / ".snakemake" / "locks").glob("*")):
        yield Finding("lock left", "Snakemake's")
    for path in sorted((root / ".locks").glob("*.lock")):
        try:
            with FileLock(path, timeout=0):
                pass
        except Timeout:
            yield Finding("lock left", path.name)
    for screen in sorted(attack.screens.iterdir()):
        text = screen.read_text(encoding="utf-8", errors="replace")
        # A Ctrl-C while Python imports is Python's own.
        raised = set(re.findall(r"^Traceback .*?^(\w[\w.]*)(?::|$)", text, re.DOTALL | re.M))
        if raised - {"KeyboardInterrupt"}:
            yield Finding("raw exception", f"{screen.name}: {', '.join(sorted(raised))}")


def planned_cells() -> dict[tuple[Any, ...], int]:
    """Threads a block of each cell, from SWEEPS alone: no error of the plan is shared."""
    return {
        (name, size, size, x, y): x * (y or 1)
        for name, sweep in SWEEPS.items()
        for size in sweep["sizes"]
        for x in sweep["axes"]["block_x"]
        for y in sweep["axes"].get("block_y", [None])
    }


def judge_dataset(folder: Path) -> Iterator[Finding]:
    """What is wrong with the data set of a complete run."""
    rows: list[dict[str, Any]] = []
    try:
        for path in sorted(folder.rglob("*.parquet")):
            kernel = path.relative_to(folder).parts[0].removeprefix("kernel=")
            rows += [r | {"kernel": kernel} for r in pq.ParquetFile(path).read().to_pylist()]
    except (OSError, pa.ArrowException) as err:
        yield Finding("data set unreadable", str(err))
        return
    planned = planned_cells()
    names = ("kernel", "height", "width", "block_x", "block_y")
    keys = [tuple(row.get(name) for name in names) for row in rows]
    if Counter(keys) != Counter([*planned]):
        yield Finding("wrong rows", f"{len(planned)} cells planned, {len(rows)} rows")
    for key, row in zip(keys, rows, strict=True):
        status = "too_many_threads" if planned.get(key, 0) > THREAD_LIMIT else "ok"
        if key in planned and row["status"] != status:
            text = f"{key} is '{row['status']}': {row['message']}"
            yield Finding("innocent cell blamed", text)
        elif row["status"] == "ok":
            yield from (Finding("wrong rows", f"{key}: {text}") for text in _implausible(row))


def _implausible(row: Mapping[str, Any]) -> Iterator[str]:
    """What in the values of an ``ok`` row cannot be, or contradicts the rest of the row."""
    samples, counts = np.array(row["samples_s"], dtype=float), row["repeat_samples"]
    if len(counts) != REPEATS or min(counts) < SAMPLES or sum(counts) != len(samples):
        yield f"{counts} samples in {REPEATS} repeats"
        return
    if not ((samples > 0) & (samples <= CELL_TIMEOUT_S)).all():
        yield "a sample is not a time, or is longer than a launch may take"
    medians = [float(np.median(part)) for part in np.split(samples, np.cumsum(counts)[:-1])]
    n_bytes = 4 * row["height"] * row["width"]
    for what, found, expected in (
        ("repeat_medians_s", row["repeat_medians_s"], medians),
        ("median_s", row["median_s"], math.exp(np.log(medians).mean())),
        ("bytes", [row["bytes_read"], row["bytes_written"]], [n_bytes] * 2),
        ("bandwidth_gbs", row["bandwidth_gbs"], 2e-9 * n_bytes / row["median_s"]),
    ):
        if not np.allclose(found, expected, rtol=1e-9, atol=0):
            yield f"{what} is {found}, not {expected}"
    if not row["median_low_s"] <= row["median_s"] <= row["median_high_s"]:
        yield "the median is outside of its interval"
    if not row["verified_words"] or row["wrong_words"] != 0:
        yield "an ok cell that was not verified"


def judge_products(results: Path) -> Iterator[Finding]:
    """Yield products of a complete run that cannot be read in the format of their suffix."""
    readers: dict[str, Callable[[bytes], Any]] = {
        ".json": json.loads,
        ".svg": ET.fromstring,
        ".parquet": lambda raw: pq.ParquetFile(pa.BufferReader(raw)).read(),
        # Readers look for the end within the last kilobyte.
        ".pdf": lambda raw: raw[-1024:].index(b"%%EOF") + raw[:5].index(b"%PDF-"),
    }
    for path in products(results):
        try:
            raw = path.read_bytes()
            readers.get(path.suffix, lambda raw: raw[0])(raw)
        except (ValueError, LookupError, ET.ParseError, OSError, pa.ArrowException) as err:
            text = f"{path.relative_to(results)}: {str(err).splitlines()[:1]}"
            yield Finding("damaged product left", text)


def products(results: Path) -> list[Path]:
    """The files of a run that a reader may open: without logs, caches and what was set aside.

    Benchmarks go with the logs: a job that measured writes its own once, and nothing reads it.
    """
    found = []
    for path in sorted(p for p in results.rglob("*") if p.is_file() and p.name != "plan.json"):
        parts = path.relative_to(results).parts
        if parts[0] not in ("logs", "benchmarks", "quarantine") and not any(
            p.startswith(".") for p in parts
        ):
            found.append(path)
    return found


class Stage:
    """A copy of the project, and the results of a complete run to begin rounds with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, new_project(folder / "project")
        root, axes = self.project.root, {"block_x": [32, 64]}
        write_copy(root, SPIN, axes, ("float",), (64,), _SPIN, "const uint turns", _TURNS)
        self.project.write_config(CONFIG, SETTINGS)
        began = time.monotonic()
        done = self.project.snakemake(config=(CONFIG,))
        if done.status != 0:
            raise SystemExit(f"A run that nothing strikes fails:\n{done.text}")
        self.clean_run_s = time.monotonic() - began
        for name in ("results", ".snakemake"):
            shutil.copytree(root / name, folder / "finished" / name)

    def clear(self, finished: bool) -> None:
        """Leave nothing of a run, or the complete one."""
        for name in ("results", ".snakemake"):
            shutil.rmtree(self.project.root / name, ignore_errors=True)
            if finished:
                shutil.copytree(self.folder / "finished" / name, self.project.root / name)


def play_round(stage: Stage, drawn: Round, kept: Path, verbose: bool) -> Attack:
    """One round with all its findings; what it left is kept under `kept` if anything was found."""
    stage.clear(finished=drawn.from_finished)
    screens = stage.folder / f"round-{drawn.number:03d}"
    screens.mkdir()
    limit_s = max(START_LIMIT_S, 3 * stage.clean_run_s)
    mark = f"{stage.folder.name}-{drawn.number}"
    attack = Attack(stage.project, mark, screens, drawn, verbose, limit_s)
    try:
        attack.play()
        attack.findings = list(judge(attack))
        if attack.findings:
            folder = kept / screens.name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(screens, folder)
            shutil.copytree(stage.project.root / "results" / RUN / "logs", folder / "logs")
    finally:
        attack.close()
        shutil.rmtree(screens)
    return attack


def chaos(seed: str, strikes: int, minutes: float, out: Path, replay: int | None) -> bool:
    """Play rounds until all strikes fell or the time is over; return whether a promise broke."""
    folder = Path(tempfile.mkdtemp(prefix="gpushmoo-chaos-"))
    began = time.monotonic()
    rounds: list[Attack] = []
    try:
        stage = Stage(folder)
        for number in itertools.count(1) if replay is None else [replay]:
            rounds.append(
                play_round(stage, draw_round(seed, number), out.with_suffix(""), bool(replay))
            )
            print(f"round {number}: {rounds[-1].counted.total()} strikes", flush=True)
            for finding in rounds[-1].findings:
                print(f"  FOUND {finding.kind}: {finding.detail}", flush=True)
            over = time.monotonic() - began > 60 * minutes
            if over or sum(r.counted.total() for r in rounds) >= strikes:
                break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = _figures(seed, rounds, time.monotonic() - began)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({**found, "rounds_with_findings": "in the file"}, indent=1))
    broken = sum(found["violations_by_kind"].values())
    print(f"{found['strikes']} strikes in {len(rounds)} rounds, {broken} promises broken")
    return broken > 0


def _figures(seed: str, rounds: list[Attack], seconds: float) -> dict[str, Any]:
    """The figures of a chaos run. However many cells show it, a promise breaks once a round."""
    strikes: Counter[str] = sum((r.counted for r in rounds), Counter())
    told = {r.drawn.number: [asdict(f) for f in r.findings] for r in rounds if r.findings}
    kinds = [f.kind for r in rounds for f in r.findings]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "seed": seed,
        "seconds": round(seconds, 1),
        "rounds": len(rounds),
        "strikes": strikes.total(),
        "strikes_by_kind": dict(sorted(strikes.items())),
        "most_starts_after_the_last_strike": max(r.starts_after_last for r in rounds),
        "innocent_cells_with_a_fault_status": kinds.count("innocent cell blamed"),
        "violations_by_kind": Counter(k for fs in told.values() for k in {f["kind"] for f in fs}),
        "rounds_with_findings": [{"round": n, "findings": found} for n, found in told.items()],
    }


def main() -> None:
    """Read the command line; exit status 1 if a promise was broken."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--seed", default=str(SystemRandom().randrange(2**32)), help="of the draws")
    parser.add_argument("--strikes", type=int, default=200, help="end after this number")
    parser.add_argument("--minutes", type=float, default=25.0, help="or after so long")
    parser.add_argument("--replay", type=int, help="number of the one round to play, step by step")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "chaos" / "chaos.json")
    given = parser.parse_args()
    print(f"make chaos SEED={given.seed}", flush=True)
    sys.exit(chaos(given.seed, given.strikes, given.minutes, given.out, given.replay))


if __name__ == "__main__":
    main()
