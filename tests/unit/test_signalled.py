"""A measuring job that is told to end: one sentence, no process and no file left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import Bench
from conftest import ROOT
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.signalled import JobSignalledError, raises_signals

DEADLINE_S = 60.0
KERNEL = """
__kernel void copy_good(__global float *dst, __global const float *src, const ulong n)
{
    if (get_global_id(0) < n) dst[get_global_id(0)] = src[get_global_id(0)];
}
"""
# Its measuring process leaves its number and comes to no end.
HELD = """

def held(self, problem, dtype, rng):
    import os, time
    from pathlib import Path
    Path(__file__).with_name("pid").write_text(str(os.getpid()))
    Path(__file__).with_name("pid").rename(Path(__file__).with_name("held"))
    time.sleep(1000)

type(WORKLOAD).inputs = held
"""
# As workflow/scripts/measure.py.
JOB = """
import json, sys
from pathlib import Path
from gpushmoo.joblog import job_log
from gpushmoo.measure_job import run_shard
from gpushmoo.signalled import JobSignalledError, raises_signals
params, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
with job_log(folder / "log", (JobSignalledError,)) as terminal, raises_signals():
    run_shard(params, (1, 1), folder / "cache", folder / "out" / "shard.parquet", terminal)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells whether a process lives")
@pytest.mark.parametrize(
    ("number", "whom"),
    [
        pytest.param(signal.SIGTERM, os.kill, id="an administrator ends the job"),
        pytest.param(signal.SIGINT, os.killpg, id="Ctrl-C"),
    ],
)
def test_a_job_that_is_told_to_end_says_so_and_leaves_nothing_behind(
    number: signal.Signals,
    whom: Callable[[int, int], None],
    opencl_choice: DeviceChoice,
    make_kernel: Callable[..., Path],
    tmp_path: Path,
) -> None:
    folder = make_kernel("held", "", KERNEL)
    with (folder / "workload.py").open("a") as workload:
        workload.write(HELD)
    params = Bench(opencl_choice, folder, tmp_path).params(["good"])
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "workflow/scripts"),
        "GPUSHMOO_LOCK_DIR": str(tmp_path / "locks"),
    }
    with subprocess.Popen(
        [sys.executable, "-c", JOB, json.dumps(params), str(tmp_path)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        try:
            wait_until(lambda: (folder / "held").exists() or job.poll() is not None)
            measuring = int((folder / "held").read_text())
            assert alive(measuring)
            whom(job.pid, number)
            _, said = job.communicate(timeout=DEADLINE_S)
        finally:
            job.kill()
    assert job.returncode == 1
    *_, last = said.splitlines()
    assert last == (
        f"gpushmoo: This job was ended by {number.name} before its file was written; start the run "
        "again: finished shards are kept, only this one is measured again."
    )
    assert "Traceback" not in said + (tmp_path / "log").read_text()
    wait_until(lambda: not alive(measuring))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_the_first_signal_is_raised_and_what_was_before_is_again(name: str) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with pytest.raises(JobSignalledError, match=f"ended by {name} before"), raises_signals():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raises_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
