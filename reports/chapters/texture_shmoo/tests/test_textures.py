"""The second document's page: tied sets, its rule, the cost of stored sums; what it reports."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT
from gpushmoo.analysis.ceiling import CeilingRow, CeilingShare
from gpushmoo.report.tables import Namer
from gpushmoo.workloads.loader import load_kernel
from texture_shmoo.pages import Shmoo, shmoos, textures_page, written_sums

PUBLISHED: dict[str, Any] = json.loads(
    (ROOT / "reports/chapters/texture_shmoo/published/textures.json").read_text()
)
TEXTURE, SURFACE = PUBLISHED["shmoos"]
SIDE = 4096
IMAGE_BYTES = SIDE**2 * 4
# Half of every interval, as a share of its median.
HALF = 0.004

Times = Mapping[tuple[int, int], float]


def cells_of(
    times: Times, want: Mapping[str, str] = TEXTURE, side: int = SIDE, **change: Any
) -> pd.DataFrame:
    """Cells of these shapes (width, height) with medians in seconds, as the dataset has them."""
    rows = []
    for (x, y), median in times.items():
        gbs = side**2 * 4e-9 / median
        moved = side**2 * 4
        rows.append(
            {
                **{n: want[n] for n in ("kernel", "variant", "dtype")},
                "device_name": "G",
                "height": side,
                "width": side,
                "cache_state": "warm",
                "launch_kind": "back_to_back",
                "status": "ok",
                "cell_key": f"{x:04}{y:04}",
                "block_x": x,
                "block_y": y,
                "threads_per_block": x * y,
                "bytes_read": moved if want["kernel"] == "tex2d_sum" else 0,
                "bytes_written": 0 if want["kernel"] == "tex2d_sum" else moved,
                "median_s": median,
                "own_low_s": median * (1 - HALF),
                "own_high_s": median * (1 + HALF),
                "bandwidth_gbs": gbs,
                "bandwidth_low_gbs": gbs * (1 - HALF),
                "bandwidth_high_gbs": gbs * (1 + HALF),
                **change,
            }
        )
    return pd.DataFrame(rows)


def ceiling(kind: str, gbs: float) -> CeilingRow:
    where = ("G", "warm", "back_to_back", kind, IMAGE_BYTES, 1.0)
    return CeilingRow(*where, gbs, gbs, gbs, f"global_{kind}", "float4", "plain", "block_x=1")


def one(cells: pd.DataFrame, rows: Sequence[CeilingRow] = ()) -> Shmoo:
    (found,) = shmoos(cells, PUBLISHED["shmoos"], rows)
    return found


# Tied sets


TIMES = {(4, 4): 2.0, (16, 16): 1.0, (32, 8): 1.007, (8, 16): 1.003, (64, 2): 1.1}


def test_tied_are_all_shapes_that_cannot_be_told_from_the_fastest() -> None:
    found = one(cells_of(TIMES))
    assert found.tied == ((16, 16), (8, 16), (32, 8))
    assert found.threads == (128, 256)
    assert found.candidates == 5
    assert found.worst == pytest.approx(0.5)
    assert found.best["median_s"] == 1.0


def test_shapes_that_were_not_verified_take_no_part() -> None:
    cells = cells_of({**TIMES, (8, 8): 1e-9, (2, 2): 99.0})
    cells.loc[cells["median_s"].isin([1e-9, 99.0]), "status"] = "launch_failed"
    found = one(cells)
    assert found.tied[0] == (16, 16)
    assert (found.candidates, found.worst) == (5, pytest.approx(0.5))


def test_only_the_documents_variant_and_type_are_its_experiment() -> None:
    faster = {shape: t / 9 for shape, t in TIMES.items()}
    others = [
        cells_of(faster, dtype="unorm8x4"),
        cells_of(faster, variant="row-point-clamp"),
        cells_of(faster, variant="block-point-clamp-written"),
        cells_of(faster, kernel="copy2d_coalesced"),
    ]
    assert one(pd.concat([*others, cells_of(TIMES)])).best["median_s"] == 1.0


def test_each_kernel_size_state_and_device_is_its_own() -> None:
    groups = [
        cells_of(TIMES),
        cells_of(TIMES, side=2048),
        cells_of(TIMES, cache_state="flushed"),
        cells_of(TIMES, device_name="H"),
        cells_of(TIMES, SURFACE),
    ]
    found = shmoos(pd.concat(groups), PUBLISHED["shmoos"], [])
    assert [s.what for s in found] == ["texture read"] * 4 + ["surface memset"]
    assert all(s.candidates == len(TIMES) for s in found)


def test_share_is_that_of_the_load_peak_or_of_the_store_peak() -> None:
    gbs = IMAGE_BYTES * 1e-9
    peaks = [ceiling("load", 4 * gbs), ceiling("store", 2 * gbs)]
    assert one(cells_of(TIMES), peaks).share == CeilingShare(pytest.approx(0.25))
    assert one(cells_of(TIMES, SURFACE), peaks).share == CeilingShare(pytest.approx(0.5))
    assert one(cells_of(TIMES, SURFACE), peaks[:1]).share is None
    slow = [ceiling("load", gbs / 2)]
    (told,) = page_of(cells_of(TIMES), slow)["ours"]
    assert told["share"] == "—"
    assert "above the load peak, with" in told["finding"]
    page = page_of(cells_of(TIMES, SURFACE), peaks)
    assert "50 % of the store peak, with" in page["ours"][0]["finding"]


# The document's rule


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
    keep, broken, few = one(cells_of(times)).classes
    assert (keep.shapes, keep.worst, keep.best) == (2, pytest.approx(0.8), pytest.approx(1.0))
    assert keep.median == pytest.approx(0.9)
    assert (broken.shapes, broken.worst, broken.best) == (2, pytest.approx(0.4), pytest.approx(0.5))
    assert (few.shapes, few.worst, few.best) == (3, pytest.approx(0.1), pytest.approx(0.25))
    assert "128" in keep.words
    assert "not full" in broken.words
    assert "fewer than 128" in few.words


def test_a_class_without_shapes_is_left_out() -> None:
    assert [c.shapes for c in one(cells_of({(16, 8): 1.0, (4, 4): 2.0})).classes] == [1, 1]


# Stored sums


STORED = PUBLISHED["stored"]
SUFFIXES = [control["suffix"] for control in STORED["controls"]]
WRITTEN, REDUCED = ({**TEXTURE, "variant": TEXTURE["variant"] + s} for s in SUFFIXES)
PROOF = (STORED["kernel"], SUFFIXES[0])


def test_stored_sums_are_compared_shape_by_shape() -> None:
    plain = {(4, 4): 2.0, (4, 8): 1.0, (8, 4): 4.0}
    stored = {(4, 4): 2.2, (4, 8): 1.3, (8, 4): 4.8}
    (found,) = written_sums(pd.concat([cells_of(plain), cells_of(stored, WRITTEN)]), *PROOF)
    assert found.shapes == 3
    assert found.median == pytest.approx(1.2)
    # Of 1.1, 1.2 and 1.3; linear between them.
    assert (found.low, found.high) == (pytest.approx(1.11), pytest.approx(1.29))
    assert found.row["variant"] == "block-point-clamp"
    assert found.row["kernel"] == "tex2d_sum"


def test_a_shape_measured_one_way_only_is_not_compared() -> None:
    plain = cells_of({(4, 4): 2.0, (8, 8): 1.0})
    stored = cells_of({(8, 8): 1.5, (32, 32): 9.0}, WRITTEN)
    (found,) = written_sums(pd.concat([plain, stored]), *PROOF)
    assert written_sums(plain, *PROOF) == []
    assert (found.shapes, found.median) == (1, pytest.approx(1.5))
    failed = stored.assign(status="timeout")
    assert written_sums(pd.concat([plain, failed]), *PROOF) == []


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float4"},
        {"variant": "row-point-clamp"},
        {"cache_state": "flushed"},
        {"device_name": "H"},
        {"kernel": "mine"},
        {"height": 2048},
    ],
)
def test_without_a_twin_nothing_is_compared(change: dict[str, Any]) -> None:
    both = pd.concat([cells_of(TIMES, **change), cells_of(TIMES, WRITTEN)])
    assert written_sums(both, *PROOF) == []


# The page


def provenance(kernel: str = "tex2d_sum", **found: Any) -> dict[str, Any]:
    return {"params": {"folder": f"kernels/{kernel}"}, "machine_code": None, **found}


def page_of(
    cells: pd.DataFrame, rows: Sequence[CeilingRow] = (), told: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    page = textures_page(cells, rows, PUBLISHED, told, Namer(cells))
    assert page is not None
    return page


@pytest.mark.parametrize(
    "cells",
    [
        cells_of(TIMES, kernel="copy2d_coalesced").drop(columns=["block_x", "block_y"]),
        cells_of(TIMES, kernel="copy2d_coalesced"),
        cells_of(TIMES, status="timeout"),
        cells_of(TIMES, dtype="unorm8x4"),
    ],
)
def test_without_the_documents_kernels_there_is_no_page(cells: pd.DataFrame) -> None:
    assert textures_page(cells, [], PUBLISHED, [], Namer(cells)) is None


def test_ours_are_said_with_their_unit_interval_and_share() -> None:
    peak = ceiling("load", 2 * IMAGE_BYTES * 1e-9)
    page = page_of(cells_of(TIMES), [peak])
    (row,) = page["ours"]
    assert row["where"] == "texture read, 4096²"
    assert row["bandwidth"] == "0.0671 (0.0668 to 0.0674)"
    assert (row["share"], row["threads"], row["worst"]) == ("50 %", "128, 256", "50 %")
    assert row["shapes"] == "256: 16×16, 32×8; 128: 8×16"
    said = row["finding"]
    for part in ("0.0671 GB/s (0.0668", "50 % of the load peak", "128, 256 threads", "3 of 5"):
        assert part in said
    (without_peak,) = page_of(cells_of(TIMES))["ours"]
    assert without_peak["share"] == "—"
    assert "peak" not in without_peak["finding"]


def test_of_many_tied_shapes_the_fastest_are_named() -> None:
    times = {(4, n): 1.0 + n * 1e-5 for n in range(4, 24)}
    (row,) = page_of(cells_of(times))["ours"]
    assert row["threads"] == "16 to 92"
    assert row["tied"] == "20 of 20"
    assert row["shapes"].endswith("; and 8 more")
    assert "60: 4×15; " in row["shapes"]
    assert "4×16" not in row["shapes"]


def test_stored_sums_stand_on_the_page() -> None:
    both = [cells_of({(4, 4): 2.5}, WRITTEN), cells_of({(4, 4): 2.1}, REDUCED)]
    rows = page_of(pd.concat([cells_of({(4, 4): 2.0}), *both]))["written"]
    assert rows[0] == {
        "where": "float, block-point-clamp, 4096²",
        "stored": "each texel's sum",
        "shapes": "1",
        "ratio": "1.25",
        "range": "1.25 to 1.25",
    }
    assert [(r["stored"].split()[0], r["ratio"]) for r in rows] == [
        ("each", "1.25"),
        ("one", "1.05"),
    ]


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


# What the document reports


def test_published_values_follow_from_the_published_time_and_are_possible() -> None:
    told = [v for v in PUBLISHED["values"] if v["seconds"] is not None]
    assert len(told) == 1
    side, kind = told[0]["image"].split("², ")
    assert kind == "float"
    gbs = int(side) ** 2 * 4e-9 / told[0]["seconds"]
    assert gbs == pytest.approx(told[0]["gbs"], abs=0.05)
    # The note repeats the time for the reader.
    assert f"{1e3 * told[0]['seconds']:.2f} ms" in told[0]["note"]
    for value in PUBLISHED["values"]:
        # Gigabits or megabytes would be far off these boards' 140 to 150 GB/s.
        assert 10 < value["gbs"] < 150
        assert int(value["threads"].split()[0]) % 32 == 0
        assert value["what"] in {s["what"] for s in PUBLISHED["shmoos"]}


def test_what_slipped_and_what_is_lost_agree_with_the_published_values() -> None:
    (slip,) = [s for s in PUBLISHED["slips"] if "Gb/s" in s["published"]]
    (value,) = [v for v in PUBLISHED["values"] if v["what"] == "surface memset"]
    assert slip["corrected"] == f"{value['gbs']:.0f} GB/s"
    assert f"{value['gbs'] / 8:.0f} GB/s" in slip["why"]
    (read,) = [
        v for v in PUBLISHED["values"] if v["what"] == "texture read" and "M2050" in v["device"]
    ]
    assert "M2050" in value["device"]
    assert round(read["gbs"] / (value["gbs"] / 8)) == 6, "a sixth"
    # Lost shapes leave the published numbers of threads.
    texture = [v["threads"] for v in PUBLISHED["values"] if v["what"] == "texture read"]
    assert any(all(n in lost for n in texture) for lost in PUBLISHED["lost"])


def test_slip_of_the_index() -> None:
    """As printed, with blockIdx for what is no name of CUDA's: threads of one x share a place."""
    (slip,) = [s for s in PUBLISHED["slips"] if "out[" in s["slip"]]
    index = re.search(r"“out\[blocks\.x\*blockDim\.x\+threadIdx\.x\]”", slip["slip"])
    assert index is not None
    block, grid = (4, 2), (3, 5)
    threads = itertools.product(range(grid[0]), range(grid[1]), range(block[0]), range(block[1]))
    places = Counter(bx * block[0] + tx for bx, _, tx, _ in threads)
    assert set(places.values()) == {grid[1] * block[1]}, "as many as there are rows of threads"


def test_experiments_are_variants_of_our_kernels() -> None:
    for want in PUBLISHED["shmoos"]:
        workload = load_kernel(ROOT / "kernels" / want["kernel"]).workload
        assert want["variant"] in workload.variants
        assert want["variant"] not in workload.controls
        assert want["dtype"] in workload.dtypes
    controls = load_kernel(ROOT / "kernels" / STORED["kernel"]).workload.controls
    assert {TEXTURE["variant"] + suffix for suffix in SUFFIXES} <= set(controls)
    assert all(name.endswith(tuple(SUFFIXES)) for name in controls)
