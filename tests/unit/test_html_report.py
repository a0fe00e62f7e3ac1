"""What Snakemake's own report says of a figure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from gpushmoo.planning.html_report import figure_labels, figure_note
from gpushmoo.storage.wholefile import write_json


def test_markup_and_braces_of_a_note_are_only_text(tmp_path: Path) -> None:
    output = SimpleNamespace(note=str(tmp_path / "note.json"))
    assert figure_note(None, output) == {"caption": ""}
    write_json(tmp_path / "note.json", {"title": "of {x}", "caption": "a*b, `c`, d_ and |e|"})
    assert figure_note(None, output) == {"caption": r"a\*b, \`c\`, d\_ and \|e\|"}
    assert figure_labels(None, output) == {"figure": "of (x)"}
    (tmp_path / "note.json").write_text("{}")
    assert figure_labels(None, output) == {"figure": ""}
