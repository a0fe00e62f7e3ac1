"""The kernels of today in `examples/` compile; their results need a GPU."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gpushmoo
import numpy as np
import pytest
from conftest import ROOT
from gpushmoo.core.space import ShardSpace
from gpushmoo.devices.machine_code.cubins import cached_cubin, version_unit
from gpushmoo.interactive import tune as tuning
from gpushmoo.interactive.arguments import checked, loaded, read_request
from gpushmoo.planning.sweeps import SweepConfig

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(params=EXAMPLES, ids=[path.stem for path in EXAMPLES])
def call(request: pytest.FixtureRequest) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(request.param.stem, request.param)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    called: dict[str, Any] = module.CALL
    return called


@pytest.mark.slow
def test_its_first_and_last_version_compile_and_its_launches_fit(
    call: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[SweepConfig] = []
    expected: dict[str, np.ndarray[Any, Any]] = {}

    class AskedError(Exception):
        """No device is needed up to here."""

    def measured(folder: Callable[..., Path], asked: Mapping[str, Any], progress: bool) -> Any:
        values = checked(asked)
        place = folder(values, tmp_path, tmp_path / "log")
        found.append(read_request(loaded(place), values).sweep)
        # The arrays of a call end with it.
        expected.update(found[-1].folder.workload.outputs({}, ""))
        raise AskedError

    monkeypatch.setattr(tuning, "measured", measured)
    with pytest.raises(AskedError):
        gpushmoo.tune(**call)
    [sweep] = found
    workload, [dtype] = sweep.folder.workload, sweep.dtypes
    versions = sweep.versions[dtype]
    units = [version_unit(sweep.folder, dtype, version) for version in (versions[0], versions[-1])]
    codes = {cached_cubin(unit, "sm_90", tmp_path).code for unit in units}
    assert len(codes) == 2
    space: ShardSpace = sweep.space(dtype)
    cells = [c for c in space.cells(sweep.folder.name, space.axes) if workload.valid(c) is None]
    assert len(cells) > 10
    for cell in cells:
        launch = workload.launch(cell)
        assert launch.threads <= 1024
        assert launch.blocks >= 32
    assert all(np.isfinite(array).all() for array in expected.values())
