"""Where a report finds what hardware counters said of launches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpushmoo.analysis.device_model.counted import read_counted
from gpushmoo.planning.studies import COUNTED, counted_files
from gpushmoo.storage.wholefile import DamagedFileError, write_json


def flow(studies: tuple[str, ...] = (), dataset: Path | None = None) -> Any:
    config = SimpleNamespace(studies=studies, dataset=dataset)
    return SimpleNamespace(config=config, path=lambda *parts: "/".join(("run", *parts)))


def test_counters_are_the_run_s_own_or_those_beside_recorded_shards(tmp_path: Path) -> None:
    assert counted_files(flow()) == []
    assert counted_files(flow(studies=("counters",))) == ["run/studies/counters.json"]
    assert counted_files(flow(dataset=tmp_path)) == []
    write_json(tmp_path / COUNTED, {"device": "D", "cells": {}})
    [found] = counted_files(flow(dataset=tmp_path))
    assert Path(found).resolve() == tmp_path / COUNTED


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
