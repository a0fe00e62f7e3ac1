"""Shards that were changed are refused: some of what `make mutations` draws by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import examples
from mutations import try_mutations
from shards import ShardSet, accepted, make_shards


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    return make_shards(tmp_path_factory.mktemp("shards") / "run")


def test_no_changed_shard_is_accepted(shards: ShardSet, tmp_path: Path) -> None:
    assert accepted(shards)
    tally = try_mutations(shards, "1", range(1, examples(24) + 1), tmp_path / "mutant")
    assert tally.failures == []
    assert tally.classes.total() == examples(24)
    assert len(tally.classes) == 3
