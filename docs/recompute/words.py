"""How the pages write numbers, and the sentences whose truth depends on the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpushmoo.analysis.contrasts import Ratio, ratio
from gpushmoo.core.display import significant


class Claims:
    """Sentences of the pages that hold only while the data say so.

    They are all looked at before a page is refused, so that a new record is judged at once.
    """

    def __init__(self) -> None:
        self.broken: list[str] = []

    def hold(self, sentence: str, holds: bool, found: object = "") -> None:
        """Note `sentence` as broken unless it `holds`; `found` says what the data have."""
        if not holds:
            self.broken.append(f"{sentence} [found: {found}]" if found != "" else sentence)


def whole(value: float) -> str:
    """``208,256``."""
    return f"{round(value):,}"


def gbs(value: float) -> str:
    """GB/s without the unit: whole from 100 on, three digits below."""
    return f"{value:.0f}" if value >= 99.95 else significant(value)


def rate(cell: Mapping[str, Any]) -> str:
    """Bandwidth of a row with the 95 % interval of its median, ``4703 (4697 to 4706)``."""
    low, high = cell["bandwidth_low_gbs"], cell["bandwidth_high_gbs"]
    return f"{gbs(cell['bandwidth_gbs'])} ({gbs(low)} to {gbs(high)})"


def percent(share: float, digits: int = 2) -> str:
    """``1.2 %``: so many significant digits."""
    return f"{significant(100 * share, digits)} %"


def whole_percent(share: float) -> str:
    """``91 %``."""
    return f"{100 * share:.0f} %"


def span(values: Iterable[float], unit: str = "", digits: int = 2) -> str:
    """``0.5 to 1.2``, or one number where both ends read alike."""
    found = list(values)
    low, high = significant(min(found), digits), significant(max(found), digits)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def percent_span(shares: Iterable[float], digits: int = 2) -> str:
    """``0.5 to 1.2 %``."""
    return span((100 * s for s in shares), " %", digits)


def whole_percent_span(shares: Iterable[float]) -> str:
    """``5 to 41 %``."""
    found = list(shares)
    low, high = f"{100 * min(found):.0f}", f"{100 * max(found):.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def over(above: Mapping[str, Any], below: Mapping[str, Any], places: int = 3) -> str:
    """Bandwidth of one row over that of another, with the interval from both of theirs."""
    return _ratio(ratio(above, below), places)


def _ratio(r: Ratio, places: int) -> str:
    return f"{r.value:.{places}f} ({r.low:.{places}f} to {r.high:.{places}f})"


def median_interval(values: Mapping[str, float], places: int = 3) -> str:
    """A benchmark's median over rounds with its 95 % interval, ``1.018 (1.015 to 1.021)``."""
    return (
        f"{values['median']:.{places}f} ({values['low']:.{places}f} to {values['high']:.{places}f})"
    )


def shape(cell: Mapping[str, Any]) -> str:
    """``64 × 4`` of a row with block_x and block_y."""
    return f"{int(cell['block_x'])} × {int(cell['block_y'])}"


def joined(items: Iterable[str]) -> str:
    """``a, b and c``."""
    found = list(items)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def signed(share: float, places: int = 1) -> str:
    """``+1.2 %`` or ``−1.2 %``."""
    return f"{100 * share:+.{places}f} %".replace("-", "−")


def power(value: float) -> str:
    """``1.5·10⁻⁴``; zero is ``0``."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_RAISED)}"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
