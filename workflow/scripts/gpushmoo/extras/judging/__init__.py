"""Says what results of other tuners show, and what they cannot: the command ``judge``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...registry import Command, Extra

if TYPE_CHECKING:
    from ...interactive.tables import Answer


def _judge(fail_on_regression: bool = False, **asked: Any) -> Answer:
    from ...interactive.tables import VERDICT, Answer
    from .judge import judge

    found = judge(**asked)
    groups = [] if found.comparison is None else found.comparison.groups
    slower = found.comparison is not None and not found.comparison.slower.empty
    status = VERDICT if fail_on_regression and slower else 0
    page = None if found.comparison is None else found.comparison.markdown
    return Answer({"rows": found.rows, "groups": groups}, found.summary, status, page)


EXTRA = Extra(
    commands={
        "judge": Command(
            does="say what results of other tuners show, and what they cannot tell",
            takes=["files+ --problem --before --noise-runs --threshold --fail-on-regression --csv"],
            gives=[
                "rows:extras.judging.judge.JudgedGroup",
                "groups:comparing.compare.ChangedGroup",
            ],
            example="cache.json --before older.json",
            answer=_judge,
            arguments={
                "files": (
                    *("text", "FILE"),
                    "of Kernel Tuner (cache or T4), nvbench, Triton, or a run's folder",
                ),
                "--problem": (
                    *("list", "NAME,NAME"),
                    "axes of nvbench that are no launch parameters",
                ),
            },
        )
    }
)
