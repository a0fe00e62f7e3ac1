"""Writes the pages of docs/ whose numbers come from the record, from their templates.

    make docs

A page is refused when a sentence of it is no longer so; all such sentences are named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from recompute import (
    c1060,
    comparing,
    device_model,
    dictionary,
    documents,
    dots,
    explorer,
    followups,
    gallery,
    overview,
    peak,
    persistent,
    replication,
    rivals,
    search,
    shapes,
    simulated,
    speed,
    textures,
    tile,
)
from recompute.record import Record, read_record
from recompute.slow import Slow
from recompute.words import Claims

DOCS = Path(__file__).resolve().parent
TEMPLATES = DOCS / "templates"
WIDTH = 118
# A number stays on the line of its unit.
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[nµm]?s|%|GB/s|[KMG]i?B|×|cells)(?!\w))")
# Lines of Markdown that are no part of a paragraph.
KEPT_AS_IT_IS = ("|", "#", "!", "<", "```")
BY_RECORD = {
    "peak": peak,
    "tile": tile,
    "persistent": persistent,
    "shapes": shapes,
    "textures": textures,
    "dots": dots,
    "rivals": rivals,
    "replication": replication,
}


def pages() -> list[str]:
    """Names of the pages that have a template."""
    return sorted(p.name for p in TEMPLATES.glob("*.md"))


def computed(record: Record, slow: Slow, claims: Claims) -> dict[str, Any]:
    """The values of all templates, by the name of the module that computes them."""
    return {
        "overview": overview.values(record),
        **{name: module.values(record, claims) for name, module in BY_RECORD.items()},
        "simulated": simulated.values(record, slow, claims),
        "c1060": c1060.values(claims),
        "documents": documents.values(claims),
        "followups": followups.values(claims),
        "dictionary": dictionary.values(),
        "gallery": gallery.values(claims),
        "explorer": explorer.values(claims),
        "search": search.values(claims),
        "speed": speed.values(claims),
        "comparing": comparing.values(claims),
        "device_model": device_model.values(claims),
    }


def rendered(page: str, values: Mapping[str, Any]) -> str:
    """The text of a page. Raises jinja2.UndefinedError for a value that nothing computes."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["row"] = lambda cells: f"| {' | '.join(cells)} |"
    return wrapped(environment.get_template(page).render(values))


def wrapped(text: str) -> str:
    """`text` with the lines of its paragraphs and list items filled anew; all else as it is."""
    lines: list[str] = []
    paragraph: list[str] = []
    code = False
    for line in text.splitlines():
        code ^= line.startswith("```")
        apart = code or not line.strip() or line.startswith(KEPT_AS_IT_IS)
        if paragraph and (apart or line.startswith("* ")):
            lines += filled(paragraph)
            paragraph = []
        if apart:
            lines.append(line.rstrip())
        else:
            paragraph.append(line)
    return "\n".join([*lines, *filled(paragraph)]) + "\n"


def filled(paragraph: Sequence[str]) -> list[str]:
    """The lines of one paragraph or list item, as long as they may be."""
    item = bool(paragraph) and paragraph[0].startswith("* ")
    inner = "  " if item or (paragraph and paragraph[0].startswith("  ")) else ""
    filler = TextWrapper(
        WIDTH,
        initial_indent="" if item else inner,
        subsequent_indent=inner,
        break_long_words=False,
        break_on_hyphens=False,
    )
    words = " ".join(" ".join(paragraph).split())
    lines = filler.wrap(BEFORE_UNIT.sub("\u00a0", words))
    return [line.replace("\u00a0", " ") for line in lines]


def main() -> int:
    """Write every page that has a template; 1 when a sentence no longer holds."""
    claims = Claims()
    values = computed(read_record(), Slow(may_compute=True), claims)
    for sentence in claims.broken:
        print(f"No longer so: {sentence}", file=sys.stderr)
    for page in pages():
        (DOCS / page).write_text(rendered(page, values), encoding="utf-8")
    return int(bool(claims.broken))


if __name__ == "__main__":
    sys.exit(main())
