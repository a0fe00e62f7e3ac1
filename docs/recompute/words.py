"""How the pages write numbers, and the sentences whose truth depends on the data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpushmoo.analysis.fastest import Ratio
from gpushmoo.core.display import percent, power, significant


class Claims:
    """Sentences of the pages that hold only while the data say so.

    They are all looked at before a page is refused, so that a new record is judged at once.
    """

    def __init__(self) -> None:
        self.broken: list[str] = []

    def hold(self, sentence: str, holds: bool, found: object = "") -> str:
        """Note `sentence` as broken unless it `holds`; `found` says what the data have.

        Returns nothing to show, so that a template can call it.
        """
        if not holds:
            self.broken.append(f"{sentence} [found: {found}]" if found != "" else sentence)
        return ""


def whole(value: float) -> str:
    """Format a whole number as ``208,256``."""
    return f"{round(value):,}"


def whole_percent(share: float) -> str:
    """Format a share as ``91 %``."""
    return f"{100 * share:.0f} %"


def span(values: Iterable[float], unit: str = "", digits: int = 2) -> str:
    """``0.5 to 1.2``, or one number where both ends read alike."""
    found = list(values)
    low, high = significant(min(found), digits), significant(max(found), digits)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def ratio_words(r: Ratio) -> str:
    """Format a ratio as ``1.283 (1.271 to 1.295)``."""
    return f"{r.value:.3f} ({r.low:.3f} to {r.high:.3f})"


def ranged(values: Mapping[str, float], places: int = 2, unit: str = "") -> str:
    """``5.98 (5.89 to 6.07)`` of a recorded median with its least and greatest."""
    most = values["greatest"] if "greatest" in values else values["most"]
    return (
        f"{values['median']:.{places}f}{unit} ({values['least']:.{places}f} to {most:.{places}f})"
    )


def errors(told: Sequence[float] | None) -> str:
    """``2.9 / 14``: median and 95th percentile in %, of [cells, median, 95th percentile, …]."""
    if not told or not told[0]:
        return "–"
    return f"{significant(100 * told[1], 2)} / {significant(100 * told[2], 2)}"


def shape(cell: Mapping[str, Any]) -> str:
    """``64 × 4`` of a row with block_x and block_y."""
    return f"{int(cell['block_x'])} × {int(cell['block_y'])}"


def signed(share: float, places: int = 1) -> str:
    """``+1.2 %`` or ``−1.2 %``."""
    return f"{100 * share:+.{places}f} %".replace("-", "−")


def scientific(value: float) -> str:
    """Format a number as ``1.5·10⁻⁴``; zero is ``0``."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·{power(10, int(exponent))}" if value else "0"


def first_hit(cells: Sequence[float | None]) -> str:
    """``18 / 37``: median and 95th percentile of cells; a dash where it never came."""
    return " / ".join("–" if n is None else f"{n:.0f}" for n in cells)


FILTERS = {f.__name__: f for f in (whole, percent, whole_percent, span, ranged, first_hit)}
