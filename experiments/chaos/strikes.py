"""What strikes a run: kinds, and how a round's strikes are drawn before it begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from processes import JOB, SNAKEMAKE, WORKER
from sweeps import EDITS

GROUP = "process group"
TREE = "job and measuring process"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGSEGV")
# Most of a run is measuring, and a promise is made of those who measure alone.
ROLES = (WORKER, WORKER, JOB, SNAKEMAKE, GROUP)
PAUSED = (WORKER, TREE, GROUP)
# Longer than a launch may take in these sweeps, with the library's grace of ten seconds.
LONG_PAUSE_S = (12.0, 15.0)
SHORT_PAUSE_S = (0.2, 2.5)
LONG_SHARE = 0.12

# Kinds that stop a process for a while; "hold" waits until it has the device.
PAUSES = ("pause", "long pause", "hold")
DAMAGES = (
    "truncated to 0",
    "truncated to half",
    "last byte cut off",
    "bit flipped",
    "deleted",
    "bytes appended",
)
# Which product is damaged: a shard costs a measurement, the rest little.
PARTS = ("cells", "dataset", "summary", "model", "figures", "report")
# What is made of a data set; a report is made of all the others.
LAST_PARTS = ("summary", "figures", "report", "report")
SWAPS = ("shard of another configuration", "shards exchanged", "hidden temporary file")
# Edits after which shards have the names that they had, and other cells or samples.
SAME_FILES = ("axis value added", "axis value removed", "axis value changed", "seed")
PLACES = ("cells", "dataset", "quarantine")


@dataclass(frozen=True)
class Strike:
    """One strike as drawn. `delay_s` is waited for after its target has appeared.

    `place` is what is struck: a role, a product, a folder. `draw` (0 to 1) chooses among files,
    bytes or values, and whether a strike at Snakemake waits until a job is at work; `seconds` is
    how long a pause or a full disk lasts; `keeps_time` says whether a damaged file keeps its
    modification time, as a flipped bit on a disk does.
    """

    kind: str
    place: str = ""
    delay_s: float = 0.0
    seconds: float = 0.0
    draw: float = 0.0
    keeps_time: bool = False

    @property
    def name(self) -> str:
        """What strikes are counted by."""
        return f"{self.kind}: {self.place}" if self.place else self.kind


def draw_signal(rng: Random) -> Strike:
    """A signal to one of the run's processes."""
    draw = rng.random()
    kind, role = rng.choice(SIGNALS), rng.choice(ROLES)
    # Most strikes at a measuring process meet it at its work, which begins a second after it does.
    late = role == WORKER and draw > 0.25
    return Strike(kind, role, delay_s=rng.uniform(0.9 if late else 0.0, 2.2), draw=draw)


def draw_pause(rng: Random, place: str | None = None) -> Strike:
    """SIGSTOP, and SIGCONT some time later."""
    is_long = rng.random() < LONG_SHARE
    seconds = rng.uniform(*(LONG_PAUSE_S if is_long else SHORT_PAUSE_S))
    kind = "long pause" if is_long else "pause"
    return Strike(kind, place or rng.choice(PAUSED), delay_s=rng.uniform(0.8, 2.0), seconds=seconds)


def draw_edit(rng: Random, edits: Collection[str] = EDITS.keys()) -> Strike:
    """An edited configuration; Snakemake is not running then, whoever else is."""
    return Strike("edit", rng.choice(sorted(edits)), draw=rng.random())


def draw_damage(rng: Random, parts: Sequence[str] = PARTS) -> Strike:
    """A file of the results, of one of `parts`, is damaged; or a shard is replaced."""
    keeps_time, draw = rng.random() < 0.5, rng.random()
    if rng.random() < 0.2 and parts == PARTS:
        return Strike(rng.choice(SWAPS), draw=draw, keeps_time=keeps_time)
    return Strike(rng.choice(DAMAGES), rng.choice(parts), draw=draw, keeps_time=keeps_time)


def draw_mount(rng: Random, place: str) -> Strike:
    """A folder of the results becomes a file system of its own, or a link to one."""
    return Strike(rng.choice(["mount", "link"]), place, draw=rng.random())


def _signals(rng: Random) -> list[Strike]:
    return [draw_signal(rng) if rng.random() < 0.7 else draw_pause(rng) for _ in range(8)]


def _orphans(rng: Random) -> list[Strike]:
    """Snakemake alone goes, its job stays; the configuration changes; more than once."""
    if rng.random() < 0.5:
        return _waiting_orphans(rng)
    drawn = []
    for _ in range(2):
        if rng.random() < 0.6:
            # Held, so that it outlives the edit and meets the next run.
            place = rng.choice([WORKER, TREE])
            seconds = rng.uniform(3.0, 13.0)
            drawn.append(Strike("pause", place, delay_s=rng.uniform(0.3, 2.0), seconds=seconds))
        kind = "SIGKILL" if rng.random() < 0.7 else rng.choice(SIGNALS)
        drawn.append(Strike(kind, SNAKEMAKE, delay_s=rng.uniform(0.0, 2.5), draw=1.0))
        drawn += [draw_edit(rng) for _ in range(rng.choice([1, 2]))]
    return drawn


def _waiting_orphans(rng: Random) -> list[Strike]:
    """One orphan holds the device, jobs of runs after it wait for that and become orphans, too."""
    held = Strike("hold", rng.choice([WORKER, TREE]), rng.uniform(0.0, 0.3), rng.uniform(12, 24))
    drawn = [held, Strike("SIGKILL", SNAKEMAKE, draw=1.0), draw_edit(rng, SAME_FILES)]
    for _ in range(rng.choice([1, 2])):
        # Late enough for the new job to be waiting.
        drawn.append(Strike("SIGKILL", SNAKEMAKE, delay_s=rng.uniform(1.2, 2.5), draw=1.0))
        drawn.append(draw_edit(rng, SAME_FILES))
    return drawn


def _files(rng: Random) -> list[Strike]:
    """Damage at rest to what a complete run has left, in half of the rounds to its end alone."""
    if rng.random() < 0.5:
        return [draw_damage(rng) for _ in range(8)]
    return [draw_damage(rng, LAST_PARTS) for _ in range(5)]


def _mounts(rng: Random) -> list[Strike]:
    """Folders on file systems of their own, on which damage and a full disk strike."""
    drawn = [draw_mount(rng, place) for place in rng.sample(PLACES, rng.choice([1, 2, 3]))]
    drawn += [draw_damage(rng) for _ in range(3)]
    drawn.append(Strike("disk full", "cells", rng.uniform(0.0, 3.0), rng.uniform(2.0, 6.0)))
    drawn.append(draw_signal(rng))
    return drawn


def _mixed(rng: Random) -> list[Strike]:
    draws = (draw_signal, draw_pause, draw_edit, draw_damage)
    return [rng.choice(draws)(rng) for _ in range(7)]


SCENARIOS = {
    "signals": (0.3, _signals),
    "orphans": (0.25, _orphans),
    "files": (0.2, _files),
    "mounts": (0.15, _mounts),
    "mixed": (0.1, _mixed),
}


@dataclass(frozen=True)
class Drawn:
    """A round before it begins: what is asked of Snakemake, from which state, and what strikes.

    `target` is empty for the whole report. `from_finished` says whether the results of a complete
    run lie there, or nothing.
    """

    number: int
    scenario: str
    target: str
    from_finished: bool
    strikes: tuple[Strike, ...]


def draw_round(seed: str, number: int) -> Drawn:
    """Round `number` of the chaos run `seed`: the same whatever rounds came before it."""
    rng = Random(f"{seed}/{number}")
    names = list(SCENARIOS)
    scenario = rng.choices(names, [SCENARIOS[n][0] for n in names])[0]
    strikes = SCENARIOS[scenario][1](rng)
    whole = scenario in ("files", "mounts") or rng.random() < 0.15
    target = "" if whole else "results/chaos/dataset"
    from_finished = scenario in ("files", "mounts", "mixed") or rng.random() < 0.3
    return Drawn(number, scenario, target, from_finished, tuple(strikes))
