"""The tables of docs/mistakes.md: what was written, and what gpushmoo says of it."""

from __future__ import annotations

import re

from conftest import ROOT

PAGE = (ROOT / "docs/mistakes.md").read_text()
_ROW = re.compile(r"^\| (.+?) \| `(.+?)` \| (.+?) \|$", re.M)


def rows_under(heading: str) -> dict[str, str]:
    """What is said of each mistake in the section of that heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {written: said for written, said, _ in _ROW.findall(section)}


def is_said(said: str, sentence: str) -> bool:
    """Whether the page's `said`, in which ``…`` leaves something out, is the `sentence`."""
    return re.fullmatch(".+".join(map(re.escape, said.split("…"))), sentence) is not None
