"""What takes minutes to compute, kept beside the code with a digest of all that it depends on.

``make docs`` computes an entry anew when its digest has changed; a test only compares digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpushmoo.core.python_digest import python_digest

from .record import digest

KEPT = Path(__file__).with_name("slow.json")


class StaleError(Exception):
    """A kept result does not belong to these data or this code; one sentence."""


@dataclass
class Slow:
    """The kept results in `path`; `may_compute` says whether a stale one is computed anew."""

    may_compute: bool
    path: Path = KEPT

    def get(self, name: str, key: str, compute: Callable[[], Any]) -> Any:
        """The result `name` that belongs to `key`; raises StaleError where it may not be made."""
        kept = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        if kept.get(name, {}).get("key") == key:
            return kept[name]["result"]
        if not self.may_compute:
            raise StaleError(f"'{name}' was computed from other data or code; run 'make docs'.")
        kept[name] = {"key": key, "result": compute()}
        self.path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return kept[name]["result"]


def key_of(files: Iterable[Path], modules: Iterable[str]) -> str:
    """A digest of `files` and of what the project's `modules` do, dotted (see `python_digest`)."""
    key = hashlib.sha256(digest(sorted(files)).encode())
    for module in modules:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        key.update(python_digest(Path(spec.origin).read_bytes()))
    return key.hexdigest()
