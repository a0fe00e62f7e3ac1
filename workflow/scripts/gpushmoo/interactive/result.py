"""What a sweep has found: its cells, the best of them, a figure, and a copy to keep."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from ..analysis.aggregate import dataset_provenance
from ..analysis.best import best_table
from ..analysis.edges import Limits
from ..core.paths import KERNELS
from ..core.space import Condition, Problem
from ..planning.config_schema import ConfigError, refuse_unknown
from ..storage.dataset import as_frame, matching, read_cells
from ..workloads.views import HeatMap
from .arguments import Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a sweep leaves in its temporary folder.
CELLS, DATASET, LOG = "cells", "dataset", "log.txt"
# Of how many threads a block may have where the request does not limit it.
_ANY_THREADS = 2**31 - 1


class Sweep:
    """A finished sweep of one kernel.

    `cells` has one row for each combination, with the columns of the data set (see
    `core.schema.cell_schema`) and one of whole numbers for each axis; times are in seconds,
    bandwidths in GB/s. `log` is what compilers and measuring processes have printed.
    """

    def __init__(self, request: Request, place: TemporaryDirectory[str]) -> None:
        """Read the data set in `place`, which lasts as long as this object."""
        self._request, self._place = request, place
        self.cells: pd.DataFrame = read_cells(self._path(DATASET)).copy()
        self.log = self._path(LOG).read_text(encoding="utf-8", errors="replace")

    def _path(self, name: str) -> Path:
        return Path(self._place.name) / name

    @property
    def statuses(self) -> dict[str, int]:
        """How many cells ended in which way."""
        return dict(Counter(self.cells["status"]))

    @property
    def searches(self) -> pd.DataFrame:
        """How the search of each group ended, a row each; empty where every cell was measured.

        `better_probability` is the model's, that a cell that was left out is faster than the best
        by more than the tolerance; NaN for a race.
        """
        shards = dataset_provenance(self._path(DATASET))
        return pd.DataFrame(
            [
                {"dtype": shard["params"]["dtype"], **search}
                for shard in shards
                for search in shard.get("searches", ())
            ]
        )

    def best(self) -> pd.DataFrame:
        """The cells of each group that cannot be told from its fastest, the fastest first.

        A group is what competes: one element type, variant, size, cache state and kind of launch.
        Each axis has a column of whole numbers.
        """
        sweep, asked = self._request.sweep, self._request.asked
        most = {sweep.folder.name: sweep.folder.workload.most}
        limits = Limits(most, asked["thread_limit"] or _ANY_THREADS)
        return as_frame(best_table(self.cells, limits=limits))

    def heatmap(
        self,
        x: str | None = None,
        y: str | None = None,
        size: int | list[int] | tuple[int, int] | None = None,
        cache: str | None = None,
        launch: str | None = None,
    ) -> Figure:
        """Bandwidth over the axes `x` and `y`, a panel for each variant and element type.

        By default the axes of the kernel's first heat map, or its first two; the first size, cache
        state and kind of launch that were swept. Of other axes each point shows its fastest cell.
        Raises ConfigError.
        """
        # Not before it is wanted: it takes a second to import.
        import matplotlib as mpl
        from matplotlib.figure import Figure

        from ..figures.heatmap import draw_panels, every_variant, words_of
        from ..figures.style import set_style, subject

        sweep = self._request.sweep
        view = self._view(x, y)
        problem = sweep.problems[0]
        if size is not None:
            to_problem = sweep.folder.workload.problem
            problem = to_problem(size) if isinstance(size, int) else Problem(*size)
        met = Condition(cache or sweep.cache_states[0], launch or sweep.launch_kinds[0])
        where = {"height": problem.height, "width": problem.width, **met._asdict()}
        counts = {"cache_state": len(sweep.cache_states), "launch_kind": len(sweep.launch_kinds)}
        chosen = matching(self.cells, where)
        if chosen.empty:
            raise ConfigError(
                f"size, cache, launch: no cell has {problem.label}, {', '.join(met)}; there are: "
                f"{', '.join(p.label for p in sweep.problems)}; {', '.join(sweep.cache_states)}; "
                f"{', '.join(sweep.launch_kinds)}."
            )
        ranked = chosen.sort_values("bandwidth_gbs", na_position="first")
        with mpl.rc_context():
            set_style()
            words = words_of(view)
            # None of pyplot's: it opens no window, and a notebook shows it once.
            figure = Figure()
            panels = every_variant(ranked, sweep.dtypes)
            draw_panels(figure, panels, view.x, view.y, words)
            title = subject(chosen, [c for c, n in counts.items() if n > 1])
            figure.suptitle(f"{title}: bandwidth over {words.over}", fontsize=10)
        return figure

    def _view(self, x: str | None, y: str | None) -> HeatMap:
        axes = list(self._request.sweep.axes)
        refuse_unknown("x, y", filter(None, (x, y)), axes)
        views = self._request.sweep.folder.workload.views
        named = [v for v in views if isinstance(v, HeatMap) and {v.x, v.y} <= set(axes)]
        if x is None and y is None and named:
            return named[0]
        free = [axis for axis in axes if axis not in (x, y)]
        x = x or (free.pop(0) if free else None)
        y = y or (free.pop(0) if free else None)
        if x is None or y is None or x == y:
            raise ConfigError(
                f"heatmap: it needs two axes; the kernel has {', '.join(axes) or 'none'}."
            )
        return next((v for v in named if (v.x, v.y) == (x, y)), HeatMap(x, y))

    def save(self, folder: str | Path) -> Path:
        """Keep the sweep in `folder`, which must not exist or be empty: cells, log and kernel.

        The cells are files of the form that a run's jobs write, so ``dataset: folder`` has a
        report made of them; ``report.yaml`` is a configuration that does. Raises ConfigError.
        """
        out = Path(folder).expanduser().absolute()
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"folder: '{folder}' exists already; name one that does not.")
        sweep = self._request.sweep
        shutil.copytree(self._path(CELLS), out / CELLS)
        shutil.copy(self._path(LOG), out / LOG)
        own: dict[str, Any] = {}
        if sweep.folder.path.parent != KERNELS:
            ours = shutil.ignore_patterns("__pycache__")
            shutil.copytree(sweep.folder.path, out / "kernels" / sweep.folder.name, ignore=ours)
            own = {"kernel_folders": ["kernels"]}
        config = {
            # Not the kernel's name alone, which a run of it may have.
            "run": re.sub("[^A-Za-z0-9_.-]", "_", f"{sweep.folder.name}-{out.name}")[:64],
            "dataset": str(out),
            **own,
            "only": [sweep.folder.name],
            "kernels": {sweep.folder.name: self._spec()},
        }
        text = yaml.safe_dump(config, sort_keys=False)
        (out / "report.yaml").write_text(text, encoding="utf-8")
        return out

    def _spec(self) -> dict[str, Any]:
        """The sweep as a configuration says it."""
        sweep = self._request.sweep
        return {
            "dtypes": list(sweep.dtypes),
            "variants": list(sweep.variants),
            "sizes": [[p.height, p.width] for p in sweep.problems],
            "cache": list(sweep.cache_states),
            "launch": list(sweep.launch_kinds),
            "axes": dict(sweep.axes),
        }

    def __repr__(self) -> str:
        counted = ", ".join(f"{n} {status}" for status, n in sorted(self.statuses.items()))
        return f"<Sweep of {self._request.sweep.folder.name}: {counted}>"

    def _repr_html_(self) -> str:
        """As a notebook shows it: how the cells ended, and the best of them."""
        shown = self.best().drop(columns=["kernel", "device_name", "cell_key"])
        title = repr(self).strip("<>")
        return f"<p>{title}</p>{shown.to_html(index=False, float_format='{:.4g}'.format)}"
