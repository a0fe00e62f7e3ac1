"""Strikes small runs that really measure, many times and in many ways, and judges what they leave.

    make chaos STRIKES=200 MINUTES=25 SEED=7
    make chaos SEED=7 REPLAY=12          # round 12 of that chaos run alone, told step by step

Each round begins with nothing or with the results of a complete run, lets its drawn strikes fall on
Snakemake, its jobs, their measuring processes and the files they make, and starts Snakemake again
as the README says until a start ends well. Then code of its own compares what lies there with the
configuration. Findings are kept with the round's history, terminal and logs, and end nothing.
Figures go to ``results/chaos/chaos.json``, a text for the documentation beside them.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from attack import START_LIMIT_S, Attack
from damage import digest_of, results_of
from figures_file import parser_of, provenance, write_figures
from judge import (
    Finding,
    hidden_files,
    judge_dataset,
    judge_locks,
    judge_products,
    judge_shards,
    products,
)
from projects import Project
from strikes import Drawn, draw_round
from sweeps import BASE, Config, other_config, write_config, write_kernel
from terminal import foreign_lines, raw_exceptions
from workflow_fixtures import new_project

# Of these no promise speaks; they are counted all the same.
EARLY = "Ctrl-C before Snakemake had read the Snakefile"
REMARKS = frozenset({"damaged shard that nothing read", "hidden temporary file left", EARLY})
# Starts after the last strike of a round, until it is complete.
STARTS_PROMISED = 2


@dataclass
class Stage:
    """A copy of the project, a complete run of BASE to begin rounds with, shards of another one."""

    folder: Path
    project: Project = field(init=False)

    def __post_init__(self) -> None:
        self.project = new_project(self.folder / "project")
        write_kernel(self.project.root)
        self._measure(other_config(), "results/chaos/dataset")
        shutil.move(self.results / "cells", self.other_cells)
        self.clear()
        self.clean_run_s = self._measure(BASE)
        for name in ("results", ".snakemake"):
            shutil.copytree(self.project.root / name, self.folder / "finished" / name)

    @property
    def results(self) -> Path:
        """The run's folder."""
        return results_of(self.project.root)

    @property
    def other_cells(self) -> Path:
        """Shards of another configuration."""
        return self.folder / "other-cells"

    def _measure(self, config: Config, *targets: str) -> float:
        write_config(self.project.root, config)
        began = time.monotonic()
        done = self.project.snakemake(*targets, config=("chaos.yaml",))
        if done.status != 0:
            raise SystemExit(f"A run that nothing strikes fails:\n{done.text}")
        return time.monotonic() - began

    def clear(self, finished: bool = False) -> None:
        """Leave nothing of a run, or the complete one."""
        for name in ("results", ".snakemake"):
            shutil.rmtree(self.project.root / name, ignore_errors=True)
            if finished:
                shutil.copytree(self.folder / "finished" / name, self.project.root / name)


@dataclass
class Total:
    """What all rounds together came to."""

    strikes: Counter[str] = field(default_factory=Counter)
    scenarios: Counter[str] = field(default_factory=Counter)
    # Rounds in which there were findings of a kind, and innocent cells that were blamed.
    findings: Counter[str] = field(default_factory=Counter)
    blamed: int = 0
    starts: Counter[int] = field(default_factory=Counter)
    rounds_with_findings: list[dict[str, Any]] = field(default_factory=list)


def play_round(stage: Stage, drawn: Drawn, kept: Path, told: bool) -> tuple[Attack, list[Finding]]:
    """One round; what it left is kept under `kept` if anything was found."""
    stage.clear(finished=drawn.from_finished)
    screens = stage.folder / f"round-{drawn.number:03d}"
    screens.mkdir()
    rng = Random(f"{drawn.number}/more")
    mark = f"{stage.folder.name}-{drawn.number}"
    attack = Attack(
        *(stage.project, mark, screens, stage.other_cells, drawn, rng),
        told=sys.stdout if told else None,
        limit_s=max(START_LIMIT_S, 3 * stage.clean_run_s),
    )
    try:
        attack.play()
        findings = [*attack.findings, *_judge(stage, attack)]
        if findings:
            _keep(kept, stage, attack, findings)
    finally:
        attack.close()
        shutil.rmtree(screens)
    return attack, findings


def _judge(stage: Stage, attack: Attack) -> Iterator[Finding]:
    results = stage.results
    if attack.starts_after_last > STARTS_PROMISED:
        yield Finding("more than two starts", f"{attack.starts_after_last} after the last strike")
    yield from judge_dataset(_dataset(results), attack.config)
    if not attack.drawn.target:
        yield from judge_products(results)
    yield from _judge_damages(stage, attack)
    yield from judge_locks(stage.project.root)
    planted = [d.path for d in attack.damages]
    for name in hidden_files(results, planted):
        yield Finding("hidden temporary file left", name)
    for screen in sorted(attack.screens.iterdir()):
        text = screen.read_text(encoding="utf-8", errors="replace")
        if raw := raw_exceptions(text):
            early = raw[-1].startswith("KeyboardInterrupt") and "Snakefile" not in text
            yield Finding(EARLY if early else "raw exception", f"{screen.name}: {raw[-1]}")
        if foreign := sorted(set(foreign_lines(text))):
            yield Finding("foreign line on the terminal", f"{screen.name}: {foreign}")


def _dataset(results: Path) -> Path:
    """Where the data set lies: within its folder where that is a mount."""
    folder = results / "dataset"
    return folder / "data" if folder.is_mount() else folder


def _judge_damages(stage: Stage, attack: Attack) -> Iterator[Finding]:
    """Whether what was damaged was noticed, and whether shards are those of the configuration."""
    results = stage.results
    made = _dataset(results) / ".snakemake_timestamp"
    for finding in judge_shards(results / "cells", attack.config):
        shard = results / "cells" / finding.detail.split(":")[0]
        unread = (
            shard.is_file()
            and made.is_file()
            and shard.stat().st_mtime_ns <= made.stat().st_mtime_ns
        )
        yield Finding("damaged shard that nothing read" if unread else finding.kind, finding.detail)
    if any("edit" in entry["event"] for entry in attack.history):
        return
    for done in attack.damages:
        is_product = "cells" not in done.path.relative_to(results).parts
        if is_product and done.strike.kind != "hidden temporary file" and done.is_left:
            yield Finding(f"damaged product left: {done.strike.kind}", done.text)
    if attack.drawn.scenario == "files" and not any("cells" in str(d.path) for d in attack.damages):
        before = results_of(stage.folder / "finished")
        for path in products(before):
            now = results / path.relative_to(before)
            if digest_of(now) != digest_of(path):
                yield Finding("product not as before", str(path.relative_to(before)))


def _keep(kept: Path, stage: Stage, attack: Attack, findings: list[Finding]) -> None:
    """Everything that helps to see what happened in a round."""
    folder = kept / f"round-{attack.drawn.number:03d}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(attack.screens, folder)
    story = {
        "drawn": asdict(attack.drawn),
        "findings": [asdict(f) for f in findings],
        "config": attack.config,
        "history": attack.history,
    }
    (folder / "round.json").write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
    for name in ("logs", "cells"):
        if (stage.results / name).is_dir():
            shutil.copytree(stage.results / name, folder / name)


def chaos(seed: str, most_strikes: int, minutes: float, out: Path, replay: int | None) -> int:
    """Play rounds until so many strikes have fallen or the time is over; findings that count."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    began = time.monotonic()
    total = Total()
    folder = Path(tempfile.mkdtemp(prefix="gpushmoo-chaos-"))
    kept = out.with_suffix("")
    try:
        stage = Stage(folder)
        deadline = time.monotonic() + 60 * minutes
        number = 0 if replay is None else replay - 1
        while sum(total.strikes.values()) < most_strikes and time.monotonic() < deadline:
            number += 1
            drawn = draw_round(seed, number)
            print(f"round {number}: {drawn.scenario}", flush=True)
            attack, findings = play_round(stage, drawn, kept, told=replay is not None)
            _add(total, attack, findings)
            for finding in findings:
                print(f"  FOUND {finding.kind}: {finding.detail}", flush=True)
            if replay is not None:
                break
        figures = _figures(seed, total, time.monotonic() - began, stage.clean_run_s, minutes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    write_figures(out, figures, _lines(figures))
    return int(figures["violations"])


def _add(total: Total, attack: Attack, findings: list[Finding]) -> None:
    total.strikes.update(attack.counted)
    total.scenarios[attack.drawn.scenario] += 1
    total.starts[attack.starts_after_last] += 1
    # A promise is broken once in a round, however many cells or files show it.
    total.findings.update({f.kind for f in findings})
    total.blamed += sum(f.kind == "innocent cell blamed" for f in findings)
    if findings:
        entry = {"round": attack.drawn.number, "findings": [asdict(f) for f in findings]}
        total.rounds_with_findings.append(entry)


def _figures(
    seed: str, total: Total, seconds: float, clean_run_s: float, minutes: float
) -> dict[str, Any]:
    """The figures of a chaos run. Seconds are of the clock on the wall."""
    violations = {k: n for k, n in total.findings.items() if k not in REMARKS}
    return {
        **provenance(seed),
        "minutes_allowed": minutes,
        "seconds": round(seconds, 1),
        "seconds_of_a_clean_run": round(clean_run_s, 1),
        "rounds": sum(total.scenarios.values()),
        "rounds_by_scenario": dict(sorted(total.scenarios.items())),
        "strikes": sum(total.strikes.values()),
        "strikes_by_kind": dict(sorted(total.strikes.items())),
        "starts_after_the_last_strike": {str(n): c for n, c in sorted(total.starts.items())},
        "innocent_cells_with_a_fault_status": total.blamed,
        "violations": sum(violations.values()),
        "violations_by_kind": dict(sorted(violations.items())),
        "remarks": {k: n for k, n in sorted(total.findings.items()) if k in REMARKS},
        "rounds_with_findings": total.rounds_with_findings,
    }


def _lines(figures: dict[str, Any]) -> list[str]:
    """A short text for the documentation."""
    kinds: Counter[str] = Counter()
    for name, n in figures["strikes_by_kind"].items():
        kinds[name.split(":")[0]] += n
    starts = max(map(int, figures["starts_after_the_last_strike"]), default=0)
    return [
        f"Chaos run of {figures['date']}, commit {figures['commit'][:12]}, {figures['cores']} "
        f"cores, seed {figures['seed']}: {figures['strikes']} strikes in {figures['rounds']} "
        f"rounds, {figures['seconds'] / 60:.0f} min.",
        "",
        "| | |",
        "|---|---|",
        f"| strikes by kind | {', '.join(f'{n} {k}' for k, n in kinds.most_common())} |",
        f"| rounds with wrong rows | {_rounds(figures, 'wrong rows', 'wrong rows in shards')} |",
        f"| innocent cells with a fault status | {figures['innocent_cells_with_a_fault_status']} |",
        f"| most starts to recovery | {starts} |",
        f"| rounds with raw exceptions | {_rounds(figures, 'raw exception')} |",
        f"| all violations | {figures['violations']} |",
    ]


def _rounds(figures: dict[str, Any], *kinds: str) -> int:
    return sum(
        any(f["kind"] in kinds for f in entry["findings"])
        for entry in figures["rounds_with_findings"]
    )


def main() -> None:
    """Read the command line; exit status 1 if a promise was broken."""
    parser = parser_of(__doc__, "chaos")
    parser.add_argument("--strikes", type=int, default=200, help="end after so many")
    parser.add_argument("--minutes", type=float, default=25.0, help="or after so long")
    parser.add_argument("--replay", type=int, help="number of the one round to play, step by step")
    given = parser.parse_args()
    print(f"make chaos SEED={given.seed}", flush=True)
    sys.exit(bool(chaos(given.seed, given.strikes, given.minutes, given.out, given.replay)))


if __name__ == "__main__":
    main()
