"""Tutorial and guides as a reader follows them: files, commands, and what these print."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import warm
from conftest import ROOT, environment

PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
# A number, a name of a device, what is aligned: all that depends on the machine.
VARIES = re.compile(r"\d[\d.,]*")
# So does how many cells are tied, and the table of them below that sentence.
CONCLUSION = re.compile(
    r"any of the N: no difference shown|the fastest of N|N of N are statistically tied"
)
# The kernel that the guide to `tune` names without its text.
ADD = """
__kernel void add(__global float *c, __global const float *a, const int n)
{
    if (get_global_id(0) < n)
        c[get_global_id(0)] = 2 * a[get_global_id(0)];
}
"""


def block(language: str, page: str = PAGE) -> str:
    """The one block of the page in this language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)
    return text


def steps(page: str = PAGE) -> list[tuple[str, list[str]]]:
    """Every command of the page, with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for text in re.findall(r"^```console\n(.*?)^```$", page, re.M | re.S):
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def alike(lines: list[str]) -> list[str]:
    """Lines without what depends on the machine: numbers, the device's name, blanks, progress."""
    ended = (line for line in lines if " % of " not in line and ": compiling, " not in line)
    plain = (re.sub(r"warm, .*?: ", "warm, DEVICE: ", line) for line in ended)
    return [" ".join(VARIES.sub("N", line).split()) for line in plain]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "gpushmoo").symlink_to(ROOT)
    (folder / "kernels/turn").mkdir(parents=True)
    (folder / "kernels/turn/kernel.cl").write_text(block("c"))
    (folder / "kernels/turn/workload.py").write_text(block("python"))
    (folder / "turn.yaml").write_text(block("yaml"))
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    """The environment of a reader's shell in `folder`, whose commands are those of the project."""
    own = environment()
    warm.programs(folder / "bin")
    path = os.pathsep.join([str(folder / "bin"), own.get("PATH", "")])
    library = os.pathsep.join([str(ROOT / "workflow/scripts"), own.get("PYTHONPATH", "")])
    locks = {"GPUSHMOO_LOCK_DIR": str(folder / "locks")}
    return {**own, **locks, "PATH": path, "PYTHONPATH": library}


@pytest.mark.parametrize("page", ["quickstart-cuda", "tune", "snakemake"])
def test_guides_show_what_commands_print(page: str, tmp_path: Path) -> None:
    """A recorded run's lines are the same, and those of a sweep or a dry run but for numbers."""
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    (tmp_path / "gpushmoo").symlink_to(ROOT)
    # The quickstart is followed in the clone, and other guides beside it.
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(tmp_path / "bin")
    (tmp_path / "add.cl").write_text(ADD)
    if "```yaml" in text:
        (tmp_path / "rows.yaml").write_text(block("yaml", text))
    env = environment_of(tmp_path)
    for command, told in steps(text):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
        if "h200" in command:
            assert lines == told, command
            continue
        printed, expected = (concluded(side) for side in (lines, told))
        assert printed[: len(expected)] == expected, command


def concluded(lines: list[str]) -> list[str]:
    """Lines up to a conclusion or an ellipsis, without what depends on the machine."""
    kept = [line for line in alike(lines) if not line.startswith(("Config file", "Tuned of"))]
    ends = [i for i, line in enumerate(kept) if line == "..." or CONCLUSION.search(line)]
    return kept[: ends[0]] if ends else kept


def test_commands_print_what_the_page_says(folder: Path) -> None:
    """All of them in one test: each needs what those before it have made."""
    env = environment_of(folder)
    for command, told in steps():
        done = subprocess.run(
            command, shell=True, cwd=folder, env=env, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
        if "h200" in command:
            assert lines == told, command
            continue
        printed, expected = alike(lines), alike(told)
        if "..." in expected:
            expected = expected[: expected.index("...")]
        for place, line in enumerate(expected):
            if said := CONCLUSION.search(line):
                expected = [*expected[:place], line[: said.start()]]
                printed[place] = CONCLUSION.split(printed[place])[0]
        printed = printed[: len(expected)]
        assert printed == expected, command
    assert (folder / "results/turn/report.pdf").read_bytes().startswith(b"%PDF-")


def test_the_last_section_answers_the_questions_of_the_first() -> None:
    """With the values that the record's tables name."""
    lead, *_, answers = PAGE.split("\n## ")
    given = [" ".join(item.split()) for item in answers.split("\n* ")[1:]]
    questions = re.findall(r"[A-Z][^.?]*\?", " ".join(lead.split()))
    assert len(questions) == len(given) == 3
    for question, answer in zip(questions, given, strict=True):
        assert answer.startswith(f"**{question}** ")
    for answer, axis in zip(given, ("TILE", "PAD", "ROWS"), strict=True):
        [table] = re.findall(rf"(?m)^ {axis}  double  float\n((?: .*\n)+?)(?=[` ]*[A-Z`])", PAGE)
        rows = [[float(n) for n in line.split()] for line in table.splitlines()]
        for column, dtype in enumerate(("double", "float"), 1):
            best = max(rows, key=lambda row: row[column])
            gain = f"{100 * (best[column] / rows[0][column] - 1):.0f} %"
            assert f"{gain if axis == 'PAD' else int(best[0])} for {dtype}" in answer
