"""The second document's page: tied sets, its rule, the cost of stored sums; what it reports."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import cell
from conftest import ROOT
from gpushmoo.analysis.peak import PeakRow
from gpushmoo.core.space import Problem
from gpushmoo.workloads.loader import load_kernel
from rendering import HOSTILE, render
from synthetic import write_shard
from texture_shmoo.pages import TITLE, textures_page, written_sums

PUBLISHED: dict[str, Any] = json.loads(
    (ROOT / "reports/chapters/texture_shmoo/published/textures.json").read_text()
)
TEXTURE, SURFACE = PUBLISHED["shmoos"]
SIDE = 4096
IMAGE_BYTES = SIDE**2 * 4

Times = Mapping[tuple[int, int], float]


def cells_of(
    times: Times, want: Mapping[str, str] = TEXTURE, side: int = SIDE, **change: Any
) -> pd.DataFrame:
    """Cells of these shapes (width, height) with medians in seconds."""
    moved = side**2 * 4
    written = 0 if want["kernel"] == "tex2d_sum" else moved
    place = {name: want[name] for name in ("kernel", "variant", "dtype")}
    place |= {"height": side, "width": side, "bytes_written": written}
    place |= {"bytes_read": moved - written} | change
    return pd.DataFrame(
        [
            cell(seconds, 0.004, block_x=x, block_y=y, threads_per_block=x * y, **place)
            for (x, y), seconds in times.items()
        ]
    )


def peak(kind: str, gbs: float) -> PeakRow:
    return PeakRow(
        device_name="D",
        cache_state="warm",
        timing_mode="batched",
        kind=kind,
        bytes_touched=IMAGE_BYTES,
        working_set_over_cache=1.0,
        bandwidth_gbs=gbs,
        bandwidth_low_gbs=gbs,
        bandwidth_high_gbs=gbs,
        kernel=f"global_{kind}",
        dtype="float4",
        variant="plain",
        params="block_x=1",
    )


def page_of(
    cells: pd.DataFrame, rows: Sequence[PeakRow] = (), told: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    page = textures_page(cells, rows, PUBLISHED, told)
    assert page is not None
    return page


TIMES = {(4, 4): 2.0, (16, 16): 1.0, (32, 8): 1.007, (8, 16): 1.003, (64, 2): 1.1}


def test_ours_have_their_tied_shapes_interval_and_share() -> None:
    measured = peak("load", 2 * IMAGE_BYTES * 1e-9)
    # Shapes that were not verified take no part.
    failed = cells_of({(8, 8): 1e-9, (2, 2): 99.0}, status="launch_failed")
    (row,) = page_of(pd.concat([cells_of(TIMES), failed]), [measured])["ours"]
    assert row["where"] == "texture read, 4096²"
    assert row["bandwidth"] == "0.0671 (0.0668 to 0.0674)"
    assert (row["share"], row["threads"], row["worst"]) == ("50 %", "128, 256", "50 %")
    assert (row["tied"], row["shapes"]) == ("3 of 5", "256: 16×16, 32×8; 128: 8×16")
    for part in ("0.0671 GB/s (0.0668", "50 % of the load peak", "128, 256 threads", "3 of 5"):
        assert part in row["finding"]
    # Of many tied shapes the fastest are named.
    (row,) = page_of(cells_of({(4, n): 1.0 + n * 1e-5 for n in range(4, 24)}))["ours"]
    assert (row["threads"], row["tied"]) == ("16 to 92", "20 of 20")
    assert row["shapes"].endswith("; and 8 more")
    assert "60: 4×15; " in row["shapes"]
    assert "4×16" not in row["shapes"]


def test_each_kernel_size_state_and_device_is_its_own_by_the_documents_variant_and_type() -> None:
    faster = {shape: t / 9 for shape, t in TIMES.items()}
    groups = [
        cells_of(TIMES),
        cells_of(TIMES, side=2048),
        cells_of(TIMES, cache_state="flushed"),
        cells_of(TIMES, device_name="H"),
        cells_of(TIMES, SURFACE),
        cells_of(faster, dtype="unorm8x4"),
        cells_of(faster, variant="row-point-clamp"),
        cells_of(faster, kernel="copy2d_coalesced"),
    ]
    rows = page_of(pd.concat(groups))["ours"]
    assert [row["where"].split(",")[0] for row in rows] == ["texture read"] * 4 + ["surface memset"]
    assert {row["tied"] for row in rows} == {"3 of 5"}


def test_share_is_that_of_the_load_peak_or_of_the_store_peak() -> None:
    gbs = IMAGE_BYTES * 1e-9
    peaks = [peak("load", 4 * gbs), peak("store", 2 * gbs)]
    (surface,) = page_of(cells_of(TIMES, SURFACE), peaks)["ours"]
    assert surface["share"] == "50 %"
    assert "50 % of the store peak, with" in surface["finding"]
    (without,) = page_of(cells_of(TIMES, SURFACE), peaks[:1])["ours"]
    assert without["share"] == "—"
    assert "peak" not in without["finding"]
    (above,) = page_of(cells_of(TIMES), [peak("load", gbs / 2)])["ours"]
    assert above["share"] == "—"
    assert "above the load peak, with" in above["finding"]


def test_rule_asks_for_enough_threads_and_for_whole_warps() -> None:
    times = {
        (16, 8): 1.0,  # 128
        (32, 5): 1.25,  # 160
        (43, 3): 2.0,  # 129
        (5, 40): 2.5,  # 200
        (32, 3): 4.0,  # 96: whole warps, but too few
        (127, 1): 5.0,
        (4, 4): 10.0,
    }
    classes = page_of(cells_of(times))["classes"]
    assert [(c["words"], c["shapes"], c["median"], c["range"]) for c in classes] == [
        ("at least 128 threads, whole warps", "2", "90 %", "80 % to 100 %"),
        ("at least 128 threads, last warp not full", "2", "45 %", "40 % to 50 %"),
        ("fewer than 128 threads", "3", "20 %", "10 % to 25 %"),
    ]
    # A class without shapes is left out.
    assert len(page_of(cells_of({(16, 8): 1.0, (4, 4): 2.0}))["classes"]) == 2


STORED = PUBLISHED["stored"]
SUFFIXES = [control["suffix"] for control in STORED["controls"]]
WRITTEN, REDUCED = ({**TEXTURE, "variant": TEXTURE["variant"] + s} for s in SUFFIXES)
PROOF = (STORED["kernel"], SUFFIXES[0])


def test_stored_sums_are_compared_shape_by_shape() -> None:
    plain = {(4, 4): 2.0, (4, 8): 1.0, (8, 4): 4.0, (8, 8): 1.0}
    stored = {(4, 4): 2.2, (4, 8): 1.3, (8, 4): 4.8, (32, 32): 9.0}
    both = pd.concat([cells_of(plain), cells_of(stored, WRITTEN)])
    (found,) = written_sums(both, *PROOF).itertuples()
    assert (found.kernel, found.variant, found.shapes) == ("tex2d_sum", "block-point-clamp", 3)
    # Of 1.1, 1.2 and 1.3; linear between them.
    told = (found.median, found.low, found.high)
    assert told == pytest.approx((1.2, 1.11, 1.29))
    # What differs in more than the sums is not compared, nor what was not verified.
    others = [{"variant": "row-point-clamp"}, {"cache_state": "flushed"}, {"height": 2048}]
    others += [{"dtype": "float4"}, {"device_name": "H"}, {"kernel": "mine"}, {"waves": 1}]
    others += [{"status": "timeout"}]
    parts = [cells_of(TIMES, WRITTEN), *(cells_of(TIMES, **change) for change in others)]
    assert written_sums(pd.concat(parts), *PROOF).empty
    rows = page_of(pd.concat([both, cells_of({(4, 4): 2.1}, REDUCED)]))["written"]
    assert rows[0] == {
        "where": "float, block-point-clamp, 4096²",
        "stored": "each texel's sum",
        "shapes": "3",
        "ratio": "1.20",
        "range": "1.11 to 1.29",
    }
    assert (rows[1]["stored"].split()[0], rows[1]["ratio"]) == ("one", "1.05")


def test_each_grid_has_its_best_shape_and_is_held_against_the_covering_one_and_the_twin() -> None:
    covers = {(16, 8): 1.0, (16, 12): 1.25, (16, 16): 1.1, (4, 4): 9.0}
    persists = {(16, 8): 1.0, (16, 12): 0.8, (16, 16): 0.9}
    twin = {"variant": TEXTURE["twin"]}
    groups = [
        cells_of(covers),  # as recorded before there were waves
        cells_of(persists, waves=1),
        cells_of({shape: s / 2 for shape, s in persists.items()}, waves=1, **twin),
    ]
    page = page_of(pd.concat(groups))
    assert [g["where"] for g in page["grids"]] == ["texture read, 4096²"] * 2
    names = ("grid", "threads", "named", "covering", "twin")
    covering, wave = ([g[name] for name in names] for g in page["grids"])
    assert covering == ["covers the image", "128", ["100 %", "80.0 %"], "—", "—"]
    # (4, 4) was measured in one grid only.
    assert page["grids"][0]["shapes"] == "1 of 3"
    both = ["0.818 (0.658 to 0.982)", "2.00 (2.00 to 2.00)"]
    assert wave == ["1 wave", "192", ["80.0 %", "100 %"], *both]
    # What the document has is a grid that covers the image.
    assert [row["tied"] for row in page["ours"]] == ["1 of 4"]
    assert [c["shapes"] for c in page["classes"]] == ["3", "1"]
    assert page_of(cells_of(covers, waves=0))["grids"] == []


def test_lost_shapes_are_bounded_where_all_of_them_were_measured() -> None:
    fours = {(4, 32): 1.0, (8, 16): 1.01, (16, 8): 1.02, (32, 4): 1.25, (16, 16): 0.8}
    page = page_of(cells_of(fours))
    assert [c["shapes"].count("×") for c in page["candidates"]] == [4, 8]
    assert page["bounds"] == [
        {
            "where": "texture read, 4096²",
            "threads": "128",
            "best": "4×32",
            "reach": "80.0 %",
            "apart": "20 %",
        }
    ]
    assert page_of(cells_of({(4, 32): 1.0, (8, 16): 1.0}))["bounds"] == []


def provenance(kernel: str = "tex2d_sum", **found: Any) -> dict[str, Any]:
    return {"params": {"folder": f"kernels/{kernel}"}, "machine_code": None, **found}


def test_without_the_documents_kernels_there_is_no_page() -> None:
    others = ({"kernel": "copy2d_coalesced"}, {"status": "timeout"}, {"dtype": "unorm8x4"})
    tables = [cells_of(TIMES, **change) for change in others]
    tables.append(tables[0].drop(columns=["block_x", "block_y"]))
    assert [textures_page(cells, [], PUBLISHED, []) for cells in tables] == [None] * 4


def test_machine_code_is_said_to_be_checked_only_where_it_was() -> None:
    cells = cells_of(TIMES)
    fine, failed = ({"failure": f, "entries": []} for f in (None, "it does not compile"))
    codes = [{"a": fine, "b": fine, "broken": failed}, {"b": fine, "c": fine}]
    told = [provenance(machine_code={"arch": "sm_90", "variants": v}) for v in codes]
    said = page_of(cells, told=told)["machine_code"]
    assert "(sm_90)" in said
    assert "all 3 variants" in said
    assert "not looked at" not in said
    other = provenance("surf2d_memset", machine_code=told[0]["machine_code"])
    for unchecked in ([provenance()], [other], []):
        assert "not looked at" in page_of(cells, told=unchecked)["machine_code"]


def test_published_values_follow_from_the_published_time_and_are_possible() -> None:
    told = [v for v in PUBLISHED["values"] if v["seconds"] is not None]
    assert len(told) == 1
    side, kind = re.findall(r"\w+", told[0]["image"].replace("²", ""))
    assert kind == "float"
    gbs = int(side) ** 2 * 4e-9 / told[0]["seconds"]
    assert gbs == pytest.approx(told[0]["gbs"], abs=0.05)
    # The note repeats the time for the reader.
    assert f"{1e3 * told[0]['seconds']:.2f} ms" in told[0]["note"]
    for value in PUBLISHED["values"]:
        # Gigabits or megabytes would be far off these boards' 140 to 150 GB/s.
        assert 10 < value["gbs"] < 150
        assert re.fullmatch(rf"{value['gbs']:g}G[Bb]?/s", value["printed"]), "mended apart"
        assert int(value["threads"].split()[0]) % 32 == 0
        assert value["what"] in {s["what"] for s in PUBLISHED["shmoos"]}


def test_experiments_are_variants_of_our_kernels() -> None:
    for want in PUBLISHED["shmoos"]:
        workload = load_kernel(ROOT / "kernels" / want["kernel"]).workload
        assert want["variant"] in workload.variants
        assert want["variant"] not in workload.controls
        assert want["twin"] in workload.controls
        assert want["dtype"] in workload.dtypes
    controls = load_kernel(ROOT / "kernels" / STORED["kernel"]).workload.controls
    assert {TEXTURE["variant"] + suffix for suffix in SUFFIXES} <= set(controls)
    assert all(name.endswith((*SUFFIXES, "-plain")) for name in controls)


def letters(text: str) -> str:
    """Without spaces and hyphens, which a paragraph's lines bring in, and quotes of any style."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def test_the_report_shows_the_page_and_strings_from_data_are_text(tmp_path: Path) -> None:
    sides = (4, 8, 16, 32, 64)
    textures = ("block-point-clamp", "row-point-clamp", "block-point-clamp-written")
    surfaces = SURFACE["variant"], SURFACE["twin"]
    persistent = {"waves": (0, 1)}
    for kernel, variants, grids in (
        ("tex2d_sum", textures, {}),
        ("surf2d_memset", surfaces, persistent),
    ):
        write_shard(
            tmp_path / f"shards/{kernel}.parquet",
            kernel,
            "float",
            problems=[Problem(SIDE, SIDE)],
            axes={"block_x": sides, "block_y": sides, **grids},
            variants=variants,
        )

    def hostile(cells: pd.DataFrame, metadata: dict[str, Any]) -> None:
        # Of two device names, each row says which one it is of.
        if metadata["params"]["folder"].endswith("tex2d_sum"):
            cells["device_name"] = metadata["device"]["name"] = HOSTILE
            checked = {v: {"failure": None, "entries": []} for v in textures}
            metadata["machine_code"] = {"arch": HOSTILE, "variants": checked}

    found = render(tmp_path / "shards", tmp_path, hostile)
    text = letters(found.text)
    start = text.rindex(letters(TITLE))
    published = [f"{v['device']} {v['image']} {v['printed']}" for v in PUBLISHED["values"]]
    page = found.chapter("texture_shmoo")
    ours = [row["bandwidth"] for row in page["ours"]]
    places = [text.index(letters(said), start) for said in [*published, *ours]]
    assert places == sorted(places)
    slips = [s[key] for s in PUBLISHED["slips"] for key in ("slip", "corrected")]
    for said in [
        *PUBLISHED["lost"],
        *slips,
        page["machine_code"],
        "What storing the sums costs",
        "Do the same blocks win",
    ]:
        assert letters(said) in text
    # Quotes become typographic, lines break anywhere: what is left of it has to be whole.
    assert text.count(letters("texture read, 4096²,") + letters(HOSTILE)) >= 3
    shown = re.sub(r"\s", "", found.text.replace("“", '"').replace("”", '"'))
    assert re.sub(r"\s", "", HOSTILE) in shown
    # Stored sums move twice the bytes in a quarter more time, and never win the findings.
    assert not any("written" in b["variant"] for b in found.facts["best"])
