"""All exceptions of the library are in one module, whose docstring shows their tree."""

from __future__ import annotations

import re
import traceback

import gpushmoo
import pytest
from gpushmoo.core import errors
from gpushmoo.core.paths import PACKAGE

NAMES = {name: getattr(errors, name) for name in errors.__all__}
FORMER = {name: kind for name, kind in NAMES.items() if name != kind.__name__}
LINE = re.compile(r"(?P<indent> +)(?P<name>\w+)(?: \((?P<beside>\w+)\))?")


def test_the_docstring_shows_the_tree() -> None:
    shown: dict[str, list[str]] = {}
    above: list[str] = []
    for line in str(errors.__doc__).partition("::\n\n")[2].splitlines():
        found = LINE.fullmatch(line)
        assert found, line
        above = [*above[: len(found["indent"]) // 4 - 1], found["name"]]
        shown[found["name"]] = [*above[-2:-1], *filter(None, [found["beside"]])]
    assert shown.keys() == NAMES.keys() - FORMER.keys()
    for name, bases in shown.items():
        named = [b.__name__ for b in NAMES[name].__bases__ if b is not Exception]
        assert sorted(bases) == sorted(named), name


def test_no_other_module_defines_a_public_one() -> None:
    defined = re.compile(r"^class ([A-Z]\w*)\(.*(?:Error|Exception)\b.*\):", re.MULTILINE)
    for path in PACKAGE.rglob("*.py"):
        if path != PACKAGE / "core/errors.py":
            assert not defined.findall(path.read_text(encoding="utf-8")), path


def test_former_names_are_the_new_classes() -> None:
    assert list(FORMER) == ["LaunchRefusedError"]
    assert gpushmoo.LaunchRefusedError is gpushmoo.LaunchConfigError


def test_a_refusal_has_the_callers_line_and_its_cause_but_no_line_of_the_library() -> None:
    @errors.raises_at_caller
    def refuse(deep: int) -> None:
        """Raise after some calls, as the library does."""
        if deep:
            refuse.__wrapped__(deep - 1)
        raise errors.ConfigError("sizes: wrong.") from KeyError("cause")

    with pytest.raises(errors.ConfigError) as caught:
        refuse(5)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames] == [
        "test_a_refusal_has_the_callers_line_and_its_cause_but_no_line_of_the_library",
        "called",
    ]
    assert isinstance(caught.value.__cause__, KeyError)
    assert refuse.__doc__ == "Raise after some calls, as the library does."


def test_a_fault_of_the_library_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        errors.raises_at_caller(lambda: 1 / 0)()
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 3


def test_each_has_a_docstring() -> None:
    assert all(kind.__doc__ and kind.__doc__ != Exception.__doc__ for kind in NAMES.values())
