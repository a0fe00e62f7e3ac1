"""The plugin of pytest, in a pytest of its own."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import environment
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.schema import GROUP
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.extras.compat import recorded_launches
from test_checkouts import KERNEL, write

# Blocks of 32 threads are the fast ones, or those of 64.
OF_32, OF_64 = (
    "(get_local_size(0) == 32 ? {} : {})".format(*work) for work in ((4, 200), (200, 4))
)
TESTS = """
import sys
import pytest

MARKED = {{"kernel": "kernels/mine", "recorded": "tied.json", "threshold": 1.0, "slower": 9.0}}

@pytest.mark.shmoo(**MARKED, backend="opencl", opencl_runtime="{runtime}")
def test_held():
    assert "gpushmoo.interactive.measure" in sys.modules

@pytest.mark.shmoo(**MARKED, backend="none")
def test_nowhere():
    pass
"""


@pytest.fixture
def project(tmp_path: Path, opencl_choice: DeviceChoice) -> Path:
    write(tmp_path, "mine", OF_32)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_mine.py").write_text(TESTS.format(runtime=opencl_choice.runtime))
    return tmp_path


def ended(project: Path, cache: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "gpushmoo.pytest_entry", *words]
    settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=project,
        env=environment(**settings),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.stdout + done.stderr


def test_a_kernel_is_held_to_what_was_recorded(project: Path, opencl_cache: Path) -> None:
    held = ("-k", "held")
    said = ended(project, opencl_cache, *held)
    assert "tied.json' records no such launch on this device; use --shmoo-record." in said
    assert "1 error" in said
    assert "1 passed" in ended(project, opencl_cache, *held, "--shmoo-record")
    [group] = json.loads((project / "tied.json").read_text())["groups"]
    assert (group["axes"], group["tied"]) == ({"block_x": [32, 64]}, [{"block_x": 32}])
    said = ended(project, opencl_cache)
    assert "1 passed" in said
    assert "1 error" in said
    assert "not measured: " in said
    write(project, "mine", OF_64)
    said = ended(project, opencl_cache, *held)
    assert "1 failed" in said
    assert "mine, float, one, 64 × 64, warm: block_x=32 takes +" in said
    assert " at least, than block_x=64." in said
    # Far more than what other load makes of it.
    write(project, "mine", "3000")
    assert " longer beside a plain copy than when recorded." in ended(project, opencl_cache, *held)
    write(project, "mine", body=KERNEL.replace("get_global_id", "no_such"))
    said = ended(project, opencl_cache, *held)
    assert "mine, float, one, 64 × 64, warm: block_x=32 does not work." in said


def test_what_is_recorded_of_other_devices_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {**dict.fromkeys(GROUP), "kernel": "mine", "axes": {"x": [1]}, "tied": [{"x": 1}]}
    (tmp_path / "tied.json").write_text(json.dumps({"groups": [row]}))
    swept: list[object] = []
    monkeypatch.setattr(recorded_launches, "groups_of", lambda cells: [])
    monkeypatch.setattr(
        recorded_launches,
        "sweep",
        lambda kernel, **asked: swept.append(asked["axes"]) or SimpleNamespace(cells=None),
    )
    for name, axes in (("mine", [{"x": [1]}]), ("another", [])):
        swept.clear()
        with pytest.raises(ConfigError, match="records no such launch on this device; use"):
            recorded_launches.hold(tmp_path / name, tmp_path / "tied.json", renew=False)
        # What cannot be held is not measured.
        assert swept == axes


def test_it_costs_nothing_where_it_is_not_asked_for(project: Path, opencl_cache: Path) -> None:
    text = (
        "import sys\ndef test_it():\n    assert not {'numpy', 'gpushmoo.core'} & {*sys.modules}\n"
    )
    (project / "test_mine.py").write_text(text)
    assert "1 passed" in ended(project, opencl_cache, "--strict-markers")
