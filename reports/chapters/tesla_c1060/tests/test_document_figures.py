"""The document's figures, each drawn, readable and true, and the atlas of them all."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pypdfium2
import pytest
import yaml
from matplotlib.figure import Figure
from rendering import HOSTILE
from tesla_c1060 import atlas
from tesla_c1060.atlas import DRAWINGS, KERNEL, build_atlas, index_statements
from tesla_c1060.chapter import RECORD
from tesla_c1060.figures import charts, charts_copied
from test_figures import assert_readable, note_of
from test_machine import C1060, FILE

BY_NUMBER = {drawing.number: drawing for drawing in DRAWINGS}
CHART_NUMBERS = {d.number for d in (*charts.DRAWINGS, *charts_copied.DRAWINGS)}


@pytest.mark.parametrize("number", BY_NUMBER)
def test_figure_of_the_c1060(number: int, written: list[Figure], tmp_path: Path) -> None:
    BY_NUMBER[number].draw(C1060, tmp_path / "a.svg")
    note = note_of(tmp_path / "a.svg")
    assert note["title"].startswith(f"Figure {number}: ")
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    chart = number in CHART_NUMBERS
    assert_readable(written[0], boxes=not chart)
    # No larger than its place on the page.
    width, height = written[0].get_size_inches()
    assert width <= 6.7 if chart else width == pytest.approx(6.7)
    assert 1.3 <= height <= 3.6
    # Hatches of dots, and bars that nobody sees, have made files of megabytes.
    assert not chart or (tmp_path / "a.svg").stat().st_size < 200_000


def pages_of(pdf: Path) -> list[str]:
    document = pypdfium2.PdfDocument(pdf)
    pages = (document[i].get_textpage().get_text_range() for i in range(len(document)))
    return [" ".join(page.split()) for page in pages]


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """The whole one, which test_simulations draws again."""
    (pdf,) = RECORD.glob(f"figures-{FILE.stem}-*.pdf")
    return pages_of(pdf)


def test_every_figure_stands_once_in_order_and_in_the_contents(pages: list[str]) -> None:
    assert list(BY_NUMBER) == [d.number for d in DRAWINGS] == sorted(BY_NUMBER)
    text = " ".join(pages)
    assert 12 <= len(pages) <= 18
    assert [int(n) for n in re.findall(r"Figure (\d+):", text)] == list(range(1, 37))
    parts = [text.index(part) for part in ("Part I:", "Part II:", "Part III:")]
    starts = [text.index(f"Figure {n}:") for n in (1, 5, 6, 8, 9, 36)]
    table = text.index("Tables 2 and 3:")
    order = [parts[0], *starts[:2], parts[1], *starts[2:4], table, parts[2], *starts[4:]]
    assert order == sorted(order)
    pictures = {d.number: d.picture for d in DRAWINGS} | {11: "blockEqPartition_p4.jpg"}
    for number, picture in pictures.items():
        # Up to the next row, or to the page's footer.
        end = rf"(?={number + 1} \w+\.jpg|gpushmoo)"
        row = re.search(rf" {number} {picture} (.+?) (\d+) {end}", pages[0])
        assert row is not None, number
        assert f"Figure {number}:" in pages[int(row[2]) - 1]
    for words in (
        "tRC 34 110.5 document",
        "tRCD 12 39 public simulators",
        "50.9855 and 51.1923 GB/s",
        "nothing here was measured",
        "This listing is ours, written after the document's description",
    ):
        assert words in text


def test_strings_from_data_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(d for d in DRAWINGS if d.number in (2, 8, 12))
    monkeypatch.setattr(atlas, "DRAWINGS", few)
    device, pdf = tmp_path / "device.yaml", tmp_path / "atlas.pdf"
    told = {}
    for name in ("Harmless", HOSTILE):
        device.write_text(yaml.safe_dump(yaml.safe_load(FILE.read_text()) | {"name": name}))
        build_atlas(device, pdf)
        plain = " ".join(pages_of(pdf)).translate(str.maketrans("“”", '""'))
        told[name] = plain.replace(HOSTILE, "Harmless")
    assert "drawn from the simulated Harmless" in told["Harmless"]
    assert told[HOSTILE] == told["Harmless"]


def test_listing_is_quoted_from_the_kernel() -> None:
    source = KERNEL.read_text()
    quoted = index_statements(source)
    assert quoted.count(";") == 2
    assert quoted.startswith("const unsigned int tile_y =\n    __float2uint_rz(")
    with pytest.raises(ValueError, match="figure 11"):
        index_statements(source.replace("__float2uint_rz", "floor"))
    with pytest.raises(ValueError, match="copy_reciprocal"):
        index_statements(source.replace("copy_reciprocal", "copy_other"))
