"""What the code of a stage is, and what a change of it makes Snakemake do again."""

import ast
import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT, python
from gpushmoo.core.paths import CHAPTERS, IMPORTED, PACKAGE
from gpushmoo.core.python_digest import python_digest
from gpushmoo.planning import digest
from gpushmoo.planning.digest import (
    code_digest,
    file_digest,
    library_digest,
    module_digest,
    modules_of,
)

SCRIPTS = PACKAGE.parent

# Whatever Python 3.11, 3.12, 3.13 and 3.14 write down differently, or one of them might.
MODULE = '''\
"""A module."""

from __future__ import annotations

import os.path as p, sys


@register("a", *names, key=f"x{y!r:>{width}.{digits}}z" "tail" f"{q = }" u"")
class A(B, metaclass=M):
    """A class."""

    x: int = 1

    def f(self, a, /, b=1, *c, d, e=None, **g) -> "T":
        """A method."""
        return f"{a:{b}{c}}" f"" "" f"{d!s}{{}}" rf"\\d{e}" if a else f'{x["k"]:}'

    async def g(self):
        async with a as b, c:
            return [x async for x in y if await z]


match v:
    case {"a": [1, *rest], **kw} if (n := len(rest)) > 1:
        pass
    case A(x=1) | None:
        ...
first, *rest = a[*b], lambda x, *y, z=1: (x, *y, z)
try:
    odd = 1e400, -0.0, 3j, 1_000, b"\\xff", "\\ud800 \\U0001fae0 \u00df", f"", f"{{"
except* ValueError as e:
    raise
'''


def test_every_version_of_python_sees_the_same_code_without_docstrings() -> None:
    assert (
        python_digest(MODULE.encode()).hex()
        == "a4605116219c99c951527c5de5cd43773b837ef7a0070cc6faed7e7795a55281"
    )
    text = MODULE.replace('"""A method."""', '"""Another,\n\n        longer one."""  # remark')
    text = text.replace('    """A class."""\n', "").replace("        pass", '        "mended"')
    for same in (text, ast.unparse(ast.parse(MODULE))):
        assert python_digest(same.encode()) == python_digest(MODULE.encode())
    assert python_digest(b'"""A text."""\npass') == python_digest(b"")
    assert python_digest(b"def") != python_digest(b"def ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x: int = 1", "x: int = 2"),
        ("x: int = 1", "x: int = True"),
        (">{width}", "<{width}"),
        ("a, /, b", "a, b"),
        ("*c, d,", "*c, h,"),
        ("return [x", "yield [x"),
        ("-0.0", "0.0"),
        ('b"\\xff"', '"\\xff"'),
        ("\u00df", "ss"),
        ("    raise", "    pass"),
        ("(x, *y, z)", "(x, y, z)"),
    ],
)
def test_what_the_code_does_counts(old: str, new: str) -> None:
    assert MODULE.count(old) == 1
    changed = MODULE.replace(old, new)
    assert python_digest(changed.encode()) != python_digest(MODULE.encode())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of a script and a library, in folders of their own."""
    library = tmp_path / "scripts/gpushmoo"
    write(library / "__init__.py", "")
    write(library / "core/__init__.py", "")
    write(library / "core/extra.py", "VALUE = 1\n")
    write(tmp_path / "chapters/page/__init__.py", "")
    write(tmp_path / "chapters/page/extra.py", "VALUE = 1\n")
    monkeypatch.setattr(digest, "IMPORTED", (tmp_path / "scripts", tmp_path / "chapters"))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fresh(file: Path) -> str:
    for kept in (code_digest, library_digest, digest._reached, digest._imports_of):
        kept.cache_clear()
    for read in (digest._code, digest._module_files):
        read.cache_clear()
    return code_digest(file)


LIBRARY = Path("scripts/gpushmoo/core/extra.py")


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import gpushmoo.core.extra", LIBRARY),
        ("from gpushmoo.core.extra import VALUE", LIBRARY),
        ("from gpushmoo.core import extra", LIBRARY),
        ("from gpushmoo.core import extra", Path("scripts/gpushmoo/__init__.py")),
        ("from gpushmoo.core import extra", Path("scripts/gpushmoo/core/__init__.py")),
        ("def late():\n    from gpushmoo.core.extra import VALUE", LIBRARY),
        ("command = ['-m', 'gpushmoo.core.extra']", LIBRARY),
        ("from page.extra import VALUE", Path("chapters/page/extra.py")),
        ("VALUE = 0", Path("scripts/stage.py")),
    ],
)
def test_whatever_a_script_imports_counts(project: Path, line: str, module: Path) -> None:
    script = project / "scripts/stage.py"
    write(script, line)
    before = fresh(script)
    write(project / module, '"""Mended."""\n' + (project / module).read_text())
    assert fresh(script) == before
    write(project / module, (project / module).read_text() + "\nCHANGED = 1\n")
    assert fresh(script) != before


@pytest.mark.parametrize(
    "line", ["from . import extra", "from .extra import VALUE", "from ..core import extra"]
)
def test_relative_imports_are_followed_and_circles_end(project: Path, line: str) -> None:
    write(project / "scripts/gpushmoo/core/stage.py", line)
    write(project / LIBRARY, "from . import stage\nfrom .. import core\n")
    write(project / "scripts/stage.py", "import gpushmoo.core.stage")
    fresh(project / "scripts/stage.py")
    assert project / LIBRARY in modules_of(project / "scripts/stage.py")


def test_the_digest_of_a_kernels_library_is_of_what_its_workload_imports(project: Path) -> None:
    """Also of what lies beside a kernel outside of the project, wherever that lies."""
    for place in ("one", "another"):
        write(project / place / "mine/workload.py", "from shared.sums import VALUE\n")
        write(project / place / "shared/sums.py", "from gpushmoo.core.extra import VALUE\n")
    workload = project / "one/mine/workload.py"
    before = library_digest(workload)
    assert library_digest(project / "another/mine/workload.py") == before
    write(workload, workload.read_text() + "CHANGED = 1\n")
    fresh(workload)
    assert library_digest(workload) == before
    write(project / "one/shared/sums.py", "VALUE = 2\n")
    fresh(workload)
    assert library_digest(workload) != before


def test_a_digest_is_of_names_and_contents(project: Path, tmp_path: Path) -> None:
    write(project / "scripts/one.py", "VALUE = 1\n")
    write(project / "scripts/two.py", "VALUE = 1\n")
    assert fresh(project / "scripts/one.py") != fresh(project / "scripts/two.py")
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    b.write_text("2")
    before = file_digest(a, b)
    assert file_digest(b, a) == before
    b.write_text("3")
    assert file_digest(a, b) != before
    b.write_text("2")
    assert file_digest(a, b.rename(tmp_path / "c")) != before


# Does the measuring jobs.
MEASURING = "gpushmoo/measuring/job.py"


def names_of(script: str) -> set[str]:
    paths = modules_of(SCRIPTS / script)
    return {p.relative_to(PACKAGE).as_posix() for p in paths if p.is_relative_to(PACKAGE)}


def called() -> dict[str, str]:
    """The module behind each rule that names the function which it calls."""
    files = [ROOT / "Snakefile", *ROOT.glob("workflow/rules/*.smk")]
    rules = "".join(path.read_text(encoding="utf-8") for path in files)
    found = re.findall(
        r'rule (?:stage as )?(\w+)(?: with)?:(?:(?!\n(?:use )?rule ).)*?call="([\w.]+):',
        rules,
        re.S,
    )
    return {rule: f"{module.replace('.', '/')}.py" for rule, module in found}


def test_what_python_imports_for_a_stage_is_behind_its_digest() -> None:
    """Python's own word on it, of what is imported at the top of modules."""
    module = called()["report"]
    lines = [f"import {module.removesuffix('.py').replace('/', '.')}"]
    show = "import sys; print(*(m.__file__ for m in sys.modules.values() if '__file__' in vars(m)))"
    done = python("\n".join([*lines, show]))
    loaded = {Path(f) for f in done.stdout.split() if f.startswith(tuple(map(str, IMPORTED)))}
    assert len(loaded) > 10
    assert {path for path in loaded if path.name != "__init__.py"} <= modules_of(SCRIPTS / module)


@pytest.mark.parametrize("script", [MEASURING, str(CHAPTERS / "streamed_dot/study_job.py")])
def test_nothing_is_measured_again_for_what_reads_the_data(script: str) -> None:
    later = ("analysis/", "figures/", "planning/", "report/", "chapters/")
    assert [name for name in names_of(script) if name.startswith(later)] == []


def test_figures_depend_on_no_device_and_imports_by_name_are_apart() -> None:
    drawn = modules_of(PACKAGE / "figures/heatmap.py")
    assert {PACKAGE / "figures/style.py", PACKAGE / "analysis/best.py"} <= drawn
    behind = names_of(called()["figure"]) | {path.relative_to(PACKAGE).as_posix() for path in drawn}
    assert [name for name in behind if name.startswith(("devices/", "measuring/"))] == []
    assert {PACKAGE / "devices/cuda/timing.py"}.isdisjoint(modules_of(SCRIPTS / MEASURING))
    module = PACKAGE / "devices/cuda/backend.py"
    assert PACKAGE / "devices/cuda/timing.py" in modules_of(module)
    assert module_digest("gpushmoo.devices.cuda.backend") == code_digest(module)
    with pytest.raises(ValueError, match="no module 'gpushmoo"):
        module_digest("gpushmoo.devices.absent")


def test_what_was_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = b'import a.b\nfrom ..c import d\nrun("gpushmoo.core.space")\n'
    kept = tmp_path / "read.json"

    def anew() -> digest.Code:
        digest._kept.cache_clear()
        return digest.read_code(source)

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(digest, "KEPT", kept)
    monkeypatch.setattr(digest, "_READ", {})
    code = anew()
    assert code.digest == python_digest(source).hex()
    assert {*map(tuple, code.imports)} == {(0, "a.b"), (2, "c.d"), (0, "gpushmoo.core.space")}
    digest.keep_read_code()
    with monkeypatch.context() as patched:
        patched.delattr(digest, "tree_digest")
        assert anew().digest == code.digest
    for damage in (b"", b"{", b'{"files": 1}', b"\xff\0"):
        kept.write_bytes(damage)
        assert anew().digest == code.digest
    digest._kept.cache_clear()
