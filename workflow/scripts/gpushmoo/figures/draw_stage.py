"""Draw a view of a kernel's cells in one job; an error in a view affects only its own figure."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import Any, TextIO

import matplotlib.pyplot as plt

from ..analysis.peak import read_peak, read_work_peaks
from ..core.errors import DamagedFileError, WorkloadError
from ..core.figure_job import FigureJob
from ..core.space import RelativeSize, size_of
from ..model.fit import partition_table
from ..model.fit_stage import DEVICE_MODEL_SCHEMA
from ..storage.dataset import matching, read_medians
from ..storage.store import read_table
from ..storage.wholefile import read_complete, read_json
from ..workloads.loader import KernelFolder, load_kernel
from ..workloads.user_code import blamed, file_label
from ..workloads.views import Curve, FigureData, View
from .style import apply_style, save_words


def draw_figure(job: FigureJob, files: Mapping[str, Path], svg: Path, terminal: TextIO) -> None:
    """Draw the view of a job to `svg`, with a note beside it.

    If the view fails, the error appears on `terminal` and in place of the figure.

    Parameters
    ----------
    job
        Kernel, view and cells to draw.
    files
        Paths of ``dataset`` and ``peak``, and of ``device`` if the view needs the model.
    svg
        Figure to write.
    terminal
        Stream for a line about an error.
    """
    folder = load_kernel(job.kernel_folder)
    view = next(v for v in folder.workload.views if v.name == job.view)
    data = _figure_data(view, job, files, folder.workload.persistent_axis)
    fault = _draw(folder, view, data, svg)
    if fault is not None:
        terminal.write(f"gpushmoo: figure '{svg.stem}' is not drawn: {fault}\n")
        plt.close("all")
        title = f"{folder.name}: view '{view.name}' is not drawn"
        save_words(svg, title, f"{fault}.", "not drawn", fault=fault)


def _figure_data(
    view: View, job: FigureJob, files: Mapping[str, Path], persistent_axis: str | None
) -> FigureData:
    where = where_of(job, files["dataset"])
    # No kernel can have this name. The query finds no row, but the columns of the data set.
    cells = read_medians(files["dataset"], where if "cells" in view.needs else {"kernel": ""})
    device = None
    if "device" in files:
        device = matching(read_table(files["device"], DEVICE_MODEL_SCHEMA).to_pandas(), where)
    unknown = device is None or device.empty
    if unknown and isinstance(view, Curve) and view.x == persistent_axis:
        device = partition_table(cells)
    return FigureData(
        kernel=where["kernel"],
        dtypes=tuple(job.dtypes),
        controls=tuple(job.controls),
        named=tuple(job.named),
        cells=cells,
        peak=read_peak(files["peak"]),
        device=device,
        work_peaks=read_work_peaks(files["peak"]),
    )


def where_of(job: FigureJob, dataset: Path) -> dict[str, Any]:
    """Return the cells to show, as conditions on columns; the size is the nearest measured one.

    So the figure also finds recorded cells from a device with another cache.
    """
    where = dict(job.where)
    if job.nearest is None:
        return where
    size = size_of(job.nearest)
    assert isinstance(size, RelativeSize)
    cells = read_medians(dataset, {"kernel": where["kernel"]})
    of_type = cells[cells["dtype"] == size.dtype]
    cells = cells if of_type.empty else of_type
    if cells.empty:
        return where
    over_cache = cells["working_set_over_cache"].astype(float)
    if over_cache.gt(0.0).any():
        chosen = cells.loc[(over_cache[over_cache > 0.0] / size.of_cache).map(log).abs().idxmin()]
    else:
        chosen = cells.loc[(cells["height"] * cells["width"]).idxmax()]
    return where | {"height": int(chosen["height"]), "width": int(chosen["width"])}


def _draw(folder: KernelFolder, view: View, data: FigureData, svg: Path) -> str | None:
    """Draw the view; return a sentence on the error, or None."""
    file = folder.path / "workload.py"
    apply_style()
    try:
        view.draw(data, svg)
        read_complete(svg)
        note = read_json(svg.with_suffix(".json"))
    except (KeyboardInterrupt, MemoryError):
        raise
    except DamagedFileError:
        return f"{file_label(file)}: draw of view '{view.name}' saves no figure by style.save"
    except BaseException as err:
        traceback.print_exc()
        is_sentence = isinstance(err, WorkloadError)
        return str(err) if is_sentence else blamed(file, f"view '{view.name}'", err)
    if not all(isinstance(note.get(word), str) for word in ("title", "caption")):
        return f"{file_label(file)}: title and caption of view '{view.name}' must be texts"
    return None
