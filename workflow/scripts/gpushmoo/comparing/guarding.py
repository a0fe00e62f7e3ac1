"""Whether a comparison lets a run pass."""

from __future__ import annotations

from pathlib import Path

from ..storage.store import read_table
from ..storage.wholefile import write_summed
from .markdown import change, changed_groups, group_words
from .tables import CHANGED_GROUPS_SCHEMA

_MOST_NAMED = 3


class SlowerError(Exception):
    """A group's best surely got slower; one sentence."""


def guard(folder: Path, out: Path) -> None:
    """Write to `out` that the comparison in `folder` raises no alarm; SlowerError if it does."""
    groups = read_table(folder / "groups.parquet", CHANGED_GROUPS_SCHEMA).to_pandas()
    slow = changed_groups(groups[groups["alarm"]]).to_dict("records")
    if slow:
        named = "; ".join(f"{group_words(row)}: {change(row)}" for row in slow[:_MOST_NAMED])
        more = f"; and {len(slow) - _MOST_NAMED} more" if len(slow) > _MOST_NAMED else ""
        raise SlowerError(
            f"{len(slow)} of {len(groups)} groups' bests surely got slower: {named}{more}. "
            f"'{folder / 'summary.md'}' has the table."
        )
    write_summed(out, f"No best of {len(groups)} groups surely got slower.\n".encode())
