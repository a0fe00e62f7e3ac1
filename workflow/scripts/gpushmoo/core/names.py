"""Accept names and paths as callers write them: one, or several."""

from __future__ import annotations

import os
from typing import Any


def several(given: Any) -> list[Any]:
    """Return the given values as a list; a text or a path counts as one value."""
    return [given] if isinstance(given, str | os.PathLike) else [*given]
