"""Format numbers and texts for a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def number_of(n: int, what: str) -> str:
    """Return a number with its noun, whose plural ends in s: ``1 group``, ``2 groups``."""
    return f"{n} {what}{'s' * (n != 1)}"


def gbs(value: float) -> str:
    """Return ``12.3 GB/s``: three significant digits, without an exponent."""
    return f"{significant(value)} GB/s"


def significant(value: float, digits: int = 3) -> str:
    """Return `value` rounded to significant digits, never in exponent notation."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    # The exponent after rounding: 9.996 becomes 10.0.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def percent(share: float, digits: int = 2) -> str:
    """Return a share of 1 in percent, with two significant digits by default: ``1.2 %``."""
    return f"{significant(100 * share, digits)} %"


def percent_range(shares: Sequence[float]) -> str:
    """Return ``1.2 % to 30 %``, or one value if there is only one."""
    return " to ".join(dict.fromkeys(percent(s) for s in (min(shares), max(shares))))


def seconds(value: float) -> str:
    """Return a time with the fitting prefix, from ns to s; a value below a picosecond is 0."""
    if abs(value) < 1e-12:
        return "0 s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        text = significant(value / factor)
        if abs(float(text)) >= 1:
            return f"{text} {unit}"
    return f"{significant(value * 1e9)} ns"


def tied_words(tied: int, candidates: int) -> str:
    """State how many of the `candidates` are tied with the fastest, which is one of them."""
    if tied == candidates > 1:
        return f"any of the {candidates}: no difference shown, all are statistically tied"
    if tied == 1:
        return f"the fastest of {candidates}, statistically tied with none"
    return f"{tied} of {candidates} are statistically tied with the fastest"


def number(value: float) -> str:
    """Return a pure number with two significant digits; a value below a millionth is 0."""
    return "0" if abs(value) < 1e-6 else significant(value, 2)


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(base: int, exponent: int) -> str:
    """Return `base` with `exponent` in superscript digits: ``10⁻³`` for 10 and -3."""
    return f"{base}{str(exponent).translate(_SUPERSCRIPTS)}"


def length(n: int) -> str:
    """Return ``2²⁷``, or all digits of a number that is not a power of two."""
    n = int(n)
    return power(2, n.bit_length() - 1) if n.bit_count() == 1 and n > 0 else str(n)


def mode_words(kind: str) -> str:
    """Return a timing mode as it appears in sentences."""
    return {"stream": "in a stream", "graph": "in a graph"}.get(kind, kind.replace("_", " "))


def size_words(height: int, width: int) -> str:
    """Return ``1024²``, or ``512 × 1024``; ``n = 1024`` for a single row."""
    if height == 1 != width:
        return f"n = {width}"
    return f"{height}²" if height == width else f"{height} × {width}"


def size_bytes(value: float) -> str:
    """Return a number of bytes in the fitting binary unit, up to GiB: ``1.50 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        text = significant(value)
        if float(text) < 1024:
            return f"{text} {unit}"
        value /= 1024
    return f"{significant(value)} GiB"


# Most characters of a user's text in a sentence, and of a whole sentence.
MAX_TEXT, MAX_SENTENCE = 300, 1000


def joined(words: Iterable[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    items = list(words)
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def one_line(text: str, most: int = MAX_TEXT) -> str:
    """Return at most `most` characters of `text`, without line breaks and control characters."""
    # Look only at the start of a text of megabytes: 4 characters of it may become one.
    words = " ".join(text[: 4 * most].split())
    if not words.isprintable():
        escaped = (c if c.isprintable() else ascii(c)[1:-1] for c in words)
        words = "".join(escaped)
    return words if len(words) <= most else words[: most - 3] + "..."
