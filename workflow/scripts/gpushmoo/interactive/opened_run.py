"""What a run has found, read from its folder; a sweep of this program holds the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import BadParquetError, OpenedError
from ..core.schema import GROUP, RENAMED_COLUMNS, UNLISTED, Status, is_axis

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.best import Limits


@dataclass(eq=False, repr=False)
class Run:
    """The cells of a run and what follows from them.

    `cells` has a row for each combination, with the columns of the data set (docs/data.md) and one
    of whole numbers for each axis: times in seconds, bandwidths in GB/s. `provenance` has device,
    versions and settings of each shard. `folder` is that of a finished run; `limits` say how far
    axes can go.
    """

    name: str
    cells: pd.DataFrame
    provenance: Sequence[Mapping[str, Any]]
    folder: Path | None = None
    limits: Limits | None = None

    @property
    def statuses(self) -> dict[str, int]:
        """How many cells ended in which way; invalid ones also if they have no row."""
        counts = Counter(self.cells["status"])
        for shard in self.provenance:
            if shard.get(UNLISTED) and shard["params"]["repeat"] == 1:
                counts[Status.INVALID.value] += shard[UNLISTED]
        return dict(counts)

    @property
    def devices(self) -> dict[str, str]:
        """The name of each device that measured cells, by its UUID."""
        found = (shard["device"] for shard in self.provenance)
        return {device["uuid"]: device["name"] for device in found}

    @cached_property
    def best(self) -> pd.DataFrame:
        """The cells of each group that are statistically tied with its fastest, the fastest first.

        A group is what competes: one element type, variant, size, cache state and timing mode.
        """
        import pandas as pd

        from ..analysis.best import ANY, best_table
        from ..storage.dataset import as_frame

        kept = self.folder and self.folder / "summary" / "best.parquet"
        if kept and kept.is_file():
            found = pd.read_parquet(kept).rename(columns=RENAMED_COLUMNS)
        else:
            found = as_frame(best_table(self.cells, limits=self.limits or ANY))
        # A terminal shows the first and the last of many columns.
        last = ("median_s", "bandwidth_gbs", "vs_memcpy")
        return found[sorted(found.columns, key=lambda name: (name in last) - is_axis(name))]

    @cached_property
    def choices(self) -> pd.DataFrame:
        """Recommended launches for each kernel, type and class of sizes (in its cache or not).

        Among the launches that lose little in the whole class, it is the one that other runs
        usually recommend, too.
        """
        from ..exporting.choices import choices_frame

        return choices_frame(self.cells)

    @property
    def peak(self) -> pd.DataFrame:
        """The most that the device loads and stores, where a finished run has measured it."""
        import pandas as pd

        from ..analysis.peak import PeakRow, read_peak

        kept = self.folder and self.folder / "summary" / "peak.json"
        rows = read_peak(kept) if kept and kept.is_file() else []
        return pd.DataFrame(rows, columns=[*PeakRow.__dataclass_fields__])

    @property
    def figures(self) -> dict[str, Path]:
        """The SVG files that a finished run has drawn, by name."""
        drawn = sorted((self.folder / "figures").glob("*.svg")) if self.folder else []
        return {path.stem: path for path in drawn}

    @property
    def searches(self) -> pd.DataFrame:
        """How the search of each group ended, a row each; none with the search mode ``all``.

        `better_probability` is the model's, that a cell that was left out is faster than the best
        by more than the tolerance; NaN for a race.
        """
        import pandas as pd

        return pd.DataFrame(
            [
                {"dtype": shard["params"]["dtype"], **search}
                for shard in self.provenance
                for search in shard.get("searches", ())
            ]
        )

    def __repr__(self) -> str:
        counted = ", ".join(f"{n} {status}" for status, n in sorted(self.statuses.items()))
        many = f", on {n} devices" if (n := len(self.devices)) > 1 else ""
        return f"<{type(self).__name__} of {self.name}: {counted}{many}>"

    def _repr_html_(self) -> str:
        """Render for a notebook how the cells ended, and the best of them.

        Parameters and speeds come first. The columns that name a group follow, if they differ.
        """
        best = self.best
        speeds = ["bandwidth_gbs", "vs_memcpy", "median_s", "median_low_s", "median_high_s"]
        ways = [name for name in (*GROUP, "kernel") if name in best and best[name].nunique() > 1]
        shown = [*filter(is_axis, best), *speeds, "tied", "candidates", *ways]
        shown = best[[name for name in dict.fromkeys(shown) if best[name].notna().any()]]
        title = repr(self).strip("<>")
        return f"<p>{title}</p>{shown.to_html(index=False, float_format='{:.4g}'.format)}"


def open_run(folder: str | os.PathLike[str]) -> Run:
    """Read the results of a run, without any measurement.

    Parameters
    ----------
    folder : path
        A run's folder (``results/local``; of one that goes on, what is finished), that of a data
        set, or one of recorded shards, which are checked and put together.

    Returns
    -------
    Run
        With `cells`, `best`, `choices`, `peak`, `figures`, `searches`, `statuses` and `provenance`.

    Raises
    ------
    OpenedError
        A ValueError of one sentence: there is no such folder, or what it holds is damaged.
    """
    from ..analysis.aggregate import opened
    from ..analysis.run_quality import dataset_provenance
    from ..storage.dataset import read_cells

    place = Path(folder).expanduser()
    try:
        with opened(place) as found:
            cells = read_cells(found.dataset).copy()
            provenance = dataset_provenance(found.dataset)
    except BadParquetError as err:
        raise OpenedError(str(err)) from err
    return Run(found.name, cells, provenance, place if found.finished else None)
