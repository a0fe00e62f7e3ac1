"""Writes copy_planted in versions that differ in one number: how many percent are done twice.

python experiments/gpu/planted/folders.py results/planted    # p00/copy_planted, p01/..., p03, p10
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

PERCENTS = (0, 1, 3, 10)
TEMPLATE = Path(__file__).with_name("copy_planted")
_LINE = "PERCENT = 0\n"


def written(folder: Path, percents: tuple[int, ...] = PERCENTS) -> dict[int, Path]:
    """The kernel's folder for each percentage, below `folder`, each in a folder of its own."""
    made = {}
    for percent in percents:
        made[percent] = folder / f"p{percent:02}" / TEMPLATE.name
        ours = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TEMPLATE, made[percent], ignore=ours, dirs_exist_ok=True)
        file = made[percent] / "workload.py"
        text = file.read_text(encoding="utf-8")
        assert text.count(_LINE) == 1
        file.write_text(text.replace(_LINE, f"PERCENT = {percent}\n"), encoding="utf-8")
    return made


if __name__ == "__main__":
    written(Path(sys.argv[1]))
