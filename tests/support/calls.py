"""Calls of `tune` whose options a test gives by their names alone."""

from __future__ import annotations

from typing import Any

from gpushmoo.interactive.tune_options import FORMER, KINDS


def grouped(**asked: Any) -> dict[str, Any]:
    """The keywords of `tune`, with the fields of its option objects in these objects."""
    found: dict[str, Any] = {}
    fields: dict[str, dict[str, Any]] = {}
    for name, value in asked.items():
        if name in FORMER and not isinstance(value, tuple(KINDS.values())):
            kind, field = FORMER[name]
            fields.setdefault(kind, {})[field] = value
        else:
            found[name] = value
    return found | {kind: KINDS[kind](**given) for kind, given in fields.items()}
