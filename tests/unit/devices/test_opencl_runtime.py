"""The environment that an OpenCL runtime is started in."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import python
from gpushmoo.devices.opencl import runtime as opencl_runtime
from gpushmoo.devices.opencl.runtime import SETTINGS, prepare_environment, runtime_settings

POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"
OWN = ["XDG_CACHE_HOME", "POCL_CACHE_DIR", "OCL_ICD_VENDORS", *SETTINGS]


@pytest.fixture(autouse=True)
def clean_environment() -> Iterator[None]:
    """None of the variables is set at first; afterwards the environment is as it was."""
    before = dict(os.environ)
    for name in OWN:
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("runtime", ["pocl", "intel", "system"])
def test_caches_lie_in_the_given_folder_which_is_made(tmp_path: Path, runtime: str) -> None:
    cache = tmp_path / "results" / "cache"
    prepare_environment(runtime, cache)
    assert cache.is_dir()
    for name in ("XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        assert Path(os.environ[name]).is_relative_to(cache)


def test_settings_are_in_force_and_told_of_the_runtime_that_obeys_them(tmp_path: Path) -> None:
    assert runtime_settings(POCL) == {}
    prepare_environment("system", tmp_path)
    assert {name: os.environ[name] for name in SETTINGS} == SETTINGS
    assert runtime_settings(POCL) | runtime_settings(INTEL) == SETTINGS
    assert all(name.startswith("POCL") for name in runtime_settings(POCL))
    assert not any(name.startswith("POCL") for name in runtime_settings(INTEL))


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_setting_that_the_user_chose_wins_and_is_told(tmp_path: Path, name: str) -> None:
    os.environ[name] = "mine"
    prepare_environment("pocl", tmp_path)
    assert os.environ[name] == "mine"
    assert (runtime_settings(POCL) | runtime_settings(INTEL))[name] == "mine"


def test_intel_s_runtime_is_named_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "lib" / "libintelocl.so"
    library.parent.mkdir()
    library.touch()
    monkeypatch.setattr(opencl_runtime.sys, "prefix", str(tmp_path))
    icd = tmp_path / "cache/vendors-intel/intel.icd"
    for held in (None, b"/usr/lib/libintelocl.so\n", b"\xff\xff"):
        if held is not None:
            icd.write_bytes(held)
        prepare_environment("intel", tmp_path / "cache")
        assert icd.read_text() == f"{library}\n"
    assert list(icd.parent.iterdir()) == [icd]
    assert Path(os.environ["OCL_ICD_VENDORS"]) == icd.parent


@pytest.mark.parametrize("runtime", ["pocl", "intel"])
def test_runtimes_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    monkeypatch.setattr(opencl_runtime.sys, "prefix", str(tmp_path))
    prepare_environment(runtime, tmp_path / "cache")
    assert list(Path(os.environ["OCL_ICD_VENDORS"]).iterdir()) == []


def test_system_runtimes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_runtime, "_bundled_pocl", lambda: False)
    prepare_environment("pocl", tmp_path)
    assert "OCL_ICD_VENDORS" not in os.environ
    os.environ["OCL_ICD_VENDORS"] = "/etc/OpenCL/vendors"
    prepare_environment("system", tmp_path)
    assert os.environ["OCL_ICD_VENDORS"] == "/etc/OpenCL/vendors"


OPEN = """
import os, sys
from pathlib import Path
from gpushmoo.devices.select import DeviceChoice, open_device

cores = os.sched_getaffinity(0)
device = open_device(DeviceChoice("opencl", 0, sys.argv[1], Path(sys.argv[2])))
print(os.sched_getaffinity(0) == cores)
"""


def test_a_thread_that_opens_a_device_keeps_its_cores(tmp_path: Path) -> None:
    """Else kernels that compute on the host would have one core."""
    done = python(OPEN, "auto", tmp_path)
    assert done.stdout.splitlines()[-1:] == ["True"], done.stderr
