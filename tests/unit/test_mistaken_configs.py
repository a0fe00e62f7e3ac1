"""Mistakes in a configuration get the sentences that docs/mistakes.md says."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from conftest import ROOT
from gpushmoo.core.readable import UnreadableError, read_mapping
from gpushmoo.planning.config import check_memory, default_config, load_config
from gpushmoo.planning.config_schema import ConfigError
from mistakes import is_said, rows_under
from snakemake.utils import update_config

DEFAULT = default_config()
SAID = rows_under("In a configuration")


def test_the_page_has_enough_mistakes() -> None:
    assert len(SAID) >= 12


@pytest.mark.parametrize("written", SAID)
def test_a_mistake_is_said(written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The page shows where a line ends, and a tab.
    text = "" if written == "nothing" else written.strip("`").replace(" ↵ ", "\n")
    Path("mine.yaml").write_text(text.replace("⇥", "\t"))
    sentence = refusal()
    assert is_said(SAID[written], sentence), sentence


def refusal() -> str:
    """Why ``mine.yaml``, over the default configuration, is refused on a device of 8 GiB."""
    try:
        merged = copy.deepcopy(DEFAULT)
        update_config(merged, read_mapping("mine.yaml"))
        check_memory(load_config(merged, ROOT), 8 * 2**30, 4 * 2**30)
    except (UnreadableError, ConfigError) as err:
        return str(err)
    return "(taken)"
