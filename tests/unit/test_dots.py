"""What the sweeps of dot products say, from cells that are made up."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from gpushmoo.analysis.dots import (
    HOST,
    STREAMED,
    crossovers,
    effects,
    fastest,
    plot_series,
    splits,
)
from gpushmoo.report.dots import dots_findings, dots_page
from hypothesis import given
from hypothesis import strategies as st

LENGTHS = (64, 256, 1024, 4096)


def cell(kernel: str, n: int, seconds: float, **other: Any) -> dict[str, Any]:
    found = {
        "kernel": kernel,
        "dtype": "double",
        "variant": "pinned-pooled" if kernel == STREAMED else "blas-all",
        "width": n,
        "status": "ok",
        "median_s": seconds,
        "bandwidth_gbs": 16e-9 * n / seconds,
        "copy_gbs": 12.5,
        "streams": 1,
        "min_per_stream": 4096,
        "blocks_per_stream": 32,
        "threads": 256,
        "chunk": 0,
        "host_percent": 0,
        **other,
    }
    return {**found, "cell_key": str(sorted((k, str(v)) for k, v in found.items()))}


def table(*cells: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(cells)


def host_and_device(host: float, device: float, start: float) -> pd.DataFrame:
    """Seconds of an element on either, and those that the device takes for nothing."""
    return table(
        *(cell(HOST, n, host * n) for n in LENGTHS),
        *(cell(STREAMED, n, start + device * n) for n in LENGTHS),
    )


def test_the_device_pays_from_where_its_start_is_made_up_for() -> None:
    # Equal at n = 500.
    (found,) = crossovers(host_and_device(host=2.0, device=1.0, start=500.0))
    assert (found.dtype, found.variant, found.n) == ("double", "pinned-pooled", 1024)
    assert found.at == 4096
    assert found.ratio == pytest.approx(2 * 4096 / (500 + 4096))


def test_a_device_that_never_pays_has_no_length() -> None:
    (found,) = crossovers(host_and_device(host=1.0, device=4.0, start=1.0))
    assert found.n is None
    assert found.ratio == pytest.approx(4096 / (1 + 4 * 4096))


def test_a_length_after_which_the_host_wins_again_does_not_count() -> None:
    cells = host_and_device(host=2.0, device=1.0, start=0.0)
    again = (cells["kernel"] == HOST) & (cells["width"] == 1024)
    cells.loc[again, "median_s"] = 1.0
    assert crossovers(cells)[0].n == 4096


def test_the_fastest_way_on_the_host_is_what_must_be_beaten() -> None:
    cells = host_and_device(host=2.0, device=1.0, start=500.0)
    quick = table(*(cell(HOST, n, 0.5 * n, variant="blas-one") for n in LENGTHS))
    assert crossovers(pd.concat([cells, quick]))[0].n is None


def test_cells_shared_with_the_host_or_at_fault_say_nothing_of_the_device() -> None:
    cells = host_and_device(host=1.0, device=4.0, start=1.0)
    more = table(
        cell(STREAMED, 4096, 1.0, host_percent=100), cell(STREAMED, 4096, 1.0, status="timeout")
    )
    assert crossovers(pd.concat([cells, more])) == crossovers(cells)


def test_without_the_host_there_is_nothing_to_compare_with() -> None:
    assert crossovers(table(cell(STREAMED, 64, 1.0))) == []


def test_nothing_of_no_elements_is_compared() -> None:
    assert crossovers(table(cell(STREAMED, 0, 1.0), cell(HOST, 0, 2.0))) == []


def test_the_split_is_that_at_which_both_finish_together() -> None:
    times = {0: 4.0, 50: 2.1, 75: 1.1, 80: 0.9, 100: 1.0}
    (found,) = splits(table(*(cell(STREAMED, 64, t, host_percent=p) for p, t in times.items())))
    assert found.predicted == pytest.approx(80.0)
    assert (found.swept, found.n) == (80, 64)
    assert found.gain == pytest.approx(1.0 / 0.9)


@given(device=st.floats(0.01, 100), host=st.floats(0.01, 100))
def test_at_the_predicted_split_both_sides_take_equally_long(device: float, host: float) -> None:
    ends = {0: device, 50: device + host, 100: host}
    (found,) = splits(table(*(cell(STREAMED, 64, t, host_percent=p) for p, t in ends.items())))
    share = found.predicted / 100
    assert share * host == pytest.approx((1 - share) * device)


@pytest.mark.parametrize("percents", [(0, 50), (50, 100), (0, 100)])
def test_without_both_ends_and_something_between_there_is_no_split(percents: tuple[int]) -> None:
    assert splits(table(*(cell(STREAMED, 64, 1.0, host_percent=p) for p in percents))) == []


def test_effects_compare_the_best_that_each_value_allows() -> None:
    times = {(1, 256): 3.0, (1, 1024): 2.0, (4, 256): 1.0, (4, 1024): 5.0}
    cells = table(
        *(cell(STREAMED, 64, t, streams=s, threads=threads) for (s, threads), t in times.items()),
        # A shorter problem has no say.
        cell(STREAMED, 32, 0.1, streams=2),
    )
    streams, threads = effects(cells)
    assert (streams.axis, streams.values, streams.best) == ("streams", (1, 4), 4)
    assert streams.factor == pytest.approx(2.0)
    assert (threads.axis, threads.best, threads.factor) == ("threads", 256, pytest.approx(2.0))


def test_of_each_length_the_fastest_stands_in_the_plots() -> None:
    cells = table(
        cell(STREAMED, 64, 3e-3, streams=1),
        cell(STREAMED, 64, 2e-3, streams=4),
        cell(STREAMED, 64, 1e-3, host_percent=100),
        cell(STREAMED, 0, 1e-3),
        cell(HOST, 64, 5e-3),
        cell(HOST, 64, 1e-3, variant="naive"),
    )
    found = plot_series(cells, "ms")
    assert found.to_dict("list") == {
        "series": ["BLAS, all cores (double)", "ours, pooled (double)"],
        "n": [64, 64],
        "value": [5.0, 2.0],
    }
    rates = plot_series(cells, "GB/s")["value"]
    assert list(rates) == pytest.approx([16 * 64e-9 / 5e-3, 16 * 64e-9 / 2e-3])


def test_of_equal_cells_always_the_same_is_taken() -> None:
    cells = table(*(cell(STREAMED, 64, 1.0, streams=s) for s in (4, 1, 2)))
    assert list(fastest(cells)["streams"]) == list(fastest(cells[::-1])["streams"])


def test_the_page_tells_in_words_where_the_device_pays() -> None:
    page = dots_page(host_and_device(host=2.0, device=1.0, start=500.0))
    assert page is not None
    (finding,) = dots_findings(page)
    assert "the device pays from n = 1024 on" in finding
    assert page["copied"] == "12.5 GB/s"
    never = dots_findings(dots_page(host_and_device(host=1.0, device=4.0, start=1.0)))
    assert "the device pays at no length" in never[0]


def test_without_streamed_cells_there_is_no_page() -> None:
    assert dots_page(table(cell(HOST, 64, 1.0))) is None
    assert dots_findings(None) == []
