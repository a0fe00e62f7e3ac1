"""The atlas: every figure of the document once, in order; strings from data are text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pypdfium2
import pytest
import yaml
from conftest import ROOT
from rendering import HOSTILE
from tesla_c1060 import atlas as drawings
from tesla_c1060.atlas import KERNEL, atlas_facts, build_atlas, index_statements, timing_rows
from tesla_c1060.chapter import RECORD
from tesla_c1060.simulation.machine import load_machine

DEVICE = ROOT / "reports/chapters/tesla_c1060/devices" / "tesla-c1060.yaml"
DRAWN = [*range(1, 11), *range(12, 37)]


class Atlas(NamedTuple):
    pdf: bytes
    pages: list[str]

    @property
    def text(self) -> str:
        return " ".join(self.pages)


def read(pdf: Path) -> Atlas:
    document = pypdfium2.PdfDocument(pdf)
    pages = [document[i].get_textpage().get_text_range() for i in range(len(document))]
    return Atlas(pdf.read_bytes(), [" ".join(page.split()) for page in pages])


def built(device: Path, folder: Path) -> Atlas:
    pdf = folder / "atlas.pdf"
    build_atlas(device, pdf)
    return read(pdf)


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    """The whole one, which test_recorded draws again."""
    (pdf,) = RECORD.glob(f"figures-{DEVICE.stem}-*.pdf")
    return read(pdf)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure of each part, where the figures do not matter."""
    chosen = tuple(d for d in drawings.DRAWINGS if d.number in (2, 8, 12))
    monkeypatch.setattr(drawings, "DRAWINGS", chosen)


def renamed(name: str, folder: Path, **changes: Any) -> Path:
    """The device's file under another name, perhaps with other values."""
    file = folder / "device.yaml"
    device = {**yaml.safe_load(DEVICE.read_text()), "name": name, **changes}
    file.write_text(yaml.safe_dump(device))
    return file


def test_every_figure_has_one_drawing_with_a_picture_of_its_own() -> None:
    assert [d.number for d in drawings.DRAWINGS] == DRAWN
    assert len({d.picture for d in drawings.DRAWINGS}) == len(DRAWN)


def test_two_drawings_of_one_figure_are_refused() -> None:
    first = drawings.DRAWINGS[4]
    second = replace(first, picture="another.jpg")
    message = f"figure 5 has two drawings: {first.picture} and another.jpg"
    with pytest.raises(ValueError, match=message):
        drawings.in_order([second, *drawings.DRAWINGS][::-1])
    assert drawings.in_order(drawings.DRAWINGS[::-1]) == drawings.DRAWINGS


def test_every_figure_stands_once_and_in_order(atlas: Atlas) -> None:
    assert 12 <= len(atlas.pages) <= 18
    found = [int(n) for n in re.findall(r"Figure (\d+):", atlas.text)]
    assert found == list(range(1, 37))
    parts = [atlas.text.index(part) for part in ("Part I:", "Part II:", "Part III:")]
    starts = [atlas.text.index(f"Figure {n}:") for n in (1, 5, 6, 8, 9, 36)]
    table = atlas.text.index("Tables 2 and 3:")
    order = [parts[0], *starts[:2], parts[1], *starts[2:4], table, parts[2], *starts[4:]]
    assert order == sorted(order)


def test_contents_name_picture_and_page(atlas: Atlas) -> None:
    where = {
        int(n): number
        for number, page in enumerate(atlas.pages, 1)
        for n in re.findall(r"Figure (\d+):", page)
    }
    front = atlas.pages[0]
    pictures = {d.number: d.picture for d in drawings.DRAWINGS} | {11: "blockEqPartition_p4.jpg"}
    for number, picture in pictures.items():
        # Up to the next row, or to the page's footer.
        row = re.search(
            rf" {number} {picture} (.+?) (\d+) (?={number + 1} \w+\.jpg|gpushmoo)", front
        )
        assert row is not None, number
        assert int(row[2]) == where[number]


def test_listing_timing_and_slips_are_told(atlas: Atlas) -> None:
    for words in (
        "const unsigned int tile_y = __float2uint_rz(__uint2float_rz((unsigned int)tile) *",
        "const unsigned int tile_x = (unsigned int)tile - tiles_x * tile_y;",
        "tRC 34 110.5 document",
        "tRCD 12 39 public simulators",
        "50.9855 and 51.1923 GB/s",
        "nothing here was measured",
        "This listing is ours, written after the document's description",
        "What differs: the document takes four statements",
    ):
        assert words in atlas.text


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", [HOSTILE, "#panic[x] *bold* <b>"])
def test_strings_from_data_are_text(name: str, tmp_path: Path) -> None:
    harmless = built(renamed("Harmless", tmp_path), tmp_path)
    found = built(renamed(name, tmp_path), tmp_path)
    assert "drawn anew from the simulated Harmless" in harmless.text
    shown = [page.replace("“", '"').replace("”", '"') for page in found.pages]
    again = [page.replace(name, "Harmless") for page in shown]
    assert again == [page.replace("“", '"').replace("”", '"') for page in harmless.pages]


@pytest.mark.usefixtures("few")
def test_same_device_gives_the_same_bytes(tmp_path: Path) -> None:
    assert built(DEVICE, tmp_path).pdf == built(DEVICE, tmp_path).pdf


def test_memory_timing_is_the_devices(tmp_path: Path) -> None:
    machine = load_machine(
        renamed("Other", tmp_path, core_clock_ghz=0.8, t_ras_cycles=30, t_rp_cycles=15)
    )
    rows = {row["symbol"] or row["name"]: row for row in timing_rows(machine)}
    assert [rows["tRAS"]["memory"], rows["tRC"]["memory"], rows["tRC"]["core"]] == [
        "30",
        "45",
        "90",
    ]
    assert rows["burst of 32 bytes of a partition"]["memory"] == "2"
    assert {row["source"] for row in rows.values()} == {"document", "public simulators' data"}
    facts = atlas_facts(machine, [], [])
    assert "0.8 GHz" in facts["clocks"]
    assert [row["number"] for row in facts["contents"]] == [11]


def test_listing_is_quoted_from_the_kernel() -> None:
    source = KERNEL.read_text()
    quoted = index_statements(source)
    assert quoted.count(";") == 2
    assert quoted.startswith("const unsigned int tile_y =\n    __float2uint_rz(")
    with pytest.raises(ValueError, match="figure 11"):
        index_statements(source.replace("__float2uint_rz", "floor"))
    with pytest.raises(ValueError, match="copy_reciprocal"):
        index_statements(source.replace("copy_reciprocal", "copy_other"))
