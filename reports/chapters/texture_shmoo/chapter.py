"""The chapter's part in the plan of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpushmoo.chapters import Chapter, ChapterPlan, ChapterRun


class TextureShmoo(Chapter):
    """Texture reads and surface writes over every block shape, beside the published shmoos."""

    document = "10.12 Optimal Block Sizing and Performance"
    kernels = frozenset({"tex2d_sum", "surf2d_memset"})

    def plan(self, options: Mapping[str, Any], run: ChapterRun) -> ChapterPlan:
        """Plan a separate page; the figures are the kernels' own views."""
        return ChapterPlan()


CHAPTER = TextureShmoo()
