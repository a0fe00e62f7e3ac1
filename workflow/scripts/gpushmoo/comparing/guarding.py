"""Whether a comparison lets a run pass."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import UserError
from ..storage.store import read_table
from ..storage.wholefile import write_summed
from .markdown import change, changed_groups, group_words
from .tables import CHANGED_GROUPS_SCHEMA

_MOST_NAMED = 3


class SlowerError(UserError):
    """A group's best surely got slower; one sentence."""


def guard(groups: Path, out: Path) -> None:
    """Write to `out` that a comparison's `groups` raise no alarm; SlowerError if they do."""
    table = read_table(groups, CHANGED_GROUPS_SCHEMA).to_pandas()
    slow = changed_groups(table[table["alarm"]]).to_dict("records")
    if slow:
        named = "; ".join(f"{group_words(row)}: {change(row)}" for row in slow[:_MOST_NAMED])
        more = f"; and {len(slow) - _MOST_NAMED} more" if len(slow) > _MOST_NAMED else ""
        raise SlowerError(
            f"{len(slow)} of {len(table)} groups' bests surely got slower: {named}{more}. "
            f"'{groups.with_name('summary.md')}' has the table."
        )
    write_summed(out, f"No best of {len(table)} groups surely got slower.\n".encode())
