"""A run under attack: starts Snakemake, lets strikes fall, restarts until it is complete."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TextIO

from damage import Damage, FileSystems, damage, results_of
from judge import Finding
from processes import JOB, MARK, SNAKEMAKE, WORKER, Process, end_all, gone, marked
from projects import Project, Run
from strikes import GROUP, PAUSES, SIGNALS, TREE, Drawn, Strike, draw_edit
from sweeps import BASE, EDITS, Config, write_config

# A start that takes longer hangs, where a whole run that nothing strikes takes a third at most:
# nothing here takes half a minute but the pauses.
START_LIMIT_S = 120.0
# How long a target is waited for, and processes that have nothing more to do.
TARGET_LIMIT_S = 12.0
GONE_LIMIT_S = 20.0
STARTS_AT_MOST = 6
# Of the strikes at Snakemake or its group the share that does not wait for a job to be at work.
AT_ONCE = 0.25
# So often may the measuring process of one job be ended from outside without blame: documented.
FORGIVEN = 2


@dataclass
class Attack:
    """The state of one round; `history` says what fell when, in seconds since its beginning."""

    project: Project
    mark: str
    screens: Path
    other_cells: Path
    drawn: Drawn
    # For what could not be drawn before: an edit that gives a finished run something to do.
    rng: Random
    told: TextIO | None = None
    limit_s: float = START_LIMIT_S
    config: Config = field(default_factory=lambda: copy.deepcopy(BASE))
    history: list[dict[str, Any]] = field(default_factory=list)
    starts: list[Run] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    starts_after_last: int = 0
    damages: list[Damage] = field(default_factory=list)
    # What was struck while the last start ran.
    _struck: set[str] = field(default_factory=set)
    _kills: Counter[int] = field(default_factory=Counter)
    _timers: list[threading.Timer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self.files = FileSystems(self.results)
        write_config(self.project.root, self.config)

    @property
    def results(self) -> Path:
        """The run's folder."""
        return results_of(self.project.root)

    def play(self) -> None:
        """Let all strikes fall, then start until the run is complete."""
        for strike in self.drawn.strikes:
            self._fall(strike)
        self._recover()

    def close(self) -> None:
        """End what is left of the round."""
        for timer in self._timers:
            timer.cancel()
        end_all(self.mark)
        self.files.undo()

    # Starting

    def _start(self) -> Run:
        if any((self.project.root / ".snakemake" / "locks").glob("*")):
            self._note("unlock")
            self._call("--unlock").end(self.limit_s)
        began = self._call(*([self.drawn.target] if self.drawn.target else []))
        self.starts.append(began)
        self._struck.clear()
        self.starts_after_last += 1
        self._note("start", number=len(self.starts))
        return began

    def _call(self, *args: str) -> Run:
        screen = self.screens / f"terminal-{len(list(self.screens.iterdir())):02d}.txt"
        marks = {MARK: self.mark}
        return self.project.start(*args, config=("chaos.yaml",), screen=screen, **marks)

    @property
    def _running(self) -> Run | None:
        last = self.starts[-1] if self.starts else None
        return last if last is not None and not last.ended else None

    def _ensure_running(self) -> Run:
        """The present start; a new one where it has ended, with something to do for it."""
        if (running := self._running) is not None:
            return running
        finished = self.drawn.from_finished
        if self.starts:
            finished = self._wait(self.starts[-1]) == 0
        if finished:
            self._edit(draw_edit(self.rng))
        return self._start()

    def _wait(self, start: Run) -> int:
        """Wait for its end; a start that hangs is a finding and is ended."""
        try:
            status = start.end(self.limit_s)
        except subprocess.TimeoutExpired:
            left = ", ".join(f"{p.role} {p.pid}" for p in marked(self.mark))
            self.findings.append(Finding("hangs", f"a start did not end; there were {left}"))
            self._note("hangs")
            end_all(self.mark)
            status = start.process.wait()
        self._note("ended", status=status)
        if status != 0 and self._struck == {WORKER} and self.drawn.scenario == "signals":
            text = "only its measuring processes were struck, and the run did not go on"
            self.findings.append(Finding("restart for a measuring process", text))
        self._struck.clear()
        return status

    def _recover(self) -> None:
        """Start until a start ends well."""
        while True:
            start = self._running or self._start()
            if self._wait(start) == 0:
                break
            if self.starts_after_last >= STARTS_AT_MOST:
                text = f"not complete after {self.starts_after_last} starts"
                self.findings.append(Finding("no recovery", text))
                break
        for timer in self._timers:
            timer.join()
        left = gone(self.mark, GONE_LIMIT_S)
        if left:
            text = ", ".join(f"{p.role} {p.pid}" for p in left)
            self.findings.append(Finding("process left over", text))
            end_all(self.mark)

    # Striking

    def _fall(self, strike: Strike) -> None:
        if strike.kind == "edit":
            self._edit(strike)
        elif strike.kind in SIGNALS:
            self._strike_process(strike, self._signal)
        elif strike.kind in PAUSES:
            self._strike_process(strike, self._pause)
        elif strike.kind in ("mount", "link"):
            self._put_elsewhere(strike)
        elif strike.kind == "disk full":
            self._fill_disk(strike)
        else:
            done = damage(self.results, strike, self.other_cells)
            if done is not None:
                self.damages.append(done)
                self._count(strike, done.text)

    def _count(self, strike: Strike, what: str) -> None:
        self.counted[strike.name] += 1
        self.starts_after_last = 0
        self._struck.add(strike.place)
        self._note(strike.name, what=what, drawn=asdict(strike))

    def _note(self, event: str, **more: Any) -> None:
        entry = {"at_s": round(time.monotonic() - self._began, 2), "event": event, **more}
        self.history.append(entry)
        if self.told is not None:
            print(f"  {entry['at_s']:7.2f}  {event}  {more or ''}", file=self.told, flush=True)

    def _edit(self, strike: Strike) -> None:
        """Edit the configuration; if Snakemake runs it is killed before, and nobody else."""
        if (running := self._running) is not None:
            running.process.send_signal(signal.SIGCONT)
            running.kill()
            self._count(Strike("SIGKILL", SNAKEMAKE), "before an edit")
        EDITS[strike.place](self.config, Random(strike.draw))
        write_config(self.project.root, self.config)
        shown = {name: self.config["kernels"][name] for name in self.config["only"]}
        self._count(strike, f"{shown}, {self.config['measure']}, seed {self.config['seed']}")

    def _put_elsewhere(self, strike: Strike) -> None:
        if (running := self._running) is not None:
            self._wait(running)
        self._count(strike, self.files.put(strike.place, strike.kind == "link"))

    def _fill_disk(self, strike: Strike) -> None:
        if self._running is None:
            filler = self.files.fill()
            if filler is None:
                return
            self._ensure_running()
        else:
            time.sleep(strike.delay_s)
            filler = self.files.fill()
            if filler is None:
                return
        self._count(strike, f"for {strike.seconds:.1f} s")
        self._later(strike.seconds, lambda: filler.unlink(missing_ok=True))

    def _strike_process(
        self, strike: Strike, do: Callable[[Strike, list[Process]], str | None]
    ) -> None:
        """Wait for the target and the drawn moment; where it ends before, for the next one."""
        for attempt in range(4):
            start = self._ensure_running()
            if not self._await(strike, start):
                continue
            # Sooner each time, as what is short-lived was gone at the drawn moment.
            time.sleep(strike.delay_s / 2**attempt)
            found = self._targets(strike.place)
            if not found:
                continue
            what = do(strike, found)
            if what is not None:
                self._count(strike, what)
                return
        self._note("missed", drawn=asdict(strike))

    def _await(self, strike: Strike, start: Run) -> bool:
        """Wait for the target; most strikes at Snakemake also wait until it has a job at work."""
        whole_run = strike.place in (SNAKEMAKE, GROUP) and strike.draw > AT_ONCE
        deadline = time.monotonic() + TARGET_LIMIT_S
        while time.monotonic() < deadline:
            at_work = not whole_run or any(
                p.role == JOB and p.parent == start.process.pid for p in marked(self.mark)
            )
            has_device = strike.kind != "hold" or self._device_is_locked()
            if at_work and has_device and self._targets(strike.place):
                return True
            if start.ended:
                return False
            time.sleep(0.02)
        return False

    def _device_is_locked(self) -> bool:
        """Whether any process holds a lock of a device, by the system's own list."""
        files = [p.stat().st_ino for p in (self.project.root / ".locks").glob("*.lock")]
        held = Path("/proc/locks").read_text(encoding="utf-8").split()
        return any(entry.endswith(f":{inode}") for inode in files for entry in held)

    def _targets(self, place: str) -> list[Process]:
        """Whom a strike at `place` meets: not orphans, where there is anyone else."""
        alive = marked(self.mark)
        jobs = {p.pid: p for p in alive if p.role == JOB}
        if place in (SNAKEMAKE, GROUP):
            running = self._running
            found = [p for p in alive if running and p.pid == running.process.pid]
        elif place == JOB:
            found = list(jobs.values())
        else:
            found = [p for p in alive if p.role == WORKER and p.parent in jobs]
        if place == TREE:
            found = [q for p in found[-1:] for q in (jobs[p.parent], p)]
        return found

    def _signal(self, strike: Strike, found: list[Process]) -> str | None:
        target = found[-1]
        number = signal.Signals[strike.kind]
        if strike.place == GROUP:
            os.killpg(target.pid, number)
            self._settle()
            return f"group {target.pid}"
        if strike.place == WORKER:
            if self._kills[target.parent] == FORGIVEN:
                return None
            self._kills[target.parent] += 1
        if not target.send(number):
            return None
        if strike.place == SNAKEMAKE:
            self._settle()
        return f"{target.role} {target.pid}"

    def _settle(self) -> None:
        """What ends Snakemake ends it now; what does not leaves it time for a word."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.starts[-1].end(0.3)

    def _pause(self, strike: Strike, found: list[Process]) -> str | None:
        if strike.place == GROUP:
            group = found[-1].pid
            os.killpg(group, signal.SIGSTOP)
            self._later(strike.seconds, lambda: _continue_group(group))
            return f"group {group} for {strike.seconds:.1f} s"
        paused = found if strike.place == TREE else found[-1:]
        sent = [p.send(signal.SIGSTOP) for p in paused]
        if not all(sent):
            return None
        self._later(strike.seconds, lambda: [p.send(signal.SIGCONT) for p in paused])
        return f"{', '.join(str(p.pid) for p in paused)} for {strike.seconds:.1f} s"

    def _later(self, seconds: float, do: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, do)
        timer.start()
        self._timers.append(timer)


def _continue_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGCONT)
    except ProcessLookupError:
        return
