"""What the code of a stage is, and what a change of it makes Snakemake do again."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from gpushmoo.core.paths import CHAPTERS, PACKAGE
from gpushmoo.core.python_digest import python_digest
from gpushmoo.planning import digest
from gpushmoo.planning.digest import (
    LAYERS,
    code_files,
    code_of,
    extra_code,
    file_digest,
    shared_digest,
)

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


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of a file in each layer, and a chapter beside it."""
    library = tmp_path / "gpushmoo"
    write(library / "__init__.py", "")
    for name in (name for layer in LAYERS for name in layer):
        write(library / name / "code.py", "VALUE = 1\n")
    (library / "chapters/code.py").rename(library / "chapters.py")
    (library / "chapters").rmdir()
    write(tmp_path / "chapter/page.py", "VALUE = 1\n")
    write(tmp_path / "chapter/tests/test_page.py", "VALUE = 1\n")
    monkeypatch.setattr(digest, "PACKAGE", library)
    return library


def code_changes(of: str, changed: Path, *others: Path) -> bool:
    """Whether the digest of package `of` is another after an edit of a file."""
    code_of.cache_clear()
    before = code_of(of, *others)
    write(changed, changed.read_text() + "# Edited.\n")
    code_of.cache_clear()
    return code_of(of, *others) != before


@pytest.mark.parametrize(
    ("of", "changed", "changes"),
    [
        ("measuring", "measuring/code.py", True),
        ("measuring", "devices/code.py", True),
        ("measuring", "core/code.py", True),
        ("measuring", "__init__.py", True),
        ("measuring", "analysis/code.py", False),
        ("measuring", "report/code.py", False),
        ("figures", "model/code.py", True),
        ("figures", "studies/code.py", False),
        ("figures", "chapters.py", False),
        ("report", "chapters.py", True),
        ("report", "planning/code.py", False),
    ],
)
def test_a_digest_is_of_the_package_and_the_layers_below_it(
    package: Path, of: str, changed: str, changes: bool
) -> None:
    assert code_changes(of, package / changed) is changes


def test_all_files_of_a_package_count_but_not_what_python_keeps(package: Path) -> None:
    for name in ("analysis/known.json", "analysis/page/code.js", "analysis/__pycache__/code.pyc"):
        write(package / name, "")
    assert code_changes("analysis", package / "analysis/known.json")
    assert code_changes("analysis", package / "analysis/page/code.js")
    assert not code_changes("analysis", package / "analysis/__pycache__/code.pyc")


def test_a_chapters_code_counts_without_its_tests(package: Path) -> None:
    chapter = package.parent / "chapter"
    assert code_changes("storage", chapter / "page.py", chapter)
    assert not code_changes("storage", chapter / "tests/test_page.py", chapter)
    write(chapter / "more/page.py", "VALUE = 1\n")
    for changed in ("page.py", "more/page.py"):
        pages = chapter / "page.py", chapter / "more/page.py"
        assert code_changes("storage", chapter / changed, *pages)


def test_the_layers_are_those_that_import_linter_checks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (c for c in settings["tool"]["importlinter"]["contracts"] if "layers" in c)
    checked = [set(layer.split(" | ")) for layer in contract["layers"]]
    assert [set(layer) for layer in reversed(LAYERS)] == checked


def test_every_module_of_the_library_is_in_a_layer() -> None:
    # A folder that a package has left may hold Python's cache.
    found = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    found |= {path.stem for path in PACKAGE.glob("*.py")}
    assert found - {"__init__", "__main__"} == {name for layer in LAYERS for name in layer}


def test_the_digest_of_shared_code_is_of_what_a_workload_imports(tmp_path: Path) -> None:
    """Also of what is beside a kernel outside of the project, wherever that is."""
    for place in ("one", "another"):
        write(tmp_path / place / "mine/workload.py", "from shared.sums import VALUE\n")
        write(tmp_path / place / "shared/sums.py", "import more\n")
        write(tmp_path / place / "more.py", "VALUE = 1\n")
    kernel = tmp_path / "one/mine"

    def shared() -> str:
        shared_digest.cache_clear()
        return shared_digest(kernel)

    before = shared()
    assert shared_digest(tmp_path / "another/mine") == before
    for same in ("mine/workload.py", "shared/sums.py"):
        path = tmp_path / "one" / same
        write(path, f'"""Of a kernel."""\n{path.read_text()}# Edited.\n')
        assert shared() == before
    write(tmp_path / "one/more.py", "VALUE = 2\n")
    assert shared() != before


def test_what_the_project_shares_counts_for_a_kernel_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "mine/workload.py", "")
    write(tmp_path / "other/workload.py", "from dot_products.workloads import Dot\n")
    assert shared_digest(tmp_path / "mine") != shared_digest(tmp_path / "other")


def test_a_digest_of_files_is_of_names_and_contents(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    b.write_text("2")
    before = file_digest(a, b)
    assert file_digest(b, a) == before
    b.write_text("3")
    assert file_digest(a, b) != before
    b.write_text("2")
    assert file_digest(a, b.rename(tmp_path / "c")) != before


RULES = re.compile(
    r"^ *rule (\w+):\n(?:(?!^ *(?:use )?rule ).*\n)*? *script:\n *\"(.+\.py)\"", re.MULTILINE
)
CODE = re.compile(r"code=code_of\((.*?)\),\n", re.DOTALL)
FILES = sorted([*ROOT.glob("workflow/**/*.smk"), *ROOT.glob("reports/chapters/*/rules.smk")])


def rules_with_scripts() -> dict[str, tuple[str, Path]]:
    """What each rule with a script in Python has as its code, and the script."""
    return {
        found[1]: (" ".join(CODE.findall(found[0])), (file.parent / found[2]).resolve())
        for file in FILES
        for found in RULES.finditer(file.read_text(encoding="utf-8"))
    }


def library_imports(script: Path) -> set[str]:
    """The library's files that a script, or a chapter's module behind it, imports at its top."""
    files, seen = set[str](), {script}
    waiting = [script]
    while waiting:
        file = waiting.pop()
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ImportFrom):
                continue
            name = node.module or ""
            if node.level and file.is_relative_to(PACKAGE):
                # Of an extra.
                above = file.relative_to(PACKAGE.parent).parts[: -node.level]
                name = ".".join([*above, *filter(None, [name])])
            if name.startswith("gpushmoo."):
                files.add(f"{name.removeprefix('gpushmoo.').replace('.', '/')}.py")
                own = PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
                if own.is_relative_to(PACKAGE / "extras") and own not in seen:
                    seen.add(own)
                    waiting.append(own)
                continue
            base = file.parents[node.level - 1] if node.level else CHAPTERS
            found = [base.joinpath(*name.split(".")).with_suffix(".py")] if name else []
            found += [base / f"{alias.name}.py" for alias in node.names if not name]
            new = {path for path in found if path.is_file()} - seen
            seen |= new
            waiting += new
    return files


def test_every_script_belongs_to_a_rule() -> None:
    folders = ["workflow/scripts/stages/*.py", "reports/chapters/*/scripts/*.py"]
    folders += ["workflow/scripts/gpushmoo/extras/*/scripts/*.py"]
    scripts = {path for folder in folders for path in ROOT.glob(folder)}
    assert {script for _, script in rules_with_scripts().values()} == scripts


@pytest.mark.parametrize("rule", sorted(rules_with_scripts()))
def test_a_rules_digest_is_of_its_script_and_of_all_that_this_imports(rule: str) -> None:
    code, script = rules_with_scripts()[rule]
    whole_folder = re.search(r'(chapter_folder|extra_code)\("\w+"\)$', code.strip())
    assert f'{script.name}"' in code or whole_folder
    package = code.strip().split('"')[1]
    asked = [re.findall(r'"(.+?)"', words) for words in re.findall(r"extra_code\(([^)]*)", code)]
    files = [*code_files(package), *(file for words in asked for file in extra_code(*words))]
    counted = {file.relative_to(PACKAGE).as_posix() for file in files}
    assert library_imports(script) <= counted
