"""Digests of code: a change in meaning reruns a stage, anything else does not."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpushmoo import digest
from gpushmoo.digest import code_digest, file_digest, library_digest, modules_of

ORIGINAL = digest.PACKAGE


def forget() -> None:
    modules_of.cache_clear()
    code_digest.cache_clear()
    library_digest.cache_clear()
    digest._module.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library that the digests are taken of."""
    copy = tmp_path / ORIGINAL.name
    shutil.copytree(ORIGINAL, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(digest, "PACKAGE", copy)
    forget()
    yield copy
    forget()


def fresh(entry: str) -> str:
    forget()
    return code_digest(entry)


def closure(entry: str) -> set[str]:
    return {p.relative_to(digest.PACKAGE).as_posix() for p in modules_of(entry)}


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


MEASURED = ["measure.py", "timing/median.py", "timing/order.py", "devices/cuda.py", "space.py"]


@pytest.mark.parametrize("module", MEASURED)
def test_change_of_an_imported_module_changes_the_digest(package: Path, module: str) -> None:
    before = fresh("measure_job")
    append(package / module, "\nCHANGED = 1\n")
    assert fresh("measure_job") != before


@pytest.mark.parametrize("module", MEASURED)
def test_comments_and_layout_do_not_count(package: Path, module: str) -> None:
    before = fresh("measure_job")
    text = (package / module).read_text()
    relaid = ast.unparse(ast.parse(text)) + "\n\n\n# A remark.\n"
    assert relaid != text
    (package / module).write_text(relaid)
    assert fresh("measure_job") == before


def test_change_of_a_figure_or_the_report_never_measures_again(package: Path) -> None:
    before = {entry: fresh(entry) for entry in ("measure_job", "figures.heatmap")}
    append(package / "display.py", "\nCHANGED = 1\n")
    for folder in ("figures", "report", "model", "analysis"):
        for path in (package / folder).glob("*.py"):
            append(path, "\nCHANGED = 1\n")
    assert fresh("measure_job") == before["measure_job"]
    assert fresh("figures.heatmap") != before["figures.heatmap"]


def test_measuring_depends_on_devices_and_timing_but_not_on_what_reads_the_data() -> None:
    found = closure("measure_job")
    timing = {f"timing/{p.name}" for p in (ORIGINAL / "timing").glob("*.py")}
    expected = {"devices/cuda.py", "devices/opencl.py", "measure.py", "rows.py", "store.py"}
    assert expected | timing - {"timing/__init__.py"} <= found
    later = ("figures/", "report/", "model/", "analysis/")
    assert [name for name in found if name.startswith(later)] == []


def test_figures_depend_on_no_device() -> None:
    found = closure("figures.heatmap")
    assert {"figures/heatmap.py", "figures/style.py", "analysis/best.py"} <= found
    assert [name for name in found if name.startswith(("devices/", "measure"))] == []


@pytest.mark.parametrize(
    "line",
    [
        "from . import extra",
        "from .extra import VALUE",
        "import gpushmoo.extra",
        "from gpushmoo.extra import VALUE",
        "def late():\n    from .extra import VALUE",
    ],
)
def test_every_form_of_import_is_followed(package: Path, line: str) -> None:
    (package / "extra.py").write_text("VALUE = 1\n")
    append(package / "progress.py", f"\n{line}\n")
    before = fresh("progress")
    assert "extra.py" in closure("progress")
    (package / "extra.py").write_text("VALUE = 2\n")
    assert fresh("progress") != before


def test_digest_tells_which_module_holds_the_code(package: Path) -> None:
    (package / "one.py").write_text("VALUE = 1\n")
    (package / "two.py").write_text("VALUE = 1\n")
    assert fresh("one") != fresh("two")


def test_import_from_a_folder_above_is_followed(package: Path) -> None:
    assert {"devices/base.py", "dtypes.py", "workload.py"} <= closure("devices.cuda")


def test_circular_import_ends(package: Path) -> None:
    (package / "one.py").write_text("from . import two\n")
    (package / "two.py").write_text("from . import one\n")
    assert {"one.py", "two.py"} <= closure("one")


def test_missing_entry_is_an_error() -> None:
    with pytest.raises(ValueError, match="no module 'absent'"):
        modules_of("absent")


def test_file_digest_depends_on_names_and_contents_not_on_the_order(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    b.write_text("2")
    before = file_digest(a, b)
    assert file_digest(b, a) == before
    b.write_text("3")
    assert file_digest(a, b) != before
    b.write_text("2")
    assert file_digest(a, b.rename(tmp_path / "c")) != before


def test_library_behind_a_kernel_counts_and_other_modules_do_not(
    package: Path, tmp_path: Path
) -> None:
    workload = tmp_path / "workload.py"
    workload.write_text("from gpushmoo.dot_products import HostDot\n")
    before = library_digest(workload)
    append(package / "host_dot.py", "\nCHANGED = 1\n")
    forget()
    changed = library_digest(workload)
    assert changed != before
    append(package / "figures" / "dot.py", "\nCHANGED = 1\n")
    # The folder itself is digested as it stands.
    append(workload, "CHANGED = 1\n")
    forget()
    assert library_digest(workload) == changed


def test_how_a_configuration_is_checked_measures_nothing_again() -> None:
    assert {"job_params.py", "measure.py"} <= closure("measure_job")
    assert {"config.py", "plan.py", "config_sentences.py"}.isdisjoint(closure("measure_job"))
