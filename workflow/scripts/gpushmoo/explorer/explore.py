"""One page of all cells for a browser: from what a user names to one file without a network."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from ..analysis.opened import OpenedError, OpenedSet, count_planned, opened
from ..core.display import one_line
from ..core.errors import UserError
from ..core.run_plan import PLAN_FILE
from ..core.space import asks_the_device, space_of
from ..storage.store import BadParquetError
from ..storage.wholefile import write_summed
from .payload import Payload, Source, Unfinished, payload

PAGE_NAME = "explorer.html"


class ExplorerError(UserError, ValueError):
    """What was asked cannot be explored; one sentence."""


def explore(
    run: str | os.PathLike[str],
    second: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one page on which the cells of a run can be explored in a browser, without a network.

    Parameters
    ----------
    run, second : path
        A run's folder, also of one that goes on (its finished shards are shown), a data set or a
        folder of shards; and another, shown beside it.
    out : path
        The page; by default ``explorer.html`` in the run's folder, or here for recorded shards.

    Returns
    -------
    Path
        The page's.

    Raises
    ------
    ExplorerError
        A ValueError of one sentence.
    """
    places = [Path(place).expanduser() for place in (run, second) if place is not None]
    # A run's page lies in its folder; into folders that others recorded nothing is written.
    usual = (places[0] if (places[0] / PLAN_FILE).is_file() else Path()) / PAGE_NAME
    target = usual if out is None else Path(out).expanduser()
    if target.suffix != ".html":
        raise ExplorerError(f"'{target}' must end in .html.")
    with ExitStack() as stack:
        try:
            sources = [stack.enter_context(_opened(place)) for place in places]
            if len({source.name for source in sources}) < len(sources):
                sources = [replace(s, name=f"{s.name} ({n})") for n, s in enumerate(sources, 1)]
            write_page(sources, target)
        except (OpenedError, BadParquetError) as err:
            raise ExplorerError(str(err)) from err
        except OSError as err:
            raise ExplorerError(f"'{target}' cannot be written ({err.strerror}).") from err
    return target


def write_page(sources: Sequence[Source], out: Path) -> None:
    """Write the page of one data set, or two, to `out`, with a sum of itself at the end."""
    shown = [payload(source, prefix) for source, prefix in zip(sources, "ab", strict=False)]
    write_summed(out, page(shown, " and ".join(source.name for source in sources)))


def write_run_page(
    dataset: Path,
    device: Sequence[Path],
    history: Sequence[Path],
    run: str,
    out: Path,
) -> None:
    """Write the page of a finished run's data set, its model and its history, where they are."""
    earlier = history[0].parent if history else None
    write_page([Source(dataset, run, next(iter(device), None), earlier)], out)


def explore_compared(spec: Mapping[str, Any], out: Path) -> None:
    """Write the page of the first runs of both sides of a comparison."""
    explore(spec["a"][0], spec["b"][0], out=out)


@contextmanager
def _opened(place: Path) -> Iterator[Source]:
    """What `place` names, as `analysis.opened` opens it. Raises OpenedError, one sentence."""
    with opened(place) as found:
        # Of a finished run also the device model's predictions and the history.
        device, history = place / "model" / "device.parquet", place / "history"
        yield Source(
            found.dataset,
            found.name,
            device if found.finished and device.exists() else None,
            history if found.finished and history.exists() else None,
            _progress(found),
        )


def _progress(found: OpenedSet) -> Unfinished | None:
    """How much is in: cells count once, whatever the repeats, as the page's cells do."""
    plan = found.plan
    if plan is None:
        return None
    spaces = [
        space_of(planned.shard_params(0, 1))
        for dtypes in plan.sweeps.values()
        for planned in dtypes.values()
    ]
    about = any(asks_the_device(spec) for space in spaces for spec in space.axes.values())
    cells = sum(space.planned_cells for space in spaces)
    return Unfinished(found.shards, count_planned(plan), cells, about)


PAGE = Path(__file__).resolve().parent / "page"
# Programs of others, as they were published: see VENDOR.toml there.
VENDOR = PAGE / "vendor"
_SLOT = "<!-- {} -->"


def page(payloads: Sequence[Payload], title: str) -> bytes:
    """The page that shows one data set, or two side by side; the same bytes for the same data."""
    blocks = {name: text for made in payloads for name, text in made.blocks.items()}
    slots = {
        "title": escape(one_line(title)),
        "style": f"<style>{_source('vendor/uPlot.min.css')}\n{_source('style.css')}</style>",
        "vendor": f"<script>{_source('vendor/uPlot.iife.min.js')}</script>",
        "imports": _import_map(),
        "index": _data("index", _json([made.index for made in payloads]), "application/json"),
        "blocks": "\n".join(_data(f"block-{n}", text, "text/plain") for n, text in blocks.items()),
    }
    text = _source("index.html")
    for name, filling in slots.items():
        text = text.replace(_SLOT.format(name), filling)
    return text.encode()


def modules() -> list[Path]:
    """Paths of the page's JavaScript modules, sorted by name; vendored ones are not among them."""
    return sorted(PAGE.glob("*.js"))


def _source(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _import_map() -> str:
    """The modules under their names: from a file a page may import what it itself holds alone."""
    texts = {path.name: b64encode(path.read_bytes()).decode() for path in modules()}
    imports = {f"explorer/{n}": f"data:text/javascript;base64,{t}" for n, t in texts.items()}
    return f'<script type="importmap">{_json({"imports": imports})}</script>'


def _data(name: str, text: str, kind: str) -> str:
    return f'<script type="{kind}" id="{name}">{text}</script>'


def _json(value: object) -> str:
    # So nothing in a text can end the script that holds it.
    return json.dumps(value, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")
