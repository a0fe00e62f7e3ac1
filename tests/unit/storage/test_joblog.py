"""A job's log: whatever prints, it stays small and holds the beginning and the last words."""

import signal
import subprocess
from pathlib import Path

from conftest import python

MOST = 100_000
# What each job below begins with.
START = f"""
import os, signal, subprocess, sys
from gpushmoo.storage import joblog
joblog.MAX_BYTES = {MOST}
LINE = b"a line that something prints\\n"
def flood():
    print("the first words", flush=True)
    for _ in range(100):
        os.write(1, LINE * 100)
"""


def job(code: str, log: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A job that runs `code`, with the log `log`, in a process of its own."""
    return python(START + code, log, **variables)


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
    assert 0.7 * MOST < len(text) <= MOST
    assert text.startswith("the first words\na line that")
    assert text.endswith("prints\nof another process\nwhat a library says at its end\n")
    assert text.count("\n[gpushmoo: what was printed here is left out.") == 1
    assert done.stderr == (
        f"gpushmoo: '{log}' would be over 0.1 MB and contains only the beginning and the end; if "
        "a kernel or workload.py prints, times include it.\n"
    )


def test_what_prints_for_ever_is_cut_while_it_goes_on(tmp_path: Path) -> None:
    code = """
size = 0
with joblog.job_log(sys.argv[1]):
    # It ends when the log gets smaller.
    while (now := os.stat(sys.argv[1]).st_size) >= size:
        size = now
        flood()
"""
    log = tmp_path / "x.log"
    assert job(code, log).returncode == 0
    assert log.stat().st_size <= MOST


def test_a_job_that_fails_or_is_killed_leaves_its_last_words(tmp_path: Path) -> None:
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
    code = """
with joblog.job_log(sys.argv[1]):
    print("the last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    log = tmp_path / "x.log"
    assert job(code, log).returncode == -signal.SIGKILL
    assert log.read_text() == "the last words\n"
