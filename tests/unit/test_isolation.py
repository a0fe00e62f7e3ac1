"""Kernels that fault, hang or ask for too much, on purpose, on each backend.

One bad cell is one typed row; the process that it took down is replaced, and all other cells of the
shard are measured as if nothing had happened.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import gpushmoo.measuring.supervise as supervise
import pandas as pd
import pytest
from bench import BACKENDS, Bench, choice_of
from conftest import ROOT
from gpushmoo.core.errors import DeviceError
from gpushmoo.devices.base import Device
from gpushmoo.measuring.events import Began, Message
from gpushmoo.measuring.process import WorkerProcess
from gpushmoo.workloads.loader import load_kernel

# `wrong` is what a volatile load keeps the compiler from knowing: 1.
BODY = """
KERNEL void copy_good(GLOBAL float *dst, GLOBAL const float *src, const ULONG n)
{
    if (ID < n) dst[ID] = src[ID];
}
// Writes a terabyte beyond its buffer.
KERNEL void copy_illegal(GLOBAL float *dst, GLOBAL const float *src, const ULONG n)
{
    if (ID < n) dst[ID + ((ULONG)1 << 38)] = src[ID];
}
KERNEL void copy_endless(GLOBAL float *dst, GLOBAL const float *src, const ULONG n)
{
    // One thread: all cores of a CPU would keep other work from its end.
    volatile GLOBAL float *never = dst;
    while (ID == 0 && never[0] != 12345.0f)
        ;
    if (ID < n) dst[ID] = src[ID];
}
"""
CUDA = (
    (
        '#define KERNEL extern "C" __global__\n#define GLOBAL\n#define ULONG unsigned long long\n'
        "#define ID ((ULONG)blockIdx.x * blockDim.x + threadIdx.x)\n"
    )
    + BODY
    + """
// More registers than a block of 1024 threads can have.
KERNEL void __launch_bounds__(256, 1) copy_hungry(float *dst, const float *src, const ULONG n)
{
    float kept[120];
#pragma unroll
    for (int i = 0; i < 120; ++i) kept[i] = src[(ID + i * 977) % n];
    for (int round = 0; round < 3; ++round)
#pragma unroll
        for (int i = 0; i < 120; ++i) kept[i] = kept[(i * 7 + 1) % 120] * 1.5f + kept[i];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 120; ++i) sum += kept[i];
    if (ID < n) dst[ID] = sum == 0.123f ? sum : src[ID];
}
"""
)
# Far longer than these kernels take, on any machine.
PAUSE_S = 0.5
OPENCL = (
    "#define KERNEL __kernel\n#define GLOBAL __global\n#define ULONG ulong\n"
    "#define ID get_global_id(0)\n"
) + BODY


@pytest.fixture(params=BACKENDS)
def bench(
    request: pytest.FixtureRequest,
    make_kernel: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    # A launch here takes microseconds, a runtime's compiler at its first launch half a second; that
    # a busy machine does not let it run does not count.
    monkeypatch.setattr(supervise, "LAUNCH_GRACE_S", 0.0)
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))
    variants = ("good", "illegal", "endless", "hungry")
    folder = make_kernel("faulty", CUDA, OPENCL, variants)
    return Bench(choice_of(request, tmp_path), folder, tmp_path)


def expect_good(rows: pd.DataFrame, cells: int) -> None:
    good = rows[rows["variant"] == "good"]
    assert len(good) == cells
    assert set(good["status"]) == {"ok"}
    assert (good["wrong_words"] == 0).all()
    assert (good["samples_s"].map(len) == 6).all()


@pytest.mark.parametrize(
    ("variant", "threads", "status", "words"),
    [
        (
            "illegal",
            [32, 64],
            "launch_failed",
            "(?i)illegal|SIGABRT|(?:SEGV|BUS), as by a kernel that",
        ),
        # One such cell, which is waited for twice: among the others, and alone.
        ("endless", [32], "timeout", "did not end within 2 s"),
    ],
)
def test_a_faulty_launch_costs_its_own_cell(
    bench: Bench, variant: str, threads: list[int], status: str, words: str
) -> None:
    told = bench.params([])["measure"] | {"timeout_s": 2.0}
    rows = bench.measure(["good", variant], threads=threads, measure=told)
    expect_good(rows, len(threads))
    bad = rows[rows["variant"] == variant]
    assert list(bad["status"]) == [status] * len(threads)
    assert bad["message"].str.contains(words).all()


def test_strikes_and_pauses_cost_no_cell(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each signal ends a process at its first launch; then one is stopped among its samples."""
    strikes = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL]
    struck: set[int] = set()
    hear = WorkerProcess.hear

    def hear_and_strike(worker: WorkerProcess, limit_s: float) -> Message:
        message, pid = hear(worker, limit_s), worker._process.pid
        if isinstance(message, Began) and pid not in struck:
            if strikes:
                struck.add(pid)
                os.kill(pid, strikes.pop(0))
            elif len(message.keys) > 1:
                struck.add(pid)
                os.kill(pid, signal.SIGSTOP)
                threading.Timer(PAUSE_S, os.kill, (pid, signal.SIGCONT)).start()
        return message

    monkeypatch.setattr(WorkerProcess, "hear", hear_and_strike)
    rows = bench.measure(["good"])
    expect_good(rows, 8)
    assert len(struck) == 5
    assert rows["samples_s"].map(max).max() < PAUSE_S
    for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"):
        # It may have come while the cell's launch was asked for.
        said = (
            f"ended by {name}(| while workload.py's launch ran); what it had not ended is measured"
        )
        assert re.search(said, caplog.text)


def test_launch_over_the_resources_costs_its_own_cell(bench: Bench) -> None:
    if bench._choice.backend != "cuda":
        pytest.skip("OpenCL tells no limit of a kernel's registers on a CPU")
    rows = bench.measure(["good", "hungry"], threads=[256, 1024])
    hungry = rows[rows["variant"] == "hungry"].set_index("block_x")["status"]
    assert hungry[1024] == "resources"
    assert set(rows.loc[rows["variant"] == "good", "status"]) == {"ok"}


@pytest.fixture
def full_device(cuda_device: Device) -> Iterator[None]:
    """All but a gigabyte of the device's memory is taken by another process."""
    code = (
        "import cupy, sys\n"
        "free, _ = cupy.cuda.Device(0).mem_info\n"
        "taken = cupy.cuda.alloc(free - 2**30)\n"
        "print('taken', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        yield
        other.kill()


@pytest.mark.gpu
@pytest.mark.usefixtures("full_device")
@pytest.mark.parametrize("bench", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_problem_out_of_memory_costs_its_own_cells(bench: Bench) -> None:
    # 1 GiB a buffer: three of them do not fit into what is left, and 16 KiB do.
    rows = bench.measure(["good"], sizes=[[64, 64], [16384, 16384]])
    assert set(rows.loc[rows["height"] == 64, "status"]) == {"ok"}
    assert set(rows.loc[rows["height"] == 16384, "status"]) == {"resources"}
    assert rows.loc[rows["height"] == 16384, "message"].str.contains("does not fit").all()


# A block of 64 threads writes a terabyte beyond the partial sums; others do not.
BEYOND = {
    "kernel.cl": ("if (thread == 0)\n", "if (threads == 64) partials[1ul << 38] = total;\n"),
    "kernel.cu": (
        "if (threadIdx.x == 0)\n",
        "if (blockDim.x == 64) partials[1ull << 38] = total;\n",
    ),
}


def test_stream_that_faults_does_not_poison_the_next_cell(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "dot_streamed"
    shutil.copytree(ROOT / "kernels/dot_streamed", folder)
    for name, (before, fault) in BEYOND.items():
        text = (folder / name).read_text()
        assert text.count(before) == 1
        (folder / name).write_text(text.replace(before, f"{fault}    {before}"))
    axes = {"min_per_stream": 1, "blocks_per_stream": 3, "chunk": 100, "host_percent": 0}
    rows = bench.measure(
        ["pinned-pooled", "pinned-fresh"],
        axes=axes | {"streams": 4, "threads": [32, 64, 96]},
        folder=str(folder),
        kernel_digest=load_kernel(folder).digest(".cl"),
        sizes=[[1, 1003]],
    )
    bad = rows["threads"] == 64
    assert list(rows[bad]["status"]) == ["launch_failed"] * 2
    assert list(rows[~bad]["status"]) == ["ok"] * 4
    assert rows[bad]["message"].str.contains("(?i)illegal|SIGSEGV|SIGABRT|SIGBUS").all()


def test_process_that_never_starts_is_said_in_one_sentence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DeviceError, match=r"ended with status 1\.$"):
        bench.measure(["good"])
