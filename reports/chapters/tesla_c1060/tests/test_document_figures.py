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

# What the text of the document fixes; the captions have it from the simulation.
TOLD = {
    1: [
        "1 transaction (64 bytes)",
        "1 transaction (128 bytes)",
        "(128 + 64 bytes)",
        "3 loads",
        "6 transactions move 576 bytes, 3 times the useful 192",
    ],
    2: ["the 64 tiles", "256 threads (32 × 8, 16 half-warps) copies 4, 8 rows apart"],
    3: ["256 bytes", "lies in 1 of 8 partitions", "lie in 8 partitions"],
    4: ["128 bytes", "begins in partition 4", "lies in 2 of 8", "lie in 4 partitions"],
    5: ["378 for the 384 bytes", "lies in 4 of 8", "rows side by side lie in 3"],
    6: ["8 memory cycles after", "each takes 24", "4 reads end after 48 cycles instead of 96"],
    7: ["21 + 13 = 34 memory cycles = 110.5 core", "22 memory cycles = 71.5 core", "18% of"],
    8: ["4 bursts of 32 bytes", "every 2 memory", "after 18 memory cycles instead of 48"],
    9: [
        "1 block needs 128 steps, each of which uses 1 of 8",
        "64 steps, each of which uses 2 of 8",
    ],
    10: ["32 steps, each of which uses 4 of 8", "16 steps, each of which uses 8 of 8"],
    12: ["20 cycles", "waits 401"],
    13: ["in unit 22", "takes 32 units"],
    14: ["takes hw1", "1 half-warp waits"],
    15: ["takes hw22", "hw0, which stands behind hw31"],
    16: ["takes hw0", "hw1 to hw10"],
    17: ["128 tiles of 640 cycles", "82321 cycles", "4.14 GB/s"],
    18: ["8.28 against 4.14 GB/s"],
    19: ["from 420 to 421", "from 421 to 422"],
    20: ["64 tiles instead of 128", "640 cycles against 640", "1.99 times"],
    21: ["takes 2 cycles, shorter than the 20"],
    22: ["2 transfers takes 4 cycles", "4 transfers takes 4 cycles"],
    23: ["4 transfers takes 8 cycles", "8 transfers takes 8 cycles"],
    24: ["8 transfers takes 16 cycles, shorter than the 20", "15.45 times"],
    25: ["holds the SM for 1 cycle", "12 half-warps"],
    26: ["takes 55 units: 32", "4.84 GB/s"],
    27: ["8 × 16 = 128 tiles", "256 bytes wide, in 1 of 8"],
    28: [
        "32 blocks 8 tiles on SM0 and SM1",
        "30 blocks 5 tiles on SM0 to SM7",
        "16 blocks it is 8",
    ],
    29: ["36 cycles", "402", "404", "1.625"],
    30: ["after 14 units", "after 32"],
    31: ["takes 46 units: 32", "3.22 GB/s"],
    32: ["48.75 cycles", "longer than the 36", "without vacuum", "18 x 2 = 16"],
    33: ["write command after 1152", "98% of the time"],
    34: ["reads for 1560 cycles", "never rests"],
    35: ["X = (32 − 20) × 36 = 432", "= 49725", "54.3553 GB/s", "50.9855 GB/s", "slip"],
    36: ["= 99450", "54.5904 GB/s", "51.1923 GB/s", "1.00433 times", "slip"],
}


@pytest.mark.parametrize("number", TOLD)
def test_figure_of_the_c1060(number: int, written: list[Figure], tmp_path: Path) -> None:
    BY_NUMBER[number].draw(C1060, tmp_path / "a.svg")
    note = note_of(tmp_path / "a.svg")
    assert note["title"].startswith(f"Figure {number}: ")
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert [words for words in TOLD[number] if words not in note["caption"]] == []
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
    assert list(BY_NUMBER) == [d.number for d in DRAWINGS] == sorted(TOLD)
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
    assert "drawn anew from the simulated Harmless" in told["Harmless"]
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
