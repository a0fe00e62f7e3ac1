"""The cache of machine code that the jobs of a run share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpushmoo.devices import cubins


def test_a_damaged_cubin_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its variant's cells would be `build_failed`, though nothing is wrong with the kernel."""
    compiled: list[str] = []

    def compile_cubin(source: str, name: str, *_: Any) -> bytes:
        compiled.append(name)
        return b"\x7fELF " + source.encode()

    monkeypatch.setattr(cubins, "compile_cubin", compile_cubin)
    monkeypatch.setattr(cubins, "nvrtc_version", lambda: "13.0")

    def cached() -> Path:
        return cubins.cached_cubin("source", "copy", ("-O3",), "sm_90", tmp_path)

    path = cached()
    sound = path.read_bytes()
    assert cached() == path
    for number, data in enumerate([b"", sound[:5], sound[:-1], b"\x7fELF rource"], start=2):
        path.write_bytes(data)
        assert cached() == path
        assert path.read_bytes() == sound
        assert compiled == ["copy"] * number
