"""Shows all cells on one page for a browser: the command ``explore`` and a page of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...registry import Command, Extra

if TYPE_CHECKING:
    from ...interactive.tables import Answer

_PAGE = "explorer.html"


def _explore(**asked: Any) -> Answer:
    from ...interactive.tables import Answer
    from .explore import explore

    page = explore(**asked)
    return Answer({"files": [page]}, lambda: f"{page} opens in any browser; it needs no network.")


EXTRA = Extra(
    commands={
        "explore": Command(
            does="write a page that a browser opens, of a run's cells",
            takes=["run second? --out"],
            gives=["files"],
            example="results/local --out local.html",
            answer=_explore,
            arguments={"second": ("text", "RUN", "another run, shown beside it")},
        )
    },
    products=[_PAGE],
    compared=[_PAGE],
    cells_page=_PAGE,
)
