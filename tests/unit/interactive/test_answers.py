"""What every command prints for programs: one object, as its schema says, also of an error."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from begun import AXES, DTYPE, KERNEL, finish
from begun import run as run  # a fixture
from cells import Machine
from conftest import environment
from fakes import INFO
from gpushmoo import open_run
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.errors import DeviceLostError
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.interactive import answers, measure, text_tables
from gpushmoo.interactive.opened_run import Run
from gpushmoo.interactive.shell import build_parser, main
from histories import made, standing_for
from synthetic import write_shard
from test_ab import judged_as
from test_checkouts import write
from test_predict import COPY
from tuners import TIE, cache, written

LAUNCHES = f"predict {COPY} --dtype float --size 64 --axes block_y=2"
# Stands for Python with Snakemake: says where the run lies, writes to it and prints.
SNAKEMAKE = """
import os, pathlib, sys

run = pathlib.Path("results/mine").resolve()
(run / "report.pdf").touch()
pathlib.Path(os.environ["GPUSHMOO_RUN_FOLDER"]).write_text(str(run))
print("1 of 1 steps (100%) done", *sys.argv[1:])
sys.exit(7)
"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shards")
    return {
        t: write_shard(folder / f"{t}.parquet", KERNEL, t, axes=AXES) for t in (DTYPE, "double")
    }


@pytest.fixture
def there(
    run: Path, shards: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with what the commands below name; nothing is measured."""
    monkeypatch.chdir(tmp_path)
    finish(run, shards, DTYPE)
    found = open_run(next(iter(shards.values())).parent)
    monkeypatch.setattr(found, "save", lambda out: Path(out), raising=False)

    def swept(*_: Any, **__: Any) -> Run:
        # As a kernel's Python, and a library, may do.
        print("printed")
        os.write(1, b"written")
        return found

    monkeypatch.setattr(measure, "sweep", swept)
    monkeypatch.setattr("gpushmoo.interactive.tune.tune", swept)
    write(tmp_path, "same")
    monkeypatch.setattr("gpushmoo.interactive.ab.ab", lambda *_, **__: judged_as([1.05] * 4, 0.1))
    machine = Machine(1)
    runs = {name: machine.run(name, {"v0": slower}) for name, slower in (("a", 0.0), ("b", 0.1))}
    for module in ("compare", "false_alarms"):
        monkeypatch.setattr(f"gpushmoo.comparing.{module}.read_run", lambda place: runs[str(place)])
    standing_for(monkeypatch, {run.name: run for run in made(slower=0.05)})
    for name in ("x.json", "older.json"):
        written(tmp_path / name, cache(TIE))
    monkeypatch.setattr(text_tables, "BACKENDS", {"opencl": BACKENDS["opencl"]})
    monkeypatch.setattr(text_tables, "probe", answer)
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{SNAKEMAKE}", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


def answer(choice: DeviceChoice) -> Any:
    if choice.index:
        raise text_tables.NoDeviceError("There is none.")
    return INFO


@pytest.fixture
def told(
    there: None, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Exit status, the object of stdout as the command's own schema has it, and stderr."""

    def run_it(words: str) -> tuple[int, dict[str, Any], str]:
        status = main([*words.split(), "--json"])
        out, err = capfd.readouterr()
        found: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
        with pytest.raises(SystemExit, match="0"):
            main([words.split()[0], "--json-schema"])
        schema = json.loads(capfd.readouterr().out)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(found)
        assert found["status"] == status
        return status, found, err

    return run_it


def command_names() -> set[str]:
    """The commands that there are: that of an extra is there with its folder."""
    [commands] = (action for action in build_parser()._actions if action.choices)
    return set(commands.choices or ())


def of_commands(*cases: Any) -> list[Any]:
    """The cases whose command there is: that of an extra is there with its folder."""
    return [case for case in cases if case[0].split()[0] in command_names()]


@pytest.mark.parametrize(
    ("words", "lengths"),
    of_commands(
        ("new mine", {"files": 4}),
        ("sweep any", {"rows": 8}),
        ("sweep any --out kept", {"rows": 8, "folder": 4}),
        ("tune x.cl x --size 8 --arguments x=empty(n,float32) --axes b=1", {"rows": 8}),
        ("ab kernels/same", {"rows": 4, "groups": 1}),
        ("ab . . --kernels same", {"rows": 0, "unchanged": 1, "alone": 2}),
        ("compare a b", {"rows": 6}),
        ("compare --noise-runs a b", {"rows": 6}),
        ("judge x.json", {"rows": 1, "groups": 0}),
        ("judge x.json --before older.json", {"rows": 1, "groups": 1}),
        ("history r1 r2 r3 r4 r5 r6 r7 r8 --out h", {"rows": 24, "folder": 1}),
        ("explore results/mine", {"files": 1}),
        ("export results/mine --out o --formats json", {"files": 1}),
        (f"{LAUNCHES} block_x=32", {"rows": 1}),
        (f"{LAUNCHES} block_x=32,2048", {"rows": 2}),
        ("watch results/mine", {"rows": 2, "statuses": 2}),
        ("list kernels", {}),
        ("list devices", {"rows": len(BACKENDS["opencl"].runtimes)}),
    ),
)
def test_a_command_prints_by_its_schema(words: str, lengths: dict[str, int], told: Any) -> None:
    status, found, _ = told(words)
    assert status == 0
    assert found["schema"] == f"gpushmoo/{words.split()[0]}/2"
    assert {key: len(found[key]) for key in lengths} == lengths


def test_every_command_is_tried() -> None:
    [mark] = (m for m in test_a_command_prints_by_its_schema.pytestmark)
    tried = {words.split()[0] for words, _ in mark.args[1]}
    assert tried | {"run"} == command_names()


def test_of_a_run_snakemakes_own_words_go_to_stderr_and_its_status_is_kept(told: Any) -> None:
    status, found, err = told("run --cores 3")
    assert status == 7
    assert "1 of 1 steps (100%) done" in err
    assert err.endswith("--cores 3\n")
    folder = Path("results/mine").resolve()
    assert found["folder"] == str(folder)
    assert str(folder / "report.pdf") in found["files"]
    assert found["statuses"] == {"ok": 18, "too_many_threads": 6}


@pytest.mark.parametrize(
    ("words", "raised", "status", "sentence"),
    of_commands(
        ("sweep any", DeviceLostError("It is gone."), 3, "It is gone."),
        ("sweep any", KeyboardInterrupt(), 3, "stopped; only `run` keeps"),
        ("sweep any", ZeroDivisionError("of our own"), 3, "ZeroDivisionError: of our own"),
        (
            "sweep any --colour red",
            None,
            2,
            "unrecognized arguments: --colour red; run with",
        ),
        ("sweep", None, 2, "the following arguments are required: KERNEL"),
        ("run nothing.yaml", None, 2, "'nothing.yaml' is not a file"),
        ("export nothing", None, 2, "'nothing' does not exist"),
        ("watch nothing", None, 2, "there is no run 'nothing'"),
    ),
)
def test_an_error_is_an_object_and_its_sentence_stays_on_stderr(
    words: str, raised: Any, status: int, sentence: str, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_it(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(measure, "sweep", run_it)
    ended, found, err = told(words)
    assert (ended, found["schema"]) == (status, "gpushmoo/error/2")
    assert found["error"].startswith(sentence)
    assert f"gpushmoo: {found['error']}\n" in err


def test_what_is_no_finite_number_or_missing_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "float": [1.0, np.nan, np.inf],
        "whole": pd.array([1, None, 3], "Int64"),
        "time": [datetime(2026, 1, 2, tzinfo=UTC), None, None],
        "list": [[1.0, np.nan], np.array([-np.inf]), []],
        "kind": pd.Categorical(["a", None, "b"]),
    }
    answers.print_json("any", {"rows": pd.DataFrame(values), "alone": np.float64("nan")})
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["alone"] is None
    assert [[*row.values()] for row in found["rows"]] == [
        [1.0, 1, "2026-01-02T00:00:00+00:00", [1.0, None], "a"],
        [None, None, None, [None], None],
        [None, 3, None, [], "b"],
    ]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gpushmoo", "list", "kernels"]
    with open(writing, "wb") as table:
        done = subprocess.run(
            command, stdout=table, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")
