"""What hardware counters said of launches."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpushmoo.model.limits import read_counted
from gpushmoo.storage.wholefile import DamagedFileError, write_json


def test_files_of_one_device_are_read_together_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    busy = {"dram": 80.0, "l2": 50.0, "l1": 10.0, "sm": 10.0, "active_warps": 8.0}
    for name in ("a", "b"):
        cells = {name: busy | {"room_for_warps": 8.0}}
        write_json(tmp_path / f"{name}.json", {"device": "D", "cells": cells})
    write_json(tmp_path / "none.json", {"device": None, "cells": {}})
    [(device, counted)] = read_counted([tmp_path / f"{n}.json" for n in ("a", "b", "none")]).items()
    assert (device, set(counted.cells), counted.most["dram"]) == ("D", {"a", "b"}, 80.0)
    (tmp_path / "a.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedFileError):
        read_counted([tmp_path / "a.json"])
