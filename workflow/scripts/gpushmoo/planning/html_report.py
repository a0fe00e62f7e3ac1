"""What Snakemake's own report (``--report``) says of a figure: what its note says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..storage.wholefile import DamagedFileError, read_json

# What reStructuredText takes for markup within a line.
_MARKUP = re.compile(r"[\\*`|_]")
_BRACES = str.maketrans("{}", "()")


def figure_note(wildcards: Any, output: Any) -> dict[str, str]:
    """A figure's caption, for the template of captions; empty as long as there is no figure.

    A parameter of the rule, which Snakemake asks for again when it makes its report. It does not
    compare one whose function takes `output`, so a figure is not drawn again for its own note.
    """
    return {"caption": _MARKUP.sub(r"\\\g<0>", _note(output).get("caption", ""))}


def figure_labels(wildcards: Any, output: Any) -> dict[str, str]:
    """What stands beside a figure in the report's list of them: its title."""
    # Snakemake would take what is in braces for wildcards.
    return {"figure": _note(output).get("title", "").translate(_BRACES)}


def _note(output: Any) -> dict[str, Any]:
    path = Path(str(output.note))
    try:
        return read_json(path)
    except DamagedFileError:
        return {}
