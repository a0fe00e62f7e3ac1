"""Temporary folders go with their process, whatever ends it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import environment, python
from gpushmoo.devices.build_file import blaming_the_host
from gpushmoo.storage.temporary import OwnFolder
from mounts import Mount

HOLD = """
import signal, sys
from pathlib import Path
from gpushmoo.storage.temporary import OwnFolder
if sys.argv[1:] == ["listens"]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
folder = OwnFolder()
Path(folder.name, "array.npy").write_bytes(bytes(1000))
print(folder.name, flush=True)
signal.pause()
"""
TUNE = """
import os, signal, sys
import numpy as np
import gpushmoo
x, main = np.zeros(64, np.int32), os.getpid()

def valid(values):
    assert any(os.scandir(os.environ["TMPDIR"]))
    os.kill(main, getattr(signal, sys.argv[1]))

text = "__kernel void f(__global int *x) { x[get_global_id(0)] = 1; }"
launch = gpushmoo.LaunchConfig(valid=valid)
gpushmoo.tune(text, "f", [x], 64, {"block_x": [8]}, launch=launch, backend="opencl")
"""


@contextmanager
def holding(folder: Path, *listens: str) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process that has a temporary folder in `folder`, and its path."""
    command = [sys.executable, "-c", HOLD, *listens]
    env = environment(TMPDIR=str(folder))
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            place = Path(process.stdout.readline().strip())
            assert (place / "array.npy").is_file()
            yield process, place
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_removes_them(number: signal.Signals, tmp_path: Path) -> None:
    with holding(tmp_path) as (process, place):
        process.send_signal(number)
        assert process.wait() == -number
        assert not place.exists()


def test_the_programs_own_handler_stays(tmp_path: Path) -> None:
    with holding(tmp_path, "listens") as (process, place):
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 7
        assert not place.exists()


def test_those_of_killed_processes_go_with_the_next(tmp_path: Path) -> None:
    strange = tmp_path / "gpushmoo-of-another-program"
    strange.mkdir()
    with holding(tmp_path) as (killed, left), holding(tmp_path) as (_, used):
        killed.kill()
        killed.wait()
        assert left.exists()
        with holding(tmp_path):
            assert not left.exists()
            assert used.exists()
            assert strange.exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_call_that_is_ended_leaves_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    own = {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = python(TUNE, name, **own)
    assert done.returncode == -getattr(signal, name), done.stderr
    assert not [*(tmp_path / "tmp").iterdir()]


def test_a_forked_process_leaves_the_folders_of_its_parent() -> None:
    with OwnFolder() as place:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
        assert Path(place).is_dir()


def test_a_call_without_room_for_its_arrays_says_so(tmp_path: Path, mount: Mount) -> None:
    mount(tmp_path / "tmp", "size=64k")
    code = TUNE.replace("zeros(64,", "zeros(100_000,")
    own = {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = python(code, "SIGTERM", **own)
    assert "HostError: '" in done.stderr
    assert "make room there" in done.stderr
    assert not [*(tmp_path / "tmp").iterdir()]


def test_an_error_of_another_kind_stays(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), blaming_the_host(tmp_path):
        (tmp_path / "missing").read_bytes()
