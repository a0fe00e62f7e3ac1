"""Read the results of a run from its folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import BadParquetError, OpenedError, raises_at_caller
from ..core.schema import GROUP, RENAMED_COLUMNS, UNLISTED, Status, is_axis

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.best import Limits


@dataclass(eq=False, repr=False)
class Run:
    """Cells of a run, and the results that follow from them.

    Attributes
    ----------
    name
        Name of the run, or of the kernel.
    cells
        A row for each combination, with the columns of the data set (docs/data.md) and an integer
        column for each axis. Times are in seconds, bandwidths in GB/s.
    provenance
        Device, versions and settings of each shard.
    folder
        Folder of a finished run, otherwise None.
    limits
        Largest values of the axes, if they are known.
    """

    name: str
    cells: pd.DataFrame
    provenance: Sequence[Mapping[str, Any]]
    folder: Path | None = None
    limits: Limits | None = None

    @property
    def statuses(self) -> dict[str, int]:
        """Number of cells by status. Invalid combinations without a row also count."""
        counts = Counter(self.cells["status"])
        for shard in self.provenance:
            if shard.get(UNLISTED) and shard["params"]["repeat"] == 1:
                counts[Status.INVALID.value] += shard[UNLISTED]
        return dict(counts)

    @property
    def devices(self) -> dict[str, str]:
        """Names of the devices that measured cells, by UUID."""
        found = (shard["device"] for shard in self.provenance)
        return {device["uuid"]: device["name"] for device in found}

    @cached_property
    def best(self) -> pd.DataFrame:
        """Cells of each group that are statistically tied with its fastest cell, the fastest first.

        The cells of a group compete with each other. They have the same element type, variant,
        size, cache state and timing mode.
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
        """Recommended launch of each kernel, element type and class of sizes (in the cache or not).

        Among the launches that lose little in the whole class, it is the one that other runs
        usually recommend, too.
        """
        from ..exporting.choices import choices_frame

        return choices_frame(self.cells)

    @property
    def peak(self) -> pd.DataFrame:
        """Peak bandwidths of loads and stores, if a finished run has measured them."""
        import pandas as pd

        from ..analysis.peak import PeakRow, read_peak

        kept = self.folder and self.folder / "summary" / "peak.json"
        rows = read_peak(kept) if kept and kept.is_file() else []
        return pd.DataFrame(rows, columns=[*PeakRow.__dataclass_fields__])

    @property
    def figures(self) -> dict[str, Path]:
        """Paths of the SVG files that a finished run has drawn, by name of the figure."""
        drawn = sorted((self.folder / "figures").glob("*.svg")) if self.folder else []
        return {path.stem: path for path in drawn}

    @property
    def searches(self) -> pd.DataFrame:
        """Result of the search in each group, a row for each, empty for the search mode ``all``.

        `better_probability` is the probability, according to the model of the search, that a
        skipped cell is faster than the best one by more than the tolerance. It is NaN for a race.
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
        """Return HTML for a notebook: the number of cells by status, and the best cells.

        Parameters and speeds come first. The columns that identify a group follow if they differ.
        """
        best = self.best
        speeds = ["bandwidth_gbs", "vs_memcpy", "median_s", "median_low_s", "median_high_s"]
        ways = [name for name in (*GROUP, "kernel") if name in best and best[name].nunique() > 1]
        shown = [*filter(is_axis, best), *speeds, "tied", "candidates", *ways]
        shown = best[[name for name in dict.fromkeys(shown) if best[name].notna().any()]]
        title = repr(self).strip("<>")
        return f"<p>{title}</p>{shown.to_html(index=False, float_format='{:.4g}'.format)}"


@raises_at_caller
def open_run(folder: str | os.PathLike[str]) -> Run:
    """Read the results of a run without measuring.

    Parameters
    ----------
    folder : path
        Folder of a run (``results/local``), of a data set, or of recorded shards. If the run is not
        finished, its finished shards are read. Shards are checked and aggregated.

    Returns
    -------
    Run
        With `cells`, `best`, `choices`, `peak`, `figures`, `searches`, `statuses` and `provenance`.

    Raises
    ------
    OpenedError
        If there is no such folder, or if its content is damaged. It is a ValueError.
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
