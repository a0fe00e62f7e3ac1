"""Snakemake in the process of ``gpushmoo run``: Ctrl-C and wrong options are one sentence each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from gpushmoo.__main__ import main as program
from gpushmoo.interactive import shell, snakemake_run

STOP = "import os, signal; os.kill(os.getpid(), signal.SIGINT)\n"
# Stand for Snakemake, which is interrupted ...
WHILE_IT_IMPORTS = STOP
WHILE_IT_READS_RULES = f"""
def parse_args(words):
    return None, None
def print_exception(error):
    pass
def args_to_api(arguments, parser):
    try:
        {STOP}
    except KeyboardInterrupt:
        raise SystemExit("stopped in its own words")
"""
WHILE_JOBS_RUN = WHILE_IT_READS_RULES.replace(
    'raise SystemExit("stopped in its own words")',
    "print('Terminating processes in its own words', file=__import__('sys').stderr); return False",
)


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpushmoo", "run", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("cli", [WHILE_IT_IMPORTS, WHILE_IT_READS_RULES, WHILE_JOBS_RUN])
def test_ctrl_c_is_one_sentence_and_a_status_of_its_own(cli: str, tmp_path: Path) -> None:
    (tmp_path / "snakemake").mkdir()
    (tmp_path / "snakemake/__init__.py").touch()
    (tmp_path / "snakemake/cli.py").write_text(cli)
    done = run(folder=tmp_path)
    assert done.returncode == 130
    assert done.stderr == f"gpushmoo: {snakemake_run.STOPPED_SENTENCE}\n"


def test_so_it_is_during_the_imports_of_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == shell.__name__:
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, shell.__name__)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["gpushmoo", "run"])
    assert program() == snakemake_run.STOPPED
    assert capsys.readouterr().err == f"gpushmoo: {snakemake_run.STOPPED_SENTENCE}\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--nosuch"], ["mine.yaml", "--nosuch", "3"]])
def test_an_option_that_snakemake_does_not_have_is_one_sentence(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").touch()
    done = run(*words, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--nosuch" in done.stderr
    assert "gpushmoo run --help" in done.stderr


def test_snakemakes_status_and_words_are_its_own_otherwise(tmp_path: Path) -> None:
    (tmp_path / "snakemake").mkdir()
    (tmp_path / "snakemake/__init__.py").touch()
    cli = WHILE_IT_READS_RULES.replace(STOP.rstrip(), "raise KeyboardInterrupt")
    (tmp_path / "snakemake/cli.py").write_text(cli)
    done = run(folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "stopped in its own words\n")
    assert os.listdir(tmp_path) == ["snakemake"]
