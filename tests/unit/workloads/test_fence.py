"""What a workload.py does to the process: it becomes a sentence, and is put back."""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import USER_CUDA, USER_OPENCL, WORKLOAD_TEMPLATE
from fakes import make_cells
from gpushmoo.core.display import MAX_SENTENCE, MAX_TEXT, one_line
from gpushmoo.core.errors import KernelFolderError, WorkloadError
from gpushmoo.core.schema import Status
from gpushmoo.devices.build_file import compile_error
from gpushmoo.measuring.events import CellRun, NoLaunch
from gpushmoo.workloads.contract import CopyWorkload
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder, load_kernel

Load = Callable[..., KernelFolder]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a kernel whose module begins with some lines."""

    def run(lines: str, name: str = "mine") -> KernelFolder:
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        text = WORKLOAD_TEMPLATE.format(name=name, variants=("good",))
        (folder / "workload.py").write_text(f"import os, sys\n{lines}\n{text}")
        (folder / "kernel.cu").write_text(USER_CUDA)
        (folder / "kernel.cl").write_text(USER_OPENCL)
        return load_kernel(folder)

    return run


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sys.exit(0)", "SystemExit: 0 (a workload must not end the program)"),
        ("sys.exit()", "SystemExit (a workload must not end the program)"),
        ("exit('done')", "SystemExit: done (a workload must not end the program)"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise MemoryError", "MemoryError"),
        ("class Own(BaseException): ...\nraise Own", "Own"),
    ],
)
def test_a_module_that_ends_the_program_is_refused(load: Load, line: str, said: str) -> None:
    number = 2 + line.count("\n")
    with pytest.raises(KernelFolderError) as err:
        load(line)
    sentence = f"Kernel 'mine': workload.py does not load (kernels/mine/workload.py:{number}: "
    assert str(err.value) == f"{sentence}{said})."
    assert "gpushmoo_kernel_mine" not in sys.modules


def test_the_working_directory_and_warnings_stay(load: Load) -> None:
    before = Path.cwd(), list(warnings.filters), np.geterr()
    load(
        "import warnings\nimport numpy as np\nos.chdir('/')\n"
        "warnings.simplefilter('error')\nnp.seterr(all='raise')\n"
    )
    assert (Path.cwd(), list(warnings.filters), np.geterr()) == before
    # Control-C while a module is loaded is the person's.
    with pytest.raises(KeyboardInterrupt):
        load("raise KeyboardInterrupt")


def test_helper_modules(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    lines = (
        "sys.path.append(os.path.dirname(__file__))\n"
        "import helper_of_kernels\n"
        "def own_name():\n"
        "    return helper_of_kernels.NAME\n"
        "def late():\n"
        "    import late_helper_of_kernels\n"
        "    return late_helper_of_kernels.NAME\n"
    )
    for name in ("one", "two"):
        (tmp_path / "kernels" / name).mkdir(parents=True)
        for module in ("helper_of_kernels", "late_helper_of_kernels"):
            (tmp_path / "kernels" / name / f"{module}.py").write_text(f"NAME = {name!r}\n")
        load(lines, name)
        mine = sys.modules[f"gpushmoo_kernel_{name}"]
        assert mine.own_name() == name
        assert mine.late() == name


METHODS = sorted(
    name
    for name in {n for base in HostFedWorkload.__mro__ for n in vars(base)}
    if not name.startswith("_") and inspect.isfunction(getattr(HostFedWorkload, name))
)


def workload_with(**methods: Any) -> Any:
    """A workload with these methods and none of those that it should have."""
    cls = type("Mine", (HostFedWorkload,), {"__module__": __name__, **methods})
    cls.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return cls()


def test_an_end_in_any_method_is_a_sentence_and_control_c_passes() -> None:
    def ends(self: Any, *args: Any) -> None:
        sys.exit(0)

    for name in METHODS:
        said = r"^unit/workloads/test_fence\.py:\d+: SystemExit: 0 \(a w"
        with pytest.raises(WorkloadError, match=said):
            getattr(workload_with(**{name: ends}), name)()

    def runs_out(self: Any) -> None:
        raise MemoryError

    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    workload = workload_with(inputs=runs_out, launch=runs_out, proof=interrupted)
    with pytest.raises(KeyboardInterrupt):
        workload.proof()
    with pytest.raises(MemoryError):
        workload.inputs()
    with pytest.raises(WorkloadError, match="MemoryError"):
        workload.launch()


def exits(*args: Any) -> None:
    """Ends the program, whatever it is called with."""
    sys.exit(0)


@pytest.mark.parametrize(
    "launch",
    [exits, staticmethod(exits), classmethod(exits), functools.cache(exits), partial(exits)],
)
def test_whatever_stands_in_the_place_of_a_method_is_fenced(launch: Any) -> None:
    with pytest.raises(WorkloadError, match="SystemExit: 0"):
        workload_with(launch=launch).launch("cell")
    # So is the method of another class, which is no workload and lends one its methods.
    elsewhere = type("Elsewhere", (), {"launch": launch})
    cls = type("Mine", (elsewhere, CopyWorkload), {"__module__": __name__})
    with pytest.raises(WorkloadError, match="SystemExit: 0"):
        cls.launch(None, "cell")


class SilentError(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("err", "said"),
    [
        (ValueError("größer\nals\r\n\x1b[2J erlaubt"), r"ValueError: größer als \x1b[2J erlaubt"),
        (ValueError("\udcff\0"), r"ValueError: \udcff\x00"),
        (ValueError("\u2028 \x85 "), "ValueError"),
        (SilentError(), "SilentError: its text raises ValueError"),
        (KeyError("ä" * 10**6), "KeyError: 'äää"),
    ],
)
def test_the_text_of_an_error_is_one_bounded_line(err: Exception, said: str) -> None:
    def fails(self: Any) -> None:
        raise err

    with pytest.raises(WorkloadError) as caught:
        workload_with(launch=fails).launch()
    sentence = str(caught.value)
    assert said in sentence
    assert len(sentence) < MAX_TEXT + 50
    assert sentence.isprintable()
    sentence.encode()


def test_what_a_workload_or_compiler_says_is_one_bounded_line() -> None:
    with pytest.raises(WorkloadError, match=r"fault returns 1 \(int\); it must return the r"):
        workload_with(fault=lambda self: 1).fault()
    with pytest.raises(WorkloadError, match=r"result_of returns None \(NoneType\), not a str$"):
        workload_with(result_of=lambda self: None).result_of()
    said = workload_with(fault=lambda self: "wrong\n" * 10**6).fault()
    run = CellRun(make_cells()[0], NoLaunch())
    run.end(Status.WRONG_RESULT, said)
    assert len(run.message) == MAX_SENTENCE
    assert run.message.isprintable()
    assert len(str(WorkloadError("x\n" * 10**6))) == MAX_SENTENCE
    assert one_line("a b", 3) == "a b"
    assert one_line("abcdef", 5) == "ab..."
    log = "kernel.cl:1:2: error: " + "x" * 10**7 + "\nlast words"
    err = compile_error("kernel.cl", log)
    assert str(err).startswith("kernel.cl does not compile: kernel.cl:1: error: xxx")
    assert len(str(err)) < MAX_TEXT + 50
    assert len(err.log) < 1.1e6
    assert err.log.startswith("kernel.cl:1:2")
    assert err.log.endswith("last words")
