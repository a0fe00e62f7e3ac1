"""Writes the README, the pages of docs/ whose numbers come from the record, and the JSON schema.

    make docs

A page is refused when a sentence of it is no longer so; all such sentences are named.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from gpushmoo.core.paths import ROOT
from gpushmoo.planning.settings import json_schema
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from recompute import (
    coverage,
    dictionary,
    documents,
    front,
    h200,
    model,
    reference,
    simulated,
    studies,
)
from recompute.places import PLACES
from recompute.record import Record, read_json, read_record
from recompute.words import FILTERS, Claims

DOCS = Path(__file__).resolve().parent
TEMPLATES = DOCS / "templates"
# For editors, beside the configuration's keys in reference.md.
SCHEMA = ROOT / "workflow/schemas/config.schema.json"
WIDTH = 118
# A number stays on the line of its unit.
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[nµm]?s|%|GB/s|[KMG]i?B|×|cells)(?!\w))")
# Lines of Markdown that are no part of a paragraph.
KEPT_AS_IT_IS = ("|", "#", "!", "<", ">", "```", "    ", "  * ")


def pages() -> list[str]:
    """Names of the pages that have a template."""
    return sorted(p.name for p in TEMPLATES.glob("*.md"))


def place(page: str) -> Path:
    """Where a page lies: in docs/, but for the README and the pages of chapters."""
    return ROOT / PLACES.get(page, f"docs/{page}")


def computed(record: Record, claims: Claims) -> dict[str, Any]:
    """What templates see: computed values by subject, recorded files, and `hold` for sentences."""
    numbers = {
        "h200": h200.values(record, read_record("nvidia-h200-seeds"), claims),
        "simulated": simulated.values(record, claims),
    }
    return {
        **numbers,
        "front": front.values(record, claims),
        "page": front.page(record),
        "coverage": coverage.values(claims),
        "recorded": read_json,
        "hold": claims.hold,
        "model": model.values(claims),
        "comparing": studies.comparing(claims),
        "several": studies.several_devices(claims),
        "gallery": studies.gallery(read_record("nvidia-h200-gallery"), claims),
        "documents": documents.values(claims, numbers),
        "dictionary": dictionary.values(),
        "reference": reference.values(),
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
    environment.filters.update(FILTERS, row=lambda cells: f"| {' | '.join(cells)} |")
    return wrapped(environment.get_template(page).render(values))


def wrapped(text: str) -> str:
    """`text` with the lines of its paragraphs and list items filled again; all else as it is."""
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
    values = computed(read_record(), claims)
    for page in pages():
        place(page).write_text(rendered(page, values), encoding="utf-8")
    SCHEMA.write_text(json.dumps(json_schema(), indent=1) + "\n", encoding="utf-8")
    for sentence in claims.broken:
        print(f"No longer so: {sentence}", file=sys.stderr)
    return int(bool(claims.broken))


if __name__ == "__main__":
    sys.exit(main())
