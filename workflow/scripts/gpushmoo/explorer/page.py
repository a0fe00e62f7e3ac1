"""Fills the page: style, programs and data stand in one file, which needs no network."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from ..core.display import one_line
from .payload import Payload

PAGE = Path(__file__).resolve().parent / "page"
# Programs of others, as they were published: see VENDOR.toml beside them.
VENDOR = PAGE / "vendor"
_SLOT = "<!-- {} -->"


def page(payloads: Sequence[Payload], title: str) -> bytes:
    """The page that shows one data set, or two side by side; the same bytes for the same data."""
    blocks = {name: text for made in payloads for name, text in made.blocks.items()}
    slots = {
        "title": _text(title),
        "style": f"<style>{_source('vendor/uPlot.min.css')}\n{_source('style.css')}</style>",
        "vendor": f"<script>{_source('vendor/uPlot.iife.min.js')}</script>",
        "imports": _import_map(),
        "index": _data("index", _json([made.index for made in payloads]), "application/json"),
        "blocks": "\n".join(_data(f"block-{n}", text, "text/plain") for n, text in blocks.items()),
    }
    text = _source("index.html")
    for name, filling in slots.items():
        text = text.replace(_SLOT.format(name), filling)
    return text.encode()


def modules() -> list[Path]:
    """Paths of the page's JavaScript modules, sorted by name; vendored ones are not among them."""
    return sorted(PAGE.glob("*.js"))


def _source(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _import_map() -> str:
    """The modules under their names: from a file a page may import what it itself holds alone."""
    texts = {path.name: b64encode(path.read_bytes()).decode() for path in modules()}
    imports = {f"explorer/{n}": f"data:text/javascript;base64,{t}" for n, t in texts.items()}
    return f'<script type="importmap">{_json({"imports": imports})}</script>'


def _data(name: str, text: str, kind: str) -> str:
    return f'<script type="{kind}" id="{name}">{text}</script>'


def _json(value: object) -> str:
    # So nothing in a text can end the script that holds it.
    return json.dumps(value, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")


def _text(words: str) -> str:
    return one_line(words).replace("&", "&amp;").replace("<", "&lt;")
