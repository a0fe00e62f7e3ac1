"""What Snakemake would answer with a traceback is refused before it, in one sentence."""

from pathlib import Path

import pytest
from conftest import ROOT, python
from gpushmoo.core.errors import UnreadableError
from gpushmoo.core.readable import read_mapping, refuse_braces, refuse_configfiles, typed

DEEP = b"only: " + b"[" * 3000 + b"]" * 3000
DIGITS = b"seed: " + b"9" * 5000
LATIN = b"# in English\nrun: Gr\xf6\xdfe\n"


@pytest.mark.parametrize("path", ["/a{sweep}/b", "a{0}", "a{b", "a}b", "{}"])
def test_a_path_with_braces_is_refused(path: str) -> None:
    with pytest.raises(UnreadableError, match="Snakemake takes for wildcards; rename it"):
        refuse_braces(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LATIN, ", line 2: not UTF-8; save it as that."),
        (DIGITS, ", line 1: a number of too many digits, or a date that there is not."),
        (DEEP, " contains lists or mappings that are nested too deep."),
        (
            b"run: a\nseed: 1\nrun: b",
            ", line 3: the key 'run' is already in line 1; remove one.",
        ),
        (b"a:\n- {c: 1}\n- {b: 1,\n  'b': 2}", ", line 4: the key 'b' is already in line 3"),
        (b'{"a": 1,\n "a": 2}', ", line 2: the key 'a' is already in line 1"),
        (b"a: 1\nb: [2,\nc: 3\n", "flow sequence that begins in line 2, expected ',' or ']'"),
        (b"a: 1\n b: 2", ", line 2: not valid YAML: mapping values are not allowed here."),
        (b"a:\n\tb: 1", "', line 2: not valid YAML: found character '\\t' that cannot start any"),
        (b"a:\n\tb: 1", "; indent by spaces."),
        (b"a: 1\nb: \x07", ", line 2: not valid YAML: special characters are not allowed."),
        (b"a: 1\n---\nb: 1", "not valid YAML: expected a single document"),
        (b"a: !x 1", ", line 1: not valid YAML: could not determine a constructor"),
        (b"", " is empty; write keys and values, such as 'run: mine'."),
        (b"- a\n", " must be a mapping of keys to values, such as 'run: mine' with a blank after"),
    ],
)
def test_what_is_no_configuration_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        read_mapping(path)
    text = str(caught.value)
    assert text.startswith(f"'{path}'")
    assert words in text
    assert text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\ne: *x", {"a", "d", "e"}),
        (b'{\n\t"run": "x"\n}', {"run"}),
        (b"1: a\n'1': b", {1, "1"}),
    ],
)
def test_merged_keys_and_json_are_fine(content: bytes, value: set[str], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert set(read_mapping(tmp_path / "x")) == value


def test_folders_and_every_named_file_are_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"cannot be read \(Is a directory\)\.$"):
        read_mapping(tmp_path)
    fine = tmp_path / "fine.yaml"
    fine.write_text("run: x")
    for option in ("--configfile", "--configfiles"):
        refuse_configfiles(["-n", option, str(fine), str(fine), "--config", "run=y"])
        with pytest.raises(UnreadableError, match=r"^'nowhere\.yaml' does not exist\.$"):
            refuse_configfiles(["--cores", "2", option, str(fine), "nowhere.yaml", "-n"])


def test_a_locale_that_knows_no_more_than_ascii_changes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from gpushmoo.planning.flow import Flow\n"
        "from gpushmoo.planning.config import default_config\n"
        "from gpushmoo.storage.joblog import job_log\n"
        "raw = default_config()\n"
        "assert sys.flags.utf8_mode == 0 and open('Snakefile').encoding != 'utf-8'\n"
        "flow = Flow(raw, ask_device=False)\n"
        "for name in flow.config.sweeps:\n"
        "    flow.shared_code(type('', (), {'sweep': name}))\n"
        f"with job_log({str(tmp_path / 'x.log')!r}) as terminal:\n"
        f"    terminal.write({'16 × 4'!a})\n"
    )
    done = python(code, cwd=ROOT, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, "16 × 4")


def test_texts_of_a_command_line_become_what_yaml_has() -> None:
    # As Snakemake reads --config 'measure={repeats: 2, ...}'.
    given = {"repeats": "2", "strict": "true", "sizes": ["512", ["8", "16"]], "dataset": "null"}
    given |= {"share": "0.5", "big": "1e3", "name": "r2", "other": {"a": "-1"}, "on": "on"}
    assert typed(given) == {
        "repeats": 2,
        "strict": True,
        "sizes": [512, [8, 16]],
        "dataset": None,
        "share": 0.5,
        "big": 1000.0,
        "name": "r2",
        "other": {"a": -1},
        "on": "on",
    }
    kept = ["010x", "1.2.3", "", "2024-01-01", "9" * 5000, 7, True, None]
    assert typed(kept) == kept
