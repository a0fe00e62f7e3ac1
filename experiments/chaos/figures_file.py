"""Where the figures of a chaos run or of a soak come from, and their JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from typing import Any

from conftest import ROOT

# Not under version control; what goes into the record is copied from here.
FIGURES = ROOT / "results" / "chaos"


def parser_of(description: str | None, name: str) -> argparse.ArgumentParser:
    """The command line of the instrument `name`: the seed of its draws, and where figures go."""
    drawn = str(SystemRandom().randrange(2**32))
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", default=drawn, help="of all draws; drawn itself if left out")
    parser.add_argument("--out", type=Path, default=FIGURES / f"{name}.json")
    return parser


def provenance(seed: int | str) -> dict[str, Any]:
    """Date, commit, machine and seed, as they stand at the head of every file of figures."""
    return {
        **_BEGAN,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "seed": seed,
    }


def _git(*args: str) -> str:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


# As it stood when the program began: what it attacks is a copy of that moment.
_BEGAN = {
    "date": datetime.now(UTC).isoformat(timespec="seconds"),
    "commit": _git("rev-parse", "HEAD"),
    "changed_files": len(_git("status", "--porcelain", "--untracked-files=no").splitlines()),
}


def write_figures(path: Path, figures: Mapping[str, Any], lines: list[str]) -> None:
    """Write `figures` to the JSON file `path`, and `lines` for the documentation beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(lines) + "\n"
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text, end="", flush=True)
    print(f"Figures: {path}", flush=True)
