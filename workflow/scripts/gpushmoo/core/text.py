"""Texts from elsewhere as part of a sentence."""

from __future__ import annotations

from collections.abc import Sequence

# Characters that a text of the user's takes at most in a sentence, and a sentence in all.
MOST_TEXT, MOST_SENTENCE = 300, 1000


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def one_line(text: str, most: int = MOST_TEXT) -> str:
    """`text` without line breaks and control characters, at most `most` characters of it."""
    # Not all of a text of megabytes is looked at: 4 characters of it may become one.
    words = " ".join(text[: 4 * most].split())
    if not words.isprintable():
        escaped = (c if c.isprintable() else ascii(c)[1:-1] for c in words)
        words = "".join(escaped)
    return words if len(words) <= most else words[: most - 3] + "..."
