"""The explorer in a browser: real clicks and keys, and the same answers as the analysis."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsing import chromium, missing, opened
from conftest import ROOT
from explored import explored_dataset, write_predictions
from gpushmoo import explore
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.fastest import axes_of
from gpushmoo.comparing.run_history import history_of
from gpushmoo.comparing.runs import read_run
from gpushmoo.core.display import significant
from gpushmoo.core.schema import GROUP
from gpushmoo.extras.explorer.explore import Source, Unfinished, write_page
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.wholefile import write_json

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
COPY = "#kernel=copy2d_coalesced&dtype=float&size=1024x1024&cache=warm"
CURVE = "#kernel=block_eq_partition"
SLICES = "#kernel=global_load"
# Of a row of a table, in JavaScript.
TEXTS = "row => [...row.children].map(cell => cell.textContent)"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set, its cells and a page of it, with a model's predictions."""
    folder = tmp_path_factory.mktemp("explored")
    dataset = explored_dataset(folder)
    told = folder / "device.parquet"
    write_predictions(read_cells(dataset, {"kernel": "block_eq_partition"}), told)
    write_page([Source(dataset, "run", device=told)], folder / "page.html")
    return folder


@pytest.fixture(scope="module")
def cells(place: Path) -> pd.DataFrame:
    return read_cells(place / "dataset")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def context(browser: Any) -> Iterator[Any]:
    opened_context = browser.new_context(viewport=WIDE)
    yield opened_context
    opened_context.close()


@pytest.fixture
def tab(context: Any, place: Path) -> Iterator[Any]:
    """The page at a map. What goes wrong in its programs fails the test."""
    faults: list[str] = []
    page = opened(context, place / "page.html", COPY)
    page.on("pageerror", lambda err: faults.append(str(err)))
    page.on("console", lambda said: said.type == "error" and faults.append(said.text))
    yield page
    page.close()
    assert faults == []


def settle(tab: Any) -> None:
    """Wait until cross-sections and the table are drawn, which come after the answer."""
    tab.wait_for_selector("#answer div")
    tab.wait_for_selector("html:not([data-busy])")


def go(tab: Any, fragment: str) -> None:
    """Follow a link within the page, and wait until it is drawn."""
    tab.evaluate("document.getElementById('answer').replaceChildren()")
    tab.evaluate("link => { location.hash = link }", fragment)
    # The page completes the address.
    wait_for_link(tab, "timing=")
    settle(tab)


def choose(tab: Any, name: str, value: str) -> None:
    """Choose from a list, and wait until the page is drawn again."""
    tab.evaluate("document.getElementById('answer').replaceChildren()")
    tab.select_option(f"#choose-{name}", value)
    settle(tab)


def wait_for_link(tab: Any, part: str) -> None:
    """Wait until the address holds what was chosen."""
    tab.wait_for_function("part => location.hash.includes(part)", arg=part)


def params_of(cell: Any, axes: list[str]) -> str:
    return ", ".join(f"{axis} {int(cell[axis])}" for axis in axes) or "no launch parameters"


def cells_at_1024(cells: pd.DataFrame, dtype: str) -> pd.DataFrame:
    """Those of the map in COPY, or of another type."""
    of_kernel = (cells["kernel"] == "copy2d_coalesced") & (cells["height"] == 1024)
    return cells[of_kernel & (cells["cache_state"] == "warm") & (cells["dtype"] == dtype)]


def listed(tab: Any) -> list[dict[str, str]]:
    """The table's page, by its headings."""
    settle(tab)
    heads = [text.rstrip(" ▲▼") for text in tab.locator("#table thead th").all_inner_texts()]
    rows = tab.evaluate(f"[...document.querySelectorAll('#table tbody tr')].map({TEXTS})")
    return [dict(zip(heads, row, strict=True)) for row in rows]


def place_of(tab: Any, x: int, y: int) -> tuple[float, float]:
    """Where on the screen the cell of column `x` and row `y` from below is drawn: 5 × 5 of them."""
    box = tab.locator(".canvas canvas.cursor").first.bounding_box()
    left, right, top, bottom = 52, 8, 6, 40
    width, height = box["width"] - left - right, box["height"] - top - bottom
    return box["x"] + left + (x + 0.5) * width / 5, box["y"] + top + (4.5 - y) * height / 5


def test_best_and_tied_cells_are_those_of_the_analysis(tab: Any, cells: pd.DataFrame) -> None:
    groups = 0
    for key, group in cells.groupby(list(GROUP), observed=True):
        named = dict(zip(GROUP, key, strict=True))
        go(
            tab,
            f"#kernel={named['kernel']}&dtype={named['dtype']}&variant={named['variant']}"
            f"&size={named['height']}x{named['width']}&cache={named['cache_state']}",
        )
        tied, axes = tied_best(group), sorted(axes_of(group))
        told = tab.locator("#answer > div")
        assert told.get_attribute("data-best") == params_of(tied.iloc[0], axes), named
        assert told.get_attribute("data-tied") == str(len(tied))
        marked = {
            ", ".join(f"{axis} {row[axis]}" for axis in axes)
            for row in listed(tab)
            if row["tied"] != ""
        }
        expected = {", ".join(f"{a} {int(cell[a])}" for a in axes) for _, cell in tied.iterrows()}
        assert marked == expected, named
        assert f" {significant(tied['bandwidth_gbs'].iloc[0], 4)} GB/s" in told.inner_text()
        groups += 1
    assert groups == cells.groupby(list(GROUP), observed=True).ngroups == 13


def test_a_pointer_over_the_map_shows_a_cell_a_click_keeps(tab: Any, cells: pd.DataFrame) -> None:
    tab.mouse.move(*place_of(tab, 3, 2))
    assert tab.inner_text("#tip").startswith("block_x 64, block_y 4")
    tab.mouse.click(*place_of(tab, 3, 2))
    wait_for_link(tab, "cell=block_x%3A64%2Cblock_y%3A4")
    tab.mouse.move(5, 5)
    assert tab.is_hidden("#tip")
    assert tab.inner_text("#cell .params") == "block_x 64, block_y 4"
    told = dict(tab.evaluate(f"[...document.querySelectorAll('.figures tbody tr')].map({TEXTS})"))
    mine = cells_at_1024(cells, "float")
    (cell,) = mine[(mine["block_x"] == 64) & (mine["block_y"] == 4)].to_dict("records")
    assert told["Bandwidth"] == f"{significant(cell['bandwidth_gbs'], 4)} GB/s"
    assert told["Threads in a block"] == "256"
    assert told["Registers of a thread"] == "32"
    tab.wait_for_selector("canvas.samples[data-samples='7']")
    assert "7 samples in 1 repeat" in tab.inner_text(".samples-note")
    settle(tab)
    assert tab.locator("#charts .chart").count() == 2
    section = tab.locator("#charts .chart .u-over").first
    section.scroll_into_view_if_needed()
    box = section.bounding_box()
    # The left end of the section along block_x.
    tab.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    tab.mouse.click(box["x"] + 2, box["y"] + box["height"] / 2)
    assert tab.inner_text("#cell .params") == "block_x 8, block_y 4"
    # A fault tells its status, and its message is only text.
    tab.locator("#maps").scroll_into_view_if_needed()
    tab.mouse.click(*place_of(tab, 0, 1))
    assert tab.inner_text("#cell .status").startswith("wrong_result wrong result")
    assert tab.inner_text("#cell .message").startswith('</script><img src=x onerror="')
    assert tab.title() == "run · explorer"
    assert "too_many_threads: more threads" in tab.inner_text("#legend")


def test_all_of_the_map_is_reached_by_keys_and_told_aloud(tab: Any, cells: pd.DataFrame) -> None:
    tab.mouse.click(*place_of(tab, 1, 1))
    tab.focus("#maps")
    for key, params in (
        ("ArrowRight", "block_x 32, block_y 2"),
        ("ArrowUp", "block_x 32, block_y 4"),
        ("End", "block_x 128, block_y 4"),
        ("PageUp", "block_x 128, block_y 16"),
        ("ArrowRight", "block_x 128, block_y 16"),
        ("Home", "block_x 8, block_y 16"),
        ("PageDown", "block_x 8, block_y 1"),
    ):
        tab.keyboard.press(key)
        assert tab.inner_text("#say").startswith(f"{params}: "), key
        assert tab.inner_text("#cell .params") == params
    tab.keyboard.press("b")
    best = tab.get_attribute("#answer > div", "data-best")
    assert re.fullmatch(rf"{best}: [0-9.]+ GB/s, the fastest\.", tab.inner_text("#say"))
    seen = set()
    for _ in range(int(tab.get_attribute("#answer > div", "data-tied"))):
        seen.add(tab.inner_text("#cell .params"))
        tab.keyboard.press("n")
    assert len(seen) == int(tab.get_attribute("#answer > div", "data-tied"))
    assert tab.inner_text("#cell .params") == best


def test_keys_count_without_a_click_and_the_page_opens_on_the_reports_first_group(
    context: Any, place: Path
) -> None:
    facts = place / "facts.json"
    first = {
        "kernel": "block_eq_partition",
        "dtype": "float",
        "variant": "exact",
        "height": 1024,
        "width": 1024,
        "cache_state": "warm",
        "timing_mode": "batched",
    }
    write_json(facts, {"first_page": {"first": first}})
    write_page([Source(place / "dataset", "run", facts=facts)], place / "first.html")
    tab = context.new_page()
    tab.goto((place / "first.html").as_uri())
    settle(tab)
    shown = tab.locator("#answer").inner_text()
    assert "block_eq_partition" in tab.evaluate("location.hash") + shown
    before = tab.locator("#cell").inner_text()
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("ArrowLeft")
    settle(tab)
    assert tab.locator("#cell").inner_text() != before
    assert tab.evaluate("scrollY") == 0
    tab.close()


def test_filters_leave_cells_out_and_the_rest_answers(tab: Any, cells: pd.DataFrame) -> None:
    tab.evaluate("document.getElementById('answer').replaceChildren()")
    tab.fill("#choose-threads", "256")
    tab.keyboard.press("Enter")
    settle(tab)
    rows = listed(tab)
    assert {row["threads in block"] for row in rows} == {"256"}
    mine = cells_at_1024(cells, "float")
    of_256 = mine[mine["threads_per_block"] == 256]
    assert len(rows) == len(of_256)
    best = params_of(tied_best(of_256).iloc[0], ["block_x", "block_y"])
    assert tab.get_attribute("#answer > div", "data-best") == best
    assert "among cells of 256 threads" in tab.inner_text("#answer")
    tab.click("#clear")
    assert len(listed(tab)) == 25
    tab.check("#choose-near")
    tab.fill("#choose-near-share", "0.1")
    tab.keyboard.press("Tab")
    tab.wait_for_function("document.getElementById('answer').innerText.includes('0.1 %')")
    near = []
    for dtype in ("double", "float"):
        ok = cells_at_1024(cells, dtype).query("status == 'ok'")
        close = ok[ok["bandwidth_gbs"] >= 0.999 * ok["bandwidth_gbs"].max()]
        near.append({params_of(cell, ["block_x", "block_y"]) for _, cell in close.iterrows()})
    told = {f"block_x {row['block_x']}, block_y {row['block_y']}" for row in listed(tab)}
    assert told == near[0] & near[1] != set()
    assert told != near[1]
    # What a link names and is not there gives way to what is.
    go(tab, "#kernel=none&dtype=half&size=1x1&x=z&show=z&sort=z&cell=z:1&fix=z:3&near=x&threads=7")
    assert tab.locator("#answer > div").count() == 1
    assert tab.inner_text("#answer").startswith("No cell passes the filters.")


def test_the_table_is_sorted_copied_and_leads_to_cells(tab: Any, cells: pd.DataFrame) -> None:
    speeds = [float(row["GB/s"]) for row in listed(tab) if row["status"] == "ok"]
    assert all(a >= b for a, b in pairwise(speeds))
    assert listed(tab)[-1]["GB/s"] == "–"
    head = tab.locator("#table thead th", has_text="block_y")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert [row["block_y"] for row in listed(tab)][:6] == ["1"] * 5 + ["2"]
    wait_for_link(tab, "sort=block_y")
    tab.evaluate("navigator.clipboard.writeText = text => { window.copied = text }")
    tab.click("#copy-csv")
    assert tab.inner_text("#say") == "25 rows copied as CSV."
    rows = list(csv.DictReader(io.StringIO(tab.evaluate("window.copied"))))
    exact = {(row["block_x"], row["block_y"]): row["median_s"] for row in rows}
    for _, cell in cells_at_1024(cells, "float").query("status == 'ok'").iterrows():
        told = exact[str(int(cell["block_x"])), str(int(cell["block_y"]))]
        assert float(told) == cell["median_s"]
    (fault,) = [row for row in rows if row["status"] == "wrong_result"]
    assert (fault["median_s"], fault["tied"]) == ("", "false")
    settle(tab)
    for place, key in ((3, ""), (5, "Enter")):
        line = tab.locator("#table tbody tr").nth(place)
        line.locator("button").press(key) if key else line.click()
        row = listed(tab)[place]
        params = f"block_x {row['block_x']}, block_y {row['block_y']}"
        assert tab.inner_text("#cell .params") == params
    settle(tab)
    assert tab.locator("#table tr[aria-current]").count() == 1


def test_a_link_holds_all_that_is_chosen(tab: Any, context: Any, place: Path) -> None:
    choose(tab, "size", "256x512")
    choose(tab, "x", "block_y")
    choose(tab, "scale", "log")
    choose(tab, "show", "best")
    tab.focus("#maps")
    tab.keyboard.press("Home")
    wait_for_link(tab, "%2Cblock_y%3A1")
    again = opened(context, place / "page.html", tab.url[tab.url.index("#") :])
    wait_for_link(again, "%2Cblock_y%3A1")
    assert again.url == tab.url
    for selector in ("#answer", "#cell .params", "#map-title", "#legend", "#table-count"):
        assert again.inner_text(selector) == tab.inner_text(selector)
    assert again.inner_text("#map-title") == "block_x over block_y"
    assert again.input_value("#choose-scale") == "log"
    again.close()


def test_one_axis_is_a_curve_with_its_model_and_none_a_cell(tab: Any) -> None:
    go(tab, CURVE)
    assert tab.inner_text("#map-title") == "Over num_partition"
    assert tab.is_hidden("#sections")
    tab.focus("#maps")
    tab.keyboard.press("Home")
    assert tab.inner_text("#cell .params") == "num_partition 1"
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#say").startswith("num_partition 2: ")
    assert "Model" in tab.inner_text("#cell .figures")
    go(tab, "#kernel=copy2d_coalesced&dtype=float&size=64x64")
    assert tab.inner_text("#map-title") == "A single cell"
    assert "It is the only verified cell." in tab.inner_text("#answer")
    assert tab.inner_text("#cell .params") == "block_x 32, block_y 8"


def test_a_link_is_followed_while_the_address_is_yet_to_be_written(tab: Any) -> None:
    go(tab, CURVE)
    # In one task: the choice before the link comes into the address before the page hears of it.
    tab.evaluate(
        """link => {
            const before = location.hash;
            location.hash = link;
            history.replaceState(null, "", before);
        }""",
        COPY,
    )
    tab.wait_for_selector("#map-title:has-text('block_y over block_x')")
    wait_for_link(tab, "kernel=copy2d_coalesced")


def test_of_three_axes_two_are_drawn_the_others_held(tab: Any, cells: pd.DataFrame) -> None:
    go(tab, SLICES)
    assert tab.inner_text("#map-title") == "unroll over block_x"
    assert "Each place shows the fastest over passes." in tab.inner_text("#hint")
    assert tab.locator("#charts .chart").count() == 3
    choose(tab, "axis-passes", "2")
    wait_for_link(tab, "fix=passes%3A2")
    tab.focus("#maps")
    tab.keyboard.press("Home")
    assert tab.inner_text("#cell .params").startswith("block_x 64, passes 2, ")
    choose(tab, "y", "none")
    assert tab.inner_text("#map-title") == "Over block_x"


def test_machine_code_is_of_the_version_of_compiled_axes(context: Any, place: Path) -> None:
    recorded = ROOT / "reports" / "reference" / "nvidia-h200-gallery" / "transpose" / "float"
    tab = opened(context, explore(recorded, out=place / "recorded.html"))
    go(tab, "#variant=tile&kernel=transpose&cell=block_x:32,PAD:1,ROWS:4,TILE:32")
    assert tab.inner_text("#cell .params") == "block_x 32, PAD 1, ROWS 4, TILE 32"
    facts = tab.inner_text("#cell .code")
    assert "-DPAD=1 -DROWS=4 -DTILE=32" in facts
    assert re.search("transpose_tile: [0-9]+ registers, no spills; .* shared load", facts)
    tab.close()


def test_two_data_sets_stand_side_by_side(context: Any, place: Path) -> None:
    page = explore(place / "dataset", place / "cells" / "copy2d_coalesced", out=place / "two.html")
    tab = opened(context, page, COPY)
    assert tab.locator(".map").count() == 2
    assert [text.split("\n")[0] for text in tab.locator("#answer > div").all_inner_texts()] == [
        "dataset",
        "copy2d_coalesced",
    ]
    tab.mouse.click(*place_of(tab, 2, 2))
    assert "The second is 1.000 times as fast." in tab.inner_text("#cell")
    assert tab.locator(".figures thead th").all_inner_texts() == ["dataset", "copy2d_coalesced"]
    go(tab, CURVE)
    assert "This data set has no such group." in tab.inner_text("#answer")
    tab.close()


def test_a_run_that_goes_on_and_its_group_over_runs(context: Any, place: Path) -> None:
    """Six runs; from the fourth on copies in float take a tenth more."""
    own = read_run(place / "dataset")
    runs = []
    for day in range(1, 7):
        slower = np.where((own.cells["dtype"] == "float") & (day > 3), 1.1, 1.0)
        times = {"median_s": own.cells["median_s"] * slower}
        times |= {n: own.cells[n] / slower for n in own.cells if n.startswith("bandwidth_")}
        at = pd.Timestamp(2026, 1, day, tz="UTC")
        runs.append(replace(own, name=f"r{day}", cells=own.cells.assign(measured_at=at, **times)))
    history = history_of(runs).save(place / "history")
    progress = Unfinished(shards=3, planned_shards=8, planned_cells=4321, about=True)
    source = Source(place / "dataset", "mine", history=history, progress=progress)
    write_page([source], place / "over-runs.html")
    tab = opened(context, place / "over-runs.html", COPY)
    said = tab.inner_text("#progress")
    assert re.search(r"mine was .* [0-9]+ of about 4,321 cells are in, from 3 of 8 shards", said)
    faults: list[str] = []
    tab.on("pageerror", lambda err: faults.append(str(err)))
    assert tab.locator("#runs canvas").count() == 2
    tab.click("#runs summary")
    rows = tab.locator("#runs tbody tr").evaluate_all(f"rows => rows.map({TEXTS})")
    assert [row[1] for row in rows] == [f"r{day}" for day in range(1, 7)]
    # Moving to another cell leaves the table open; another group has a line of its own.
    tab.keyboard.press("Tab")
    tab.mouse.click(*place_of(tab, 2, 2))
    assert tab.locator("#runs tbody tr").first.is_visible()
    go(tab, COPY.replace("float", "double"))
    assert tab.locator("#runs canvas").count() == 2
    assert faults == []
    tab.close()


def test_a_phone_shows_all_of_it_without_scrolling_aside(browser: Any, place: Path) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    for fragment in (COPY, CURVE, SLICES):
        tab = opened(context, place / "page.html", fragment)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        tab.close()
    tab = opened(context, place / "page.html", COPY)
    box = tab.locator(".canvas canvas.cursor").first
    box.scroll_into_view_if_needed()
    tab.touchscreen.tap(*place_of(tab, 2, 3))
    assert tab.inner_text("#cell .params") == "block_x 32, block_y 8"
    context.close()


def test_every_control_has_a_name_and_nothing_is_fetched(context: Any, place: Path) -> None:
    tab = context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    page = (place / "page.html").as_uri()
    tab.goto(page + COPY)
    tab.wait_for_selector("html[data-loaded]")
    assert {url.split(":")[0] for url in asked} <= {"file", "data", "blob"}
    assert {url.split("#")[0] for url in asked if url.startswith("file:")} == {page}
    unnamed = tab.evaluate(
        """[...document.querySelectorAll('select, input, button')]
        .filter(e => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')))
        .map(e => e.outerHTML)"""
    )
    assert unnamed == []
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert tab.get_attribute("#maps", "aria-label").startswith("Heat map of block_y over block_x")
    # Where the keyboard is can be seen, on the map too.
    tab.focus("#maps")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.close()
