"""Shows a run in the terminal while it measures: the command ``watch``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...registry import Command, Extra

if TYPE_CHECKING:
    from ...interactive.tables import Answer


def _watch(form: str | None, run: str | None = None, once: bool = False) -> Answer:
    from ...interactive.tables import Answer
    from .view import watch, watched

    if form is None:
        watch(run, once)
        return Answer({})
    return Answer(watched(run).state().told())


EXTRA = Extra(
    commands={
        "watch": Command(
            does="show the progress of a run until it is finished",
            takes=["run? --once"],
            gives=[
                "rows:extras.watching.table.SweepProgress",
                *("run", "finished", "ended", "planned", "shards", "planned_shards", "statuses"),
                *("measuring", "left_s", "quiet_s"),
            ],
            example="results/local --once",
            answer=_watch,
            arguments={"--once": ("flag", None, "print one frame and end")},
            answers={
                "ended": {
                    "type": "integer",
                    "description": "cells that have ended, of all repeats",
                },
                "finished": {"type": "boolean", "description": "whether all is measured"},
                "left_s": {
                    "type": ["number", "null"],
                    "unit": "s",
                    "description": "about how long the rest takes; null where nothing tells it",
                },
                "measuring": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "shards that are being measured",
                },
                "planned": {
                    "type": "number",
                    "description": "cells of all repeats; by the plan, until they are counted",
                },
                "planned_shards": {
                    "type": "integer",
                    "description": "files that the run's jobs write",
                },
                "quiet_s": {
                    "type": "number",
                    "unit": "s",
                    "description": "since when nothing was heard of the run",
                },
                "run": {"type": "string", "description": "the run's name"},
                "shards": {"type": "integer", "description": "those of them that are there"},
            },
        )
    }
)
