"""Building a kernel ahead of measuring it: what breaks, what is kept, and that it is enough."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpushmoo.measuring.programs as builds_module
import pytest
from bench import Bench
from conftest import ROOT, USER_CUDA, USER_OPENCL, python
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.errors import (
    BuildError,
    DamagedFileError,
    DeviceError,
    NoDeviceError,
    WorkloadError,
)
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Version
from gpushmoo.devices import isolated
from gpushmoo.devices.build_file import (
    CompiledCode,
    EntryFacts,
    KernelBuild,
    VersionBuild,
    read_build,
    write_build,
)
from gpushmoo.devices.building import refuse_failures
from gpushmoo.devices.isolated import PATIENCE, TaskEnded, run_isolated
from gpushmoo.devices.machine_code import cubins
from gpushmoo.devices.select import DeviceChoice, resolve
from gpushmoo.measuring.programs import Builds, programs_for
from gpushmoo.storage.joblog import raises_signals
from gpushmoo.storage.room import obstacle
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.loader import load_kernel
from mounts import Mount

# Builds in a process of its own: this one may have opened a device, after which none may be forked.
BUILD = """
import ast, resource, sys
from pathlib import Path
from gpushmoo.core.build_job import BuildJob
from gpushmoo.core.errors import DeviceError
from gpushmoo.devices.building import build_kernel
if len(sys.argv) > 4:  # no file may be larger
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), resource.RLIM_INFINITY))
try:
    job = BuildJob.of_plain(ast.literal_eval(sys.argv[1]))
    build_kernel(job, Path(sys.argv[2]), Path(sys.argv[3]), sys.stdout, "the.log", 2)
except DeviceError as err:
    sys.exit(f"refused: {err}")
"""


def build(params: dict[str, Any], folder: Path, *most: int) -> tuple[Path, str]:
    """Builds as the rule does; the build file and the terminal. Files take `most` bytes."""
    out = folder / "build.json"
    done = python(BUILD, repr(params), folder / "cache", out, *most)
    assert done.returncode == 0 or "refused: " in done.stderr, done.stderr
    return out, done.stdout + done.stderr


# Builds in a fork of a process that has begun PoCL's compiler, as the server of stages does.
FORKED = """
import ast, os, sys
from pathlib import Path
from gpushmoo.core.build_job import BuildJob
from gpushmoo.devices.building import build_kernel, prepare_forks
from gpushmoo.devices.opencl.runtime import begin_compiler
spec, cache = ast.literal_eval(sys.argv[1]), Path(sys.argv[2])
before = dict(os.environ)
prepare_forks(spec["backend"], spec["opencl_runtime"], str(cache))
assert "pyopencl" in sys.modules
assert os.environ == before
# What has begun ends with its context.
assert begin_compiler("pocl", cache) is begin_compiler("pocl", cache) is not None
if (child := os.fork()) == 0:
    build_kernel(BuildJob.of_plain(spec), cache, Path(sys.argv[3]), sys.stdout, "the.log", 2)
    sys.stdout.flush()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def params_of(folder: Path, backend: str, variants: list[str], **other: Any) -> dict[str, Any]:
    return {
        "backend": backend,
        "compile_timeout_s": 60.0,
        "cuda_arch": None,
        "device": "all",
        "dtype": "float",
        "folder": str(folder),
        "kernel_digest": load_kernel(folder).digest(BACKENDS[backend].source_suffix),
        "opencl_runtime": "auto",
        "versions": [[variant, []] for variant in variants],
        **other,
    }


def test_a_task_that_ends_or_hangs_costs_no_other_and_its_errors_are_raised() -> None:
    tasks: dict[str, Callable[[], Any]] = {
        "first": lambda: 1,
        "crash": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "second": lambda: 2,
        "exit": lambda: os._exit(3),
        "hang": lambda: time.sleep(1e6),
        "third": os.getpid,
    }
    for processes in (1, 2):
        results = run_isolated(tasks, processes, limit_s=2.0 / PATIENCE)
        assert list(results) == list(tasks)
        assert (results["first"], results["second"]) == (1, 2)
        assert results["third"] != os.getpid()
        assert results["crash"] == TaskEnded("was ended by SIGKILL", is_struck=True)
        assert results["exit"] == TaskEnded("ended its process with status 3")
        assert results["hang"] == TaskEnded("did not end within 0.2 s", is_late=True)

    counted: list[tuple[int, int]] = []
    few = {n: partial(int, n) for n in range(5)}
    run_isolated(few, 2, 60.0, on_done=lambda done, total: counted.append((done, total)))
    assert [*dict.fromkeys(done for done, _ in counted)] == sorted({done for done, _ in counted})
    assert counted[-1] == (5, 5)

    def fail() -> None:
        raise NoDeviceError("There is no compiler.")

    with pytest.raises(NoDeviceError, match="There is no compiler"):
        run_isolated({"good": lambda: 1, "bad": fail, "hang": partial(time.sleep, 1e6)}, 3, 60.0)


def test_a_suspended_machine_ends_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock goes on: ten hours between two looks are a short wait of the task."""
    looks, real_wait, hours = 0, isolated.wait, 0

    def waiting(*given: Any) -> list[Any]:
        nonlocal looks, hours
        looks += 1
        hours += 10 * (looks == 2)
        if looks == 4:
            (tmp_path / "woken").touch()
        return real_wait(*given)

    def until_woken() -> str:
        while not (tmp_path / "woken").exists():
            time.sleep(0.01)
        return "done"

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * hours)
    monkeypatch.setattr(isolated, "time", clock)
    monkeypatch.setattr(isolated, "wait", waiting)
    slow: list[str] = []
    assert run_isolated({"a": until_woken}, 1, 60.0, on_slow=slow.append) == {"a": "done"}
    assert slow == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_task_that_is_struck_runs_again(number: signal.Signals, tmp_path: Path) -> None:
    def twice() -> int:
        for name in ("one", "two"):
            if not (tmp_path / name).exists():
                (tmp_path / name).touch()
                os.kill(os.getpid(), number)
        return 1

    with raises_signals():
        assert run_isolated({"struck": twice, "other": lambda: 2}, 1, 60.0) == {
            "struck": 1,
            "other": 2,
        }


HELD = KernelBuild(
    "digest",
    {
        "sm_80": {
            "a": VersionBuild(
                "NVRTC 13",
                "-DA",
                "a remark",
                code=b"\x7fELF",
                entries=[{"n": 1}],
                facts={"f<int>": EntryFacts("_Z1fIiEvv"), "g": EntryFacts("g", (128, 1, 1))},
            ),
            "b": VersionBuild("NVRTC 13", "-DB", code=b"\x7fELF", entries=[]),
        },
        "sm_90": {"a": VersionBuild(log="l", status=Status.WORKLOAD_FAILED, failure="no.")},
    },
)


def test_a_build_file_holds_what_was_written_and_failures_refuse_the_target(tmp_path: Path) -> None:
    path = tmp_path / "copy" / "float.json"
    write_build(path, HELD)
    assert read_build(path) == HELD
    before = path.read_bytes()
    write_build(path, HELD)
    assert path.read_bytes() == before
    path.write_bytes(before[:-9])
    with pytest.raises(DamagedFileError, match="is truncated"):
        read_build(path)
    write_build(tmp_path / "copy" / "float.json", HELD)
    with pytest.raises(DeviceError, match=r"The machine code of copy, float, a is not"):
        refuse_failures([tmp_path / "copy" / "float.json"])


def test_a_damaged_cubin_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its variant's cells would be `build_failed`, though nothing is wrong with the kernel."""
    compiled: list[str] = []
    facts = {"f": EntryFacts("_Z1fv", (128, 1, 1), 64, 2)}

    def compile_cubin(unit: cubins.Unit, *_: Any) -> CompiledCode:
        compiled.append(unit.name)
        return CompiledCode(b"\x7fELF " + unit.text.encode(), "a remark", facts)

    monkeypatch.setattr(cubins, "compile_cubin", compile_cubin)
    monkeypatch.setattr(cubins, "nvrtc_version", lambda: "13.0")

    def cached() -> CompiledCode:
        return cubins.cached_cubin(cubins.Unit("source", "copy", ("-O3",)), "sm_90", tmp_path)

    made = cached()
    assert cached() == made
    (path,) = (tmp_path / "cubin").glob("*.json")
    whole = path.read_bytes()
    for number, data in enumerate([b"", whole[:50], b"{}\n"], start=2):
        path.write_bytes(data)
        assert cached() == made
        assert path.read_bytes() == whole
        assert compiled == ["copy"] * number
    stored = cubins.stored_cubin(made.code, tmp_path)
    stored.write_bytes(b"")
    assert cubins.stored_cubin(made.code, tmp_path).read_bytes() == made.code


CRASHES = """
    def defines(self, dtype, variant):
        import os, signal
        if variant == "crash":
            os.abort()
        if variant == "full":
            os.write(2, b"LLVM ERROR: IO failure on output stream: No space left on device")
            os.abort()
        if variant == "memory":
            os.write(2, b"LLVM ERROR: out of memory")
            os.abort()
        if variant == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if variant == "raise":
            raise KeyError(variant)
        return {"BROKEN": "1"} if variant == "broken" else {}

    def accesses(self, entry, dtype, variant):
        return super().accesses(entry, dtype, variant) if entry == "copy_" + variant else ()
"""
VARIANTS = ["good", "broken", "crash", "raise"]
HOST = ["full", "memory", "killed"]


@pytest.fixture
def faulty(make_kernel: Callable[..., Path]) -> Path:
    folder = make_kernel("faulty", USER_CUDA, USER_OPENCL, (*VARIANTS, *HOST))
    path = folder / "workload.py"
    text = path.read_text()
    assert "    def defines" in text
    start = text.index("    def defines")
    end = text.index("    def ", start + 8)
    path.write_text(text[:start] + CRASHES.lstrip("\n") + "\n" + text[end:])
    return folder


@pytest.mark.parametrize("backend", ["cuda", "opencl"])
def test_a_failed_variant_costs_itself(faulty: Path, backend: str, tmp_path: Path) -> None:
    out, terminal = build(params_of(faulty, backend, VARIANTS, cuda_arch="sm_90"), tmp_path)
    ((target, made),) = read_build(out).targets.items()
    assert (target == "sm_90") == (backend == "cuda")
    assert made["good"].error is None
    assert made["good"].code
    failures = {v: type(made[v].error) for v in VARIANTS[1:]}
    assert failures == {"broken": BuildError, "crash": BuildError, "raise": WorkloadError}
    assert "does not compile" in str(made["broken"].failure)
    assert "error" in made["broken"].log
    assert made["crash"].failure == "the compiler's process was ended by SIGABRT"
    assert terminal.count("gpushmoo: faulty, float, variant") == 3
    assert "faulty, float, variant crash: the compiler's process was ended" in terminal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "backend"), [("full", "cuda"), ("memory", "opencl"), ("killed", "opencl")]
)
def test_the_machines_fault_blames_no_kernel(
    faulty: Path, backend: str, variant: str, tmp_path: Path
) -> None:
    """Without a build file the next start compiles again."""
    params = params_of(faulty, backend, ["good", variant], cuda_arch="sm_90")
    out, terminal = build(params, tmp_path)
    assert "refused: " in terminal
    assert ("make room" if variant == "full" else "memory") in terminal
    assert not out.exists()


def test_a_disk_without_room_is_named_and_with_room_it_is_built(
    faulty: Path, opencl_choice: DeviceChoice, tmp_path: Path
) -> None:
    params = params_of(faulty, "opencl", ["good"], opencl_runtime=opencl_choice.runtime)
    # PoCL begins to write and fails later; other compilers write less.
    for most in (0, 20_000) if opencl_choice.runtime == "pocl" else (0,):
        out, terminal = build(params, tmp_path, most)
        assert f"'{tmp_path / 'cache'}' cannot be written to" in terminal
        assert not out.exists()
    out, _ = build(params, tmp_path)
    ((_, made),) = read_build(out).targets.items()
    assert made["good"].code


def test_folders_that_take_no_files_are_named(tmp_path: Path, mount: Mount) -> None:
    assert obstacle(tmp_path / "new", tmp_path) is None
    mount(tmp_path / "small", "size=64k")
    assert "make room there" in str(obstacle(tmp_path, tmp_path / "small"))
    mount(tmp_path / "fixed", "ro")
    assert "make it writable" in str(obstacle(tmp_path / "fixed"))
    for folder in ("small", "fixed"):
        with pytest.raises(NoDeviceError, match=f"{folder}' cannot be written to"):
            resolve(DeviceChoice("opencl", 0, "auto", tmp_path / folder))


def test_no_target_no_build(faulty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    out, terminal = build(params_of(faulty, "cuda", ["good"]), tmp_path)
    assert "No CUDA device answers; this needs an NVIDIA GPU" in terminal
    out, terminal = build(params_of(faulty, "cuda", ["good"], cuda_arch="sm_35"), tmp_path)
    assert "not 'sm_35'; install the extra 'cuda12'" in terminal
    assert not out.exists()


@pytest.mark.parametrize("backend", ["opencl", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_shard_is_measured_from_its_build_file_without_its_source(
    backend: str, request: pytest.FixtureRequest, faulty: Path, tmp_path: Path
) -> None:
    choice = DeviceChoice("cuda", 0, "auto", tmp_path)
    if backend == "cuda":
        request.getfixturevalue("cuda_device")
    else:
        choice = request.getfixturevalue("opencl_choice")
    bench = Bench(choice, faulty, tmp_path)
    own = {"device": "0", "opencl_runtime": choice.runtime}
    params = params_of(faulty, backend, VARIANTS[:2], **own)
    out, _ = build(params, tmp_path)
    for suffix in (".cu", ".cl"):
        (faulty / f"kernel{suffix}").unlink()
    rows = bench.measure(VARIANTS[:2], [32, 64], build=out, kernel_digest=params["kernel_digest"])
    assert set(rows[rows["variant"] == "good"]["status"]) == {"ok"}
    assert set(rows[rows["variant"] == "broken"]["status"]) == {"build_failed"}
    _, metadata = read_shard(tmp_path / "shard.parquet")
    assert "compiled_here" not in metadata
    assert bench.terminal.getvalue().count("gpushmoo: ") == 0


VERSIONS = [Version("a"), Version("b")]


def ready(
    held: KernelBuild | None, monkeypatch: pytest.MonkeyPatch, compiles: Any, target: str = "sm_80"
) -> Builds:
    """`programs_for` a device of `target` that loads what has code, beside a compiler."""

    def load(made: VersionBuild) -> Any:
        if made.code is None:
            raise BuildError("There is no code.", "")
        return SimpleNamespace(options=made.options)

    device: Any = SimpleNamespace(
        target=target,
        request=None,
        load=load,
        build=lambda *_: SimpleNamespace(options="from source"),
    )
    workload = SimpleNamespace(
        device_code=True, macros=lambda *_: {}, options=(), constants=lambda _: {}
    )
    folder: Any = SimpleNamespace(workload=workload, path=Path("kernels/x"), name="x")
    monkeypatch.setattr(builds_module, "compile_here", compiles)
    return programs_for(device, folder, "float", VERSIONS, held, "digest")


def no_compiler(*_: Any) -> VersionBuild:
    raise NoDeviceError("NVRTC is missing.")


def test_what_a_build_file_holds_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = ready(HELD, monkeypatch, no_compiler)
    assert {v: p.options for v, p in programs.programs.items()} == {"a": "-DA", "b": "-DB"}
    assert programs.compiled_here == {}
    assert programs.machine_code == {
        "arch": "sm_80",
        "variants": {
            "a": {"failure": None, "entries": [{"n": 1}]},
            "b": {"failure": None, "entries": []},
        },
    }
    with pytest.raises(DeviceError, match="from another state of its sources"):
        ready(KernelBuild("older", HELD.targets), monkeypatch, no_compiler)


def test_what_has_no_code_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(*asked: Any) -> VersionBuild:
        return VersionBuild("NVRTC 13", f"-arch={asked[-1]}", code=b"code", entries=[])

    programs = ready(HELD, monkeypatch, compiles, target="sm_100")
    assert programs.programs["b"].options == "-arch=sm_100"
    said = "the build file holds machine code for 'sm_80', 'sm_90', this device runs 'sm_100'"
    assert programs.compiled_here == {"a": said, "b": said}
    assert ready(None, monkeypatch, compiles).compiled_here == {}
    with pytest.raises(DeviceError, match=r"^The build file holds .*, and: NVRTC is missing\.$"):
        ready(HELD, monkeypatch, no_compiler, target="sm_100")
    variants = {"a": VersionBuild("rt", "-DA", code=b"x"), "b": VersionBuild("rt", "-DB")}
    programs = ready(KernelBuild("digest", {"rt": variants}), monkeypatch, no_compiler, "rt")
    assert programs.programs["b"].options == "from source"
    assert programs.compiled_here == {"b": "There is no code."}
    assert programs.machine_code is None


ONE_VARIANT = """
import hashlib, sys
from pathlib import Path
from gpushmoo.devices.build_file import BuildRequest
from gpushmoo.core.space import Version
from gpushmoo.devices.opencl.backend import compile_version
from gpushmoo.workloads.loader import load_kernel
from mounts import Mount
request = BuildRequest("opencl", "0", sys.argv[1], None, Path(sys.argv[2]))
version = Version("element")
built = compile_version(request, load_kernel(Path(sys.argv[3])), "float", version, "target")
print(hashlib.sha256(repr(built).encode()).hexdigest())
"""


def test_a_build_is_the_same_again(opencl_choice: DeviceChoice, tmp_path: Path) -> None:
    """Whatever pyopencl has kept: a build file that differs measures its whole sweep again."""
    folder = ROOT / "kernels/copy2d_coalesced"
    args = [opencl_choice.runtime, opencl_choice.cache, folder]
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first, again = (python(ONE_VARIANT, *args, **own).stdout for _ in range(2))
    assert first == again
    assert len(first.splitlines()[-1]) == 64


def test_forks_of_a_process_with_a_begun_compiler_build(
    make_kernel: Callable[..., Path], opencl_choice: DeviceChoice, tmp_path: Path
) -> None:
    if opencl_choice.runtime != "pocl":
        pytest.skip("other compilers begin in each process")
    folder = make_kernel("mine", USER_CUDA, USER_OPENCL, ("good", "broken"))
    params = params_of(folder, "opencl", ["good", "broken"], opencl_runtime="pocl")
    out = tmp_path / "build.json"
    done = python(FORKED, repr(params), tmp_path / "cache", out)
    assert done.returncode == 0, done.stderr
    [made] = read_build(out).targets.values()
    assert made["broken"].status == Status.BUILD_FAILED
    assert made["good"].code
    bench = Bench(opencl_choice, folder, tmp_path)
    rows = bench.measure(["good"], [32, 64], build=out)
    assert set(rows["status"]) == {"ok"}
    assert "compiled by the measuring job" not in bench.terminal.getvalue()
