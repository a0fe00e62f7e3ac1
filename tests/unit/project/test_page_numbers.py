"""Numbers with units in a page: computed from the record, a constant of the code, or seen once."""

import re
from pathlib import Path

import pytest
from conftest import ROOT
from gpushmoo.analysis.run_quality import STEADY
from gpushmoo.comparing.verdicts import FALSE_SHARE
from gpushmoo.devices.cuda.timing import SPINS_US
from gpushmoo.devices.memory import zone_bytes
from gpushmoo.measuring.overhead import CELLS
from gpushmoo.measuring.sample_length import LASTING_S, LONG_S, LONGEST_S, SHORT_S
from gpushmoo.measuring.sampling import TOGETHER
from gpushmoo.storage.joblog import MAX_BYTES

DOCS = ROOT / "docs"
NUMBER = re.compile(
    r"(?<![\w.,²×–-])\d[\d.,]*(?:\s(?:to|and)\s\d[\d.,]*)?\s?"
    r"(?:%|GB/s|[nµm]s|s|min|minutes|seconds|[MG]Hz|W|°C|times|cycles|cells|samples|[KMG]i?B)(?!\w)"
)
# Definitions, thresholds that a sentence names, sizes that a configuration or a document fixes.
CONSTANTS = frozenset(
    {"95 %", "100 %", "20 %", "1 %", "1 GB", "4 GiB", "32 MiB", "4 KiB", "2 s", "500 MB"}
)
# What the code says itself.
SETTINGS = frozenset(
    {
        f"{MAX_BYTES / 1e6:.0f} MB",
        f"{SHORT_S * 1e6:.0f} µs",
        f"{LASTING_S * 1e6:.0f} µs",
        f"{LONG_S * 1e3:.0f} ms",
        f"{CELLS} cells",
        f"{LONGEST_S:.2f} s",
        f"{zone_bytes(2**40) / 2**20:.0f} MiB",
        f"{STEADY:.0%}".replace("%", " %"),
        f"{FALSE_SHARE:.0%}".replace("%", " %"),
        f"{TOGETHER} cells",
        f"{SPINS_US[-1] / 1e3:.0f} ms",
        f"{LONGEST_S:.2f} s",
        f"{STEADY:.0%}".replace("%", " %"),
        f"{zone_bytes(2**30) / 2**20:.0f} MiB",
    }
)


def pages_to_check() -> list[Path]:
    templates = sorted((DOCS / "templates").glob("*.md"))
    made = {template.name for template in templates}
    plain = [page for page in sorted(DOCS.glob("*.md")) if page.name not in made]
    return [*templates, *plain, ROOT / "CHANGELOG.md"]


def loose_numbers(text: str) -> list[str]:
    """Numbers with units of a page in Markdown that neither a value nor 'seen once' stands for."""
    lead, *sections = text.split("\n## ")
    if sections and "seen once" in " ".join(lead.split()).lower():
        return []
    text = re.sub(r"(?s)```.*?```|\{\{.*?\}\}|\{%.*?%\}|<!--.*?-->", "", text)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=[*|] )", text):
        words = " ".join(paragraph.split())
        if "seen once" not in words.lower():
            found += [n for n in NUMBER.findall(words) if n not in CONSTANTS | SETTINGS]
    return found


@pytest.mark.parametrize("page", pages_to_check(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_number_with_a_unit_was_written_by_hand(page: Path) -> None:
    assert loose_numbers(page.read_text()) == []
