"""Numbers of the command line: each option refuses what it cannot be, before anything is done."""

import math

import numpy as np
import pytest
from gpushmoo import ConfigError, sweep
from gpushmoo.interactive.shell import main
from gpushmoo.interactive.tables import COMMANDS
from gpushmoo.workloads.limits import Limit

KINDS = {
    "whole": ["-1", "1.5"],
    "count": ["-1", "0", "1.5"],
    "cores": ["-1", "0", "1.5"],
    "real": ["-1"],
    "positive": ["-1", "0"],
    "share": ["-5%", "100%", "1", "nan%"],
    "size": ["-1", "1.5"],
    "sizes": ["-1", "1.5"],
}
OPTIONS = [
    (command, option, kind)
    for command, about in COMMANDS["commands"].items()
    for option in {word.rstrip("?*+!") for word in " ".join(about["takes"]).split()}
    if (kind := COMMANDS["arguments"][option][0]) in KINDS
]


@pytest.mark.parametrize(("command", "option", "kind"), sorted(OPTIONS))
def test_what_is_no_such_number_is_one_sentence(
    command: str, option: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("nan", "inf", "-inf", "1e400", "x", "9" * 400, *KINDS[kind]):
        if value == "9" * 400 and kind in ("size", "sizes"):
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
