"""A job's log: whatever prints, it stays small and holds the beginning and the last words."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import USER_CUDA, USER_OPENCL, environment
from gpushmoo.devices.select import DeviceChoice

MOST = 100_000
DEADLINE_S = 60
# What each job below begins with; `keepers` are the processes that write its logs.
START = f"""
import os, signal, subprocess, sys
from gpushmoo.storage import joblog
keepers = []
class Recorded(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if "log_keeper" in str(command):
            keepers.append(self)
subprocess.Popen = Recorded
joblog.MOST_BYTES = {MOST}
LINE = b"a line that something prints\\n"
def flood():
    print("the first words", flush=True)
    for _ in range(100):
        os.write(1, LINE * 100)
"""


def job(code: str, log: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A job that runs `code`, with the log `log`, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", START + code, str(log), *args],
        env=environment(**variables),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=DEADLINE_S,
    )


def test_a_flood_is_cut_in_the_middle_and_nothing_stays_open(tmp_path: Path) -> None:
    code = """
before = os.listdir("/proc/self/fd")
with joblog.job_log(sys.argv[1]):
    flood()
    os.system("echo of another process")
print("what a library says at its end", flush=True)
assert os.listdir("/proc/self/fd") == before
"""
    log = tmp_path / "logs/x.log"
    done = job(code, log)
    assert done.returncode == 0, log.read_text()[-1000:]
    text = log.read_text()
    assert 0.9 * MOST < len(text) <= MOST
    assert text.startswith("the first words\na line that")
    assert text.endswith("prints\nof another process\nwhat a library says at its end\n")
    [left_out] = re.findall(r"^\[gpushmoo: (\d+) bytes are left out here", text, re.MULTILINE)
    printed = len("the first words\nof another process\n") + 10_000 * 29
    ours = sum(len(line) + 1 for line in text.splitlines() if line.startswith("[gpushmoo"))
    kept = len(text) - ours - len("\nwhat a library says at its end\n")
    assert kept + int(left_out) == printed
    assert done.stderr == (
        f"gpushmoo: '{log}' would be over 0.1 MB and holds only the beginning and the end; where "
        "a kernel or workload.py prints, times include it.\n"
    )


def test_a_job_that_fails_has_its_traceback_at_the_end_of_a_flood(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    code = r"""
with joblog.job_log(sys.argv[1]):
    flood()
    raise LookupError("gr\xf6\xdfe" * 10**6)
"""
    # A locale that knows no umlaut.
    done = job(code, log, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert done.returncode == 1
    assert log.stat().st_size <= MOST
    assert done.stderr.startswith("gpushmoo: LookupError: größe")
    assert len(done.stderr) < 5000
    assert log.read_text(errors="replace").rstrip().endswith("xdfe")


def test_a_job_that_is_killed_leaves_its_log_so_far(tmp_path: Path) -> None:
    code = """
with joblog.job_log(sys.argv[1]):
    flood()
    print("the last words", flush=True)
    # As a scheduler does it: first all are asked to end.
    keepers[0].send_signal(signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    log = tmp_path / "x.log"
    assert job(code, log).returncode == -signal.SIGKILL
    deadline = time.monotonic() + DEADLINE_S
    while not (text := log.read_text()).endswith("\nthe last words\n"):
        assert time.monotonic() < deadline, text[-1000:]
        time.sleep(0.01)
    assert text.startswith("the first words\n")
    assert len(text) <= MOST


def test_a_log_whose_keeper_is_killed_costs_nothing_but_the_log(tmp_path: Path) -> None:
    code = """
with joblog.job_log(sys.argv[1]) as terminal:
    keepers[0].kill()
    keepers[0].wait()
    print("lost", flush=True)
    terminal.write("done")
"""
    done = job(code, tmp_path / "x.log")
    assert (done.returncode, done.stderr) == (0, "done")


def test_a_job_does_not_wait_for_long_for_what_it_left_behind(tmp_path: Path) -> None:
    code = """
joblog._CLOSE_S = 0.01
with joblog.job_log(sys.argv[1]):
    left = subprocess.Popen(["sleep", "60"])
assert keepers[0].poll() is None
left.kill()
left.wait()
assert keepers[0].wait() == 0
"""
    log = tmp_path / "x.log"
    assert job(code, log).returncode == 0, log.read_text()


def test_a_full_disk_blocks_nothing_that_prints() -> None:
    code = "with joblog.job_log(sys.argv[1]):\n    for _ in range(10): flood()"
    assert job(code, Path("/dev/full")).returncode == 0


def test_a_kernel_that_prints_fills_no_disk_and_is_measured(
    opencl_choice: DeviceChoice, make_kernel: Callable[..., Path], tmp_path: Path
) -> None:
    code = """
from pathlib import Path
from bench import Bench
from gpushmoo.devices.select import DeviceChoice
tmp = Path(sys.argv[2])
with joblog.job_log(sys.argv[1]) as terminal:
    choice = DeviceChoice("opencl", 0, sys.argv[3], Path(sys.argv[4]))
    bench = Bench(choice, tmp / "kernels/chatty", tmp)
    bench.terminal = terminal
    rows = bench.measure(["good"], threads=[32], sizes=[[16, 32]])
    assert set(rows["status"]) == {"ok"}, rows["message"]
"""
    says = 'printf("a kernel says that its index is %d\\n", (int)i);'
    source = USER_OPENCL.replace("dst[i] = src[i]", f"{{ dst[i] = src[i]; {says} }}")
    assert says in source
    make_kernel("chatty", USER_CUDA, source)
    log = tmp_path / "x.log"
    args = (str(tmp_path), opencl_choice.runtime, str(opencl_choice.cache))
    done = job(code, log, *args, GPUSHMOO_LOCK_DIR=str(tmp_path / "locks"))
    assert done.returncode == 0, done.stderr
    told = log.read_text()
    assert len(told) <= MOST
    assert "INFO shard [0, 1]" in told[:1000]
    assert "a kernel says that its index is " in told
    assert "INFO wrote" in told[-1000:]
    said = r"chatty, float: kernel.cl:\d+: the kernel prints; its times include that\.$"
    assert re.search(said, done.stderr, re.MULTILINE)
    assert "holds only the beginning and the end" in done.stderr
