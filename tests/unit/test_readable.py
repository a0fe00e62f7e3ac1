"""What Snakemake would answer with a traceback is refused before, in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from gpushmoo.readable import UnreadableError, refuse_braces, refuse_unreadable
from gpushmoo.simulations import SimulationError, read_simulation

DEEP = b"only: " + b"[" * 3000 + b"]" * 3000
DIGITS = b"seed: " + b"9" * 5000
LATIN = b"# in English\nrun: Gr\xf6\xdfe\n"


@pytest.mark.parametrize("path", ["/a{sweep}/b", "a{0}", "a{b", "a}b", "{}"])
def test_a_path_with_braces_is_refused(path: str) -> None:
    with pytest.raises(UnreadableError, match="Snakemake takes for wildcards; rename it"):
        refuse_braces(path)


@pytest.mark.parametrize("path", ["a b", "a'b", 'a"b', "äöü", "a%sb%", "a$HOME", "a*?[b]", "a\\b"])
def test_any_other_path_is_none_of_our_business(path: str) -> None:
    refuse_braces(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LATIN, "config.yaml', line 2: not UTF-8; save it as that."),
        (DIGITS, "config.yaml' holds a number of too many digits, or a date that there is not."),
        (b"run: 2026-13-45", "a date that there is not."),
        (DEEP, "config.yaml' holds lists or mappings nested too deep."),
    ],
)
def test_what_is_no_configuration_is_refused_naming_the_file(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        refuse_unreadable(path)
    assert str(caught.value).endswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"- a\n", b"a: [", b"\tx", b"run: x"])
def test_what_snakemake_answers_with_a_sentence_is_left_to_it(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    refuse_unreadable(path)


def test_a_folder_in_the_place_of_a_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"cannot be read \(Is a directory\)\.$"):
        refuse_unreadable(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LATIN, "mine.yaml', line 2: not UTF-8; save it as that"),
        (DIGITS, "mine.yaml' holds a number of too many digits, or a date that there is not"),
        (DEEP, "mine.yaml' holds lists or mappings nested too deep"),
        (b"a: [", "mine.yaml is not valid YAML: "),
        (b"- a", "mine.yaml must be a mapping of keys to values"),
    ],
)
def test_a_device_file_that_is_none_is_refused_in_one_sentence(
    content: bytes, words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "config/devices"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_bytes(content)
    with pytest.raises(SimulationError) as caught:
        read_simulation("mine", {"levels": ["bus"]}, tmp_path)
    assert str(caught.value).startswith("simulate.mine: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_locale_that_knows_no_more_than_ascii_changes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, yaml; from pathlib import Path; from gpushmoo.flow import Flow\n"
        "from gpushmoo.joblog import job_log\n"
        "raw = yaml.safe_load(Path('config/config.yaml').read_text(encoding='utf-8'))\n"
        "assert sys.flags.utf8_mode == 0 and open('Snakefile').encoding != 'utf-8'\n"
        "flow = Flow(raw, ask_device=False)\n"
        "for name in flow.config.sweeps:\n"
        "    flow.library_code(type('', (), {'sweep': name}))\n"
        f"with job_log({str(tmp_path / 'x.log')!r}) as terminal:\n"
        f"    terminal.write({'16 × 4'!a})\n"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **ascii_only, "PYTHONPATH": str(ROOT / "workflow/scripts")},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "16 × 4")
