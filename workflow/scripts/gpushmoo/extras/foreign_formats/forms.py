"""Define the formats of other programs: T4, Kernel Tuner's cache, vLLM's tables, Triton's cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...core.dtypes import TRITON_OPTIONS
from ...core.errors import ExportError
from ...exporting.choices import ExportGroup
from ...exporting.export_format import Chosen, Format, write_object
from ...exporting.vocabulary import AUTOTUNE, t4_metadata
from ...storage.wholefile import write_atomic, write_json
from .loaded import HOLDS, LoadedTable, triton_table, vllm_tables
from .results import cache_text, covers_all_combinations, t4_results

_NOT_WHOLE = (
    "{}: not every combination of the axes was tried; Kernel Tuner replays it only where "
    "restrictions leave these out."
)


class T4(Format):
    """Format of the auto-tuning community."""

    files = ("t4",)
    needs_choice = False

    def add(self, name: str, group: ExportGroup) -> Sequence[str]:
        """Write the results of a group."""
        write_object(self.folder / "t4" / name, t4_results(group, self.run))
        return ()

    def finish(self, chosen: Chosen) -> None:
        """Write the device and versions."""
        write_object(self.folder / "t4" / "metadata.json", t4_metadata(chosen.provenance))


class KernelTuner(Format):
    """Kernel Tuner's cache files, one per group."""

    files = ("kernel-tuner",)
    needs_choice = False

    def add(self, name: str, group: ExportGroup) -> Sequence[str]:
        """Write the cache file of a group; return a sentence if it cannot be replayed unchanged."""
        write_atomic(self.folder / "kernel-tuner" / name, cache_text(group).encode())
        return () if covers_all_combinations(group) else (_NOT_WHOLE.format(group.name),)


class _Loaded(Format):
    """Tables that programs load, in a folder with the conditions of each table."""

    def __init__(self, folder: Path, run: str) -> None:
        super().__init__(folder, run)
        self.tables: list[LoadedTable] = []

    def finish(self, chosen: Chosen) -> None:
        """Write the tables, and the conditions of each."""
        if not self.tables:
            return
        (form,) = self.files
        for table in self.tables:
            write_object(self.folder / form / table.name, table.content)
        measured_by = t4_metadata(chosen.provenance)["metadata"]
        told = {**measured_by, "tables": [table.holds for table in self.tables]}
        write_json(self.folder / form / HOLDS, told)


class Vllm(_Loaded):
    """Tables by size, as vLLM and Hugging Face load them."""

    files = ("vllm",)

    def choose(self, named: Sequence[tuple[str, ExportGroup]]) -> None:
        """Make the tables of a kernel."""
        self.tables += vllm_tables([group for _, group in named])


class Triton(_Loaded):
    """Files of Triton's autotuning cache."""

    files = ("triton",)

    def choose(self, named: Sequence[tuple[str, ExportGroup]]) -> None:
        """Make the files of a kernel of Triton."""
        self.tables += [
            triton_table(f"{name}{AUTOTUNE}", group)
            for name, group in named
            if {*TRITON_OPTIONS} & {*group.axes}
        ]

    def refuse_nothing(self) -> None:
        """Raise ExportError if no kernel is one of Triton."""
        if not self.tables:
            options = ", ".join(TRITON_OPTIONS)
            raise ExportError(
                f"'{self.run}' has no kernel of Triton (none has an axis of {options})."
            )


FORMATS: dict[str, type[Format]] = {form.files[0]: form for form in (T4, KernelTuner, Vllm, Triton)}
