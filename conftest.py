"""What the tests share: a device of each backend, a small checked configuration."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compiled import compile_modules
from gpushmoo.core.errors import NoDeviceError
from gpushmoo.devices.base import Device
from gpushmoo.devices.select import DeviceChoice, open_device, probe
from gpushmoo.planning.config import default_config
from gpushmoo.registry import extra_folders
from gpushmoo.storage.store import unpacked
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from matplotlib.figure import Figure
from mounts import Mount
from projects import answering_opencl

ROOT = Path(__file__).resolve().parent
# What PoCL and nvdisasm made of the same bytes in earlier runs of the suite. Sources in temporary
# folders are others each time: all is removed once it is so much.
KEPT = ROOT / ".venv" / "test-cache"
MAX_KEPT_BYTES = 2**28

# `make test`: the same draws in every run, and one that fails is told as it is: the search for a
# smaller one may take minutes. `make fuzz`: twenty times as many by its seed, and made smaller.
# Neither remembers draws nor judges by how long one took, which a busy machine would decide.
BOTH: dict[str, Any] = {
    "database": None,
    "deadline": None,
    # Tests of a device draw again and again on the one that they share.
    "suppress_health_check": (HealthCheck.too_slow, HealthCheck.function_scoped_fixture),
}
settings.register_profile(
    "test", **BOTH, derandomize=True, max_examples=50, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("fuzz", **BOTH, max_examples=1000)
settings.load_profile("test")
# Hypothesis also draws constants of whatever modules happen to be imported. Which these are depends
# on the tests that a worker had before, so that the same draws need none of them.
providers._get_local_constants = lambda: providers._local_constants


# A shell's nohup ignores these for all that it starts, and tests send them.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def record(name: str) -> Path:
    """The recorded shards of ``nvidia-h200``, or of a part of it: ``nvidia-h200/global_load``."""
    return unpacked(ROOT / "reports/reference" / name)


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process that can import what the tests import, with `changes`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **changes}


def python(
    code: str, *args: object, cwd: Path | None = None, **changes: str
) -> subprocess.CompletedProcess[str]:
    """What `code` does and says in a Python of its own."""
    command = [sys.executable, "-c", code, *map(str, args)]
    told = {"capture_output": True, "encoding": "utf-8", "timeout": 600}
    return subprocess.run(command, cwd=cwd, env=environment(**changes), check=False, **told)


def examples(in_test: int) -> int:
    """How many examples a test draws: `in_test` in `make test`, more in `make fuzz`."""
    return in_test * settings.default.max_examples // settings.get_profile("test").max_examples


# Workers take files in this order: first the one whose fixture makes the run that the others of
# tests/workflow copy, with long ones that do not wait for it; then all others that take more than
# some 5 s of a core, so that no worker is left with one of them at the end.
FIRST = (
    "test_complete_run",
    "test_cuda_compiles",
    "test_whole_runs",
    "test_interactive",
    "test_targets",
    "test_comparing",
    "test_what_runs_again",
    "test_faults",
    "test_user_kernel",
    "test_pytest_plugin",
    "test_no_bytes",
    "test_tune",
    "test_processes",
    "test_dot_products",
    "test_earlier",
    "test_devices",
    "test_history",
    "test_checkouts",
    "test_device_model",
    "test_repeats_run",
    "test_module",
    "test_building",
    "test_broken_workloads",
    "test_exporting",
    "test_kernel_tuner_scripts",
    "test_report",
    # Of the documents.
    "test_readme",
    "test_studies",
    "test_tutorial",
    "test_document_figures",
    "test_event_loop",
    "test_simulations",
    "test_numerics",
    "test_questions",
    "test_dots",
)


def pytest_configure(config: pytest.Config) -> None:
    """Compile before there are workers."""
    if not hasattr(config, "workerinput"):
        compile_modules()
        if sum(path.lstat().st_size for path in KEPT.rglob("*")) > MAX_KEPT_BYTES:
            shutil.rmtree(KEPT)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of extras whose folders are not there."""
    if collection_path.suffix != ".py":
        return None
    named = re.findall(r"(?<!unit/)\bextras[./](\w+)", collection_path.read_text(encoding="utf-8"))
    return True if set(named) - set(extra_folders()) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by FIRST, and leave the rest as it is."""
    place = {name: i for i, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(FIRST)))


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_collect() -> None:
    """Hide all objects from the collector before a file's tests, as a measuring process does.

    Each measurement collects garbage. Among the objects of all imported modules and earlier tests
    this would be nearly all of the time that many tests take.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test waits for a device on which another process measures, and says so unasked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def opencl_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an OpenCL runtime compiled, kept for all tests of all workers, as a user's jobs keep it.

    A measuring process that finds nothing there takes three times as long. What PoCL itself keeps
    lasts from one run of the suite to the next, what the library keeps does not: a change of how it
    compiles is tried.
    """
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "opencl-cache"
    (KEPT / "pocl").mkdir(parents=True, exist_ok=True)
    cache.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (cache / "pocl").symlink_to(KEPT / "pocl")
    return cache


@pytest.fixture(scope="session")
def opencl_choice(opencl_cache: Path) -> DeviceChoice:
    """The OpenCL runtime of all tests."""
    return answering_opencl(opencl_cache)


@pytest.fixture(scope="session")
def opencl_device(opencl_choice: DeviceChoice) -> Iterator[Device]:
    device = open_device(opencl_choice)
    yield device
    device.close()


@pytest.fixture(scope="session")
def cuda_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    choice = DeviceChoice("cuda", 0, "auto", tmp_path_factory.mktemp("cuda-cache"))
    try:
        probe(choice)
    except NoDeviceError as err:
        pytest.skip(f"no CUDA device: {err}")
    device = open_device(choice)
    yield device
    device.close()


@pytest.fixture(params=["opencl", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each backend in turn; CUDA is skipped where there is no device."""
    return request.getfixturevalue(f"{request.param}_device")


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts small file systems, which takes root."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small or read-only file system")
    mounted = Mount()
    yield mounted
    mounted.undo()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, laid out but not written, which would take as long again."""
    return saved_by(lambda figure, *_, **__: figure.draw_without_rendering(), monkeypatch)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, and are."""
    return saved_by(Figure.savefig, monkeypatch)


def saved_by(save: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures for which Figure.savefig will be called; `save` is called instead."""
    figures: list[Figure] = []

    def keep(figure: Figure, *args: Any, **options: Any) -> None:
        save(figure, *args, **options)
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


@pytest.fixture
def raw_config() -> dict[str, Any]:
    """The default configuration as plain values, free to be changed."""
    return default_config()


@pytest.fixture
def make_kernel(tmp_path: Path) -> Callable[..., Path]:
    """Writes a kernel folder `name` whose kernels copy one float per thread, or break."""

    def write(name: str, cuda: str, opencl: str, variants: tuple[str, ...] = ("good",)) -> Path:
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.cu").write_text(cuda)
        (folder / "kernel.cl").write_text(opencl)
        (folder / "workload.py").write_text(WORKLOAD_TEMPLATE.format(name=name, variants=variants))
        return folder

    return write


WORKLOAD_TEMPLATE = """
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Curve, Launch, ceil_div

class Mine(CopyWorkload):
    name = "{name}"
    title = "A user's kernel"
    pattern = "one float per thread"
    dtypes = ("float",)
    variants = {variants}
    sizes = (64,)
    axes = {{"block_x": [32, 64, 2048]}}
    views = (Curve("block_x", unit="threads"),)

    def defines(self, dtype, variant):
        return {{"BROKEN": "1"}} if variant == "broken" else {{}}

    def launch(self, cell):
        n = cell.problem.height * cell.problem.width
        block = cell["block_x"]
        grid = (ceil_div(n, block), 1, 1)
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(n))
        return Launch("copy_" + cell.variant, grid, (block, 1, 1), args, n)

WORKLOAD = Mine()
"""

_BODY = """
    if (i < n) dst[i] = src[i]; }
%(kernel)s void copy_forgets(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s
    if (i < n && i != 77) dst[i] = src[i]; }
%(kernel)s void copy_adds(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s
    if (i < n) dst[i] = src[i] + (i == 5 ? 1.0f : 0.0f); }
%(kernel)s void copy_broken(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s
#ifdef BROKEN
    this does not compile;
#endif
}
"""


def _source(words: dict[str, str]) -> str:
    head = "%(kernel)s void copy_good(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s"
    return (head + _BODY) % words


CUDA_WORDS = {
    "kernel": 'extern "C" __global__',
    "g": "",
    "u": "unsigned long long",
    "i": "const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;",
}
OPENCL_WORDS = {
    "kernel": "__kernel",
    "g": "__global ",
    "u": "ulong",
    "i": "const ulong i = get_global_id(0);",
}
USER_CUDA, USER_OPENCL = _source(CUDA_WORDS), _source(OPENCL_WORDS)
