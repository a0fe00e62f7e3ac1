"""Numbers of the command line: each option refuses what it cannot be, before anything is done."""

import math
from typing import Any

import numpy as np
import pytest
from gpushmoo import ConfigError, sweep
from gpushmoo.interactive.commands import options
from gpushmoo.interactive.shell import build_parser, main
from gpushmoo.workloads.tolerances import Limit

# By the function that reads it: texts that it refuses.
KINDS = {
    options.whole: ["-1", "1.5"],
    options.count: ["-1", "0", "1.5"],
    options.cores: ["-1", "0", "1.5"],
    options.device: ["-1", "1.5"],
    options.real: ["-1"],
    options.positive: ["-1", "0"],
    options.share: ["-5%", "100%", "1", "nan%"],
    options.size: ["-1", "1.5"],
    options.sizes: ["-1", "1.5"],
}
OPTIONS = [
    (command, option.option_strings[0], option.type)
    for commands in build_parser()._actions
    for command, parser in (commands.choices or {}).items()
    for option in parser._actions
    if option.type in KINDS
]


def test_each_kind_of_number_is_an_option() -> None:
    assert {kind for _, _, kind in OPTIONS} == KINDS.keys()


@pytest.mark.parametrize(("command", "option", "kind"), OPTIONS)
def test_what_is_no_such_number_is_one_sentence(
    command: str, option: str, kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("nan", "inf", "-inf", "1e400", "x", "9" * 400, *KINDS[kind]):
        if value == "9" * 400 and kind in (options.size, options.sizes):
            continue
        assert main([command, f"{option}={value}"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"gpushmoo: argument {option}: '{value}' must be")
        assert said.count("\n") == 1


def test_from_python_as_well() -> None:
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigError, match=f"'budget' is {value}; it must be a finite number"):
            sweep("kernels/copy2d_coalesced", budget=value)
        for name in ("rtol", "atol"):
            with pytest.raises(ValueError, match=f"{name} is {value}; it must be a finite"):
                Limit(**{name: value})
    # An element may be free.
    Limit(atol=np.array([0.0, math.inf]))
