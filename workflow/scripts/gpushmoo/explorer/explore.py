"""One page of all cells for a browser: from what a user names to one file without a network."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..analysis.opened import OpenedError, OpenedSet, count_planned
from ..analysis.opened import opened as opened_data_set
from ..core.display import one_line
from ..core.errors import UserError
from ..core.run_plan import PLAN_FILE
from ..core.space import TYPICAL, asks_the_device, count_cells, expand_axis, space_of
from ..storage.store import BadParquetError
from ..storage.wholefile import write_summed
from .payload import Payload, StageFiles, Unfinished, payload

PAGE_NAME = "explorer.html"


class ExplorerError(UserError, ValueError):
    """What was asked cannot be explored; one sentence."""


def explore(
    run: str | os.PathLike[str],
    second: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one page on which the cells of a run can be explored in a browser; the page's path.

    `run` is a run's folder, also of one that still goes on (then its finished shards are shown), a
    data set or a folder of recorded shards; `second` is another, shown beside it. The page needs no
    network and no server. By default it is ``explorer.html`` in the run's folder, or in the working
    directory for recorded shards. Raises ExplorerError, a ValueError, with one sentence.
    """
    places = [Path(place).expanduser() for place in (run, second) if place is not None]
    with ExitStack() as stack:
        sources = _told_apart([stack.enter_context(opened(place)) for place in places])
        target = _target(places[0]) if out is None else Path(out).expanduser()
        if target.suffix != ".html":
            raise ExplorerError(f"'{target}' must end in .html.")
        try:
            write_page(sources, target)
        except BadParquetError as err:
            raise ExplorerError(str(err)) from err
        except OSError as err:
            raise ExplorerError(f"'{target}' cannot be written ({err.strerror}).") from err
    return target


def _told_apart(sources: list[Source]) -> list[Source]:
    """Two data sets of one name get numbers."""
    if len({source.name for source in sources}) == len(sources):
        return sources
    return [replace(s, name=f"{s.name} ({n})") for n, s in enumerate(sources, start=1)]


def _target(place: Path) -> Path:
    """A run's page lies in its folder; into folders that others recorded nothing is written."""
    return (place if (place / PLAN_FILE).is_file() else Path()) / PAGE_NAME


def write_page(sources: Sequence[Source], out: Path) -> None:
    """Write the page of one data set, or two, to `out`, with a sum of itself at the end.

    Raises BadParquetError for what is damaged, OSError where nothing can be written.
    """
    shown = [
        payload(source.dataset, source.name, source.stages, source.progress, prefix)
        for source, prefix in zip(sources, "ab", strict=False)
    ]
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
    stages = StageFiles(next(iter(device), None), earlier)
    write_page([Source(dataset, run, stages)], out)


def explore_compared(spec: Mapping[str, Any], out: Path) -> None:
    """Write the page of the first runs of both sides of a comparison."""
    explore(spec["a"][0], spec["b"][0], out=out)


@dataclass(frozen=True)
class Source:
    """A data set to be shown, how it is called, and how much of its run is in (None: all)."""

    dataset: Path
    name: str
    stages: StageFiles
    progress: Unfinished | None = None


@contextmanager
def opened(place: Path) -> Iterator[Source]:
    """What `place` names, as `analysis.opened` opens it. Raises ExplorerError, one sentence."""
    try:
        with opened_data_set(place) as found:
            stages = _stages(place) if found.finished else StageFiles()
            yield Source(found.dataset, found.name, stages, _progress(found))
    except OpenedError as err:
        raise ExplorerError(str(err)) from err


def _progress(found: OpenedSet) -> Unfinished | None:
    """How much is in: cells count once, whatever the repeats, as the page's cells do."""
    plan = found.plan
    if plan is None or not found.partial:
        return None
    specs = [
        (planned.shard_params(0, 1) | {"shard": [0, 1]})
        for dtypes in plan.sweeps.values()
        for planned in dtypes.values()
    ]
    about = any(asks_the_device(spec) for params in specs for spec in params["axes"].values())
    cells = sum(map(_cells, specs))
    return Unfinished(len(found.shards), count_planned(plan), cells, about)


def _cells(params: dict[str, Any]) -> int:
    space = space_of(params)
    axes = {name: expand_axis(spec, TYPICAL) for name, spec in space.axes.items()}
    met = len(space.cache_states) * len(space.launch_kinds)
    return count_cells(axes, len(set(space.problems)), len(space.variants), met)


def _stages(place: Path) -> StageFiles:
    """What a finished run's model of the device predicts, and its history."""
    files = {"device": place / "model" / "device.parquet", "history": place / "history"}
    return StageFiles(**{name: file for name, file in files.items() if file.exists()})


PAGE = Path(__file__).resolve().parent / "page"
# Programs of others, as they were published: see VENDOR.toml beside them.
VENDOR = PAGE / "vendor"
_SLOT = "<!-- {} -->"


def page(payloads: Sequence[Payload], title: str) -> bytes:
    """The page that shows one data set, or two side by side; the same bytes for the same data."""
    blocks = {name: text for made in payloads for name, text in made.blocks.items()}
    slots = {
        "title": _text(title),
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


def _text(words: str) -> str:
    return one_line(words).replace("&", "&amp;").replace("<", "&lt;")
