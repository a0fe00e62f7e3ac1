"""A user's kernel is one new folder; what is wrong with it ends in rows, not in a dead run."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pypdfium2
import pytest
from conftest import OPENCL_WORDS, USER_CUDA, USER_OPENCL, WORKLOAD_TEMPLATE
from gpushmoo.storage.dataset import read_cells
from projects import TINY, Outcome, Project, print_of

pytest_plugins = ("workflow_fixtures",)


VIEWS = """
from gpushmoo.workloads.contract import View

class LaunchTime(View):
    each = ("dtype",)

    def section(self):
        return "Times of launches"

    def draw(self, data, svg):
        import matplotlib.pyplot as plt
        from gpushmoo.figures.style import save

        ok = data.cells[data.cells["status"] == "ok"]
        figure, ax = plt.subplots()
        ax.plot(ok["block_x"], 1e6 * ok["median_s"], "o")
        ax.set_xlabel("block_x (threads)")
        ax.set_ylabel("time (µs)")
        words = f"Times of {len(ok)} cells."
        save(figure, svg, f"{data.kernel}: a title of its own", words, finding=f"Found: {words}")

class Broken(View):
    def draw(self, data, svg):
        data.cells["no such column"]

class Mine(CopyWorkload):
"""


PAST = """
%(kernel)s void copy_past(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s
    if (i < n) dst[i] = dst[i + n] = src[i]; }
"""
# Each kernel's variant, and what it does at the beginning of a method.
# Of each kernel its variant, what it does at the beginning of a method, how its cells end, what
# the last of its faults says.
BROKEN: dict[str, tuple[str, tuple[str, str] | None, list[str], str]] = {
    "unbuilt": (
        "broken",
        None,
        ["build_failed"] * 2,
        r"^kernel.cl does not compile: kernel.cl:\d+: error: .*this",
    ),
    "strays": ("past", None, ["wrong_result"] * 2, "^wrote 4096 words past the end of 'dst'$"),
    "raises": (
        "good",
        ("reference(self, inputs)", "return inputs['source']"),
        ["workload_failed"] * 2,
        r"^own/raises/workload.py:\d+: KeyError: 'source'$",
    ),
    "some": (
        "good",
        ("proof(self, cell)", "return self.launch(cell) if cell['block_x'] == 32 else 1"),
        ["ok", "workload_failed"],
        r"^own/some/workload.py: proof returns 1 \(int\), not a Launch$",
    ),
}


CHAPTER = "notes"
CHAPTER_FILES = {
    "chapter.py": """
from gpushmoo.chapters import Chapter, ChapterPlan
from gpushmoo.core.keys import Section

class Options(Section):
    word: str = ""

class Notes(Chapter):
    document = "Notes on a kernel"
    options = Options
    kernels = frozenset({"mine"})

    def plan(self, options, run):
        return ChapterPlan(figures=("tally-mine",), params={"word": options["word"]})

CHAPTER = Notes()
""",
    "pages.py": """
from gpushmoo.report.pages import Page, figures_of

def page(measured):
    cells = measured.cells[measured.cells["kernel"] == "mine"]
    facts = {**measured.params, "figures": figures_of(measured, "tally")}
    return Page(facts, [f"Noted: {len(cells)} cells."])
""",
    "pages.typ": """
#let pages(d, kit) = [
  = Notes on a kernel: #d.word
  #for figure in d.figures { (kit.plot)(figure) }
]
""",
    "drawing.py": """
import matplotlib.pyplot as plt
from gpushmoo.figures.style import apply_style, save

def tally(statuses, svg):
    apply_style()
    figure, ax = plt.subplots()
    counts = statuses.value_counts()
    ax.bar(list(counts.index), list(counts))
    save(figure, svg, "Cells by status", "How the cells ended.")
""",
    "rules.smk": """
rule tally:
    input:
        flow.dataset,
    output:
        svg=flow.path("figures", "tally-mine.svg"),
        note=flow.path("figures", "tally-mine.json"),
    log:
        flow.path("logs", "tally.log"),
    localrule: True
    params:
        code=code_of("figures", flow.chapter_folder("notes")),
    script:
        "tally.py"
""",
    # What a rule runs imports its chapter, wherever that lies.
    "tally.py": """
from pathlib import Path
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.joblog import job_log
from notes.drawing import tally

with job_log(snakemake.log[0]):
    cells = read_cells(Path(snakemake.input[0]), {"kernel": "mine"})
    tally(cells["status"], Path(snakemake.output.svg))
""",
}
# Rules of a run of which no chapter speaks, measured once on OpenCL.
GENERIC = {
    "aggregate",
    "all",
    "best",
    "build_kernel",
    "peak",
    "explorer",
    "figure",
    "measure",
    "report",
    "verdict",
}


def write_broken(folder: Path) -> None:
    for name, (variant, method, *_) in BROKEN.items():
        kernel = folder / name
        kernel.mkdir(parents=True)
        (kernel / "kernel.cl").write_text(USER_OPENCL + PAST % OPENCL_WORDS)
        text = WORKLOAD_TEMPLATE.format(name=name, variants=(variant,))
        own = "    def {}:\n        {}\n\n".format(*method) if method else ""
        (kernel / "workload.py").write_text(text.replace("    def launch", f"{own}    def launch"))


@dataclass(frozen=True)
class UserRun:
    """The finished project's run again, with one more kernel folder and chapter."""

    project: Project
    config: tuple[str, ...]
    outcome: Outcome
    built_in_cells_before: dict[str, tuple[int, bytes]] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)


@pytest.fixture(scope="module")
def user_run(
    copy_finished: Callable[..., Project], tmp_path_factory: pytest.TempPathFactory
) -> UserRun:
    folder = tmp_path_factory.mktemp("user")
    mine, chapter = folder / "my-kernels" / "mine", folder / "my-chapters" / CHAPTER
    mine.mkdir(parents=True)
    chapter.mkdir(parents=True)
    for name, text in CHAPTER_FILES.items():
        (chapter / name).write_text(text)
    (mine / "kernel.cu").write_text(USER_CUDA)
    (mine / "kernel.cl").write_text(USER_OPENCL)
    variants = ("good", "broken", "forgets")
    workload = WORKLOAD_TEMPLATE.format(name="mine", variants=variants)
    views = workload.replace('"threads"),)', '"threads"), LaunchTime(), Broken())')
    (mine / "workload.py").write_text(views.replace("\nclass Mine(CopyWorkload):\n", VIEWS))
    project = copy_finished(folder / "project")
    before = print_of(project.results / "cells")
    named = {
        "kernel_folders": [str(mine.parent)],
        "only": [*TINY["only"], "mine"],
        "kernels": {"mine": {}},
        "chapter_folders": [str(chapter.parent)],
        "chapters": {CHAPTER: {"word": "hello"}},
    }
    config = ("tiny.yaml", project.write_config("mine.yaml", named))
    outcome = project.snakemake(config=config)
    assert outcome.status == 0, outcome.text
    facts = json.loads((project.results / "report.json").read_text())
    return UserRun(project, config, outcome, before, facts)


def test_a_new_folder_is_swept_and_its_faults_are_never_the_best(user_run: UserRun) -> None:
    assert user_run.outcome.jobs["measure"] == 1
    results = user_run.project.results
    after = print_of(results / "cells")
    assert set(after) - set(user_run.built_in_cells_before) == {"mine/float/0000-of-0001.parquet"}
    assert after.items() >= user_run.built_in_cells_before.items()
    cells = read_cells(results / "dataset", {"kernel": "mine"})
    assert len(cells) == 9
    statuses = cells[cells["block_x"] <= 1024].groupby("variant")["status"].agg(set).to_dict()
    assert statuses == {"good": {"ok"}, "broken": {"build_failed"}, "forgets": {"wrong_result"}}
    wrong = cells[cells["status"] == "wrong_result"]
    assert (wrong["wrong_words"] == 1).all()
    assert wrong["bandwidth_gbs"].isna().all()
    best = pd.read_parquet(results / "summary/best.parquet")
    assert set(best.loc[best["kernel"] == "mine", "variant"]) == {"good"}
    assert "4 of 93 cells ended in a fault" in user_run.outcome.text
    assert "Traceback" not in user_run.outcome.text
    named = {(f["where"], f["status"], int(f["cells"])) for f in user_run.facts["faults"]}
    assert named == {
        ("mine, float, broken", "build_failed", 2),
        ("mine, float, forgets", "wrong_result", 2),
    }
    assert all(f["at"].count("block_x=") == 2 for f in user_run.facts["faults"])


def test_a_view_stands_in_the_report_and_one_that_raises_costs_itself(user_run: UserRun) -> None:
    sections = {s["title"]: s["figures"] for s in user_run.facts["sections"]}
    assert sections["Times of launches"] == [
        {
            "file": "view-mine-float-launchtime.svg",
            "title": "mine: a title of its own",
            "caption": "Times of 2 cells.",
        }
    ]
    findings = [f["sentence"] for f in user_run.facts["findings"]]
    assert "Found: Times of 2 cells." in findings
    assert "mine" in [kernel["name"] for kernel in user_run.facts["first_page"]["kernels"]]
    line = r"my-kernels/mine/workload\.py:\d+: KeyError: 'no such column'"
    name = "view-mine-broken-64x64-warm"
    assert re.search(f"gpushmoo: figure '{name}' is not drawn: {line}", user_run.outcome.text)
    (figure,) = sections["Further figures"]
    assert figure["title"] == "mine: view 'view-broken' is not drawn"
    assert re.match(line, figure["caption"])
    assert any(re.search(line, sentence) for sentence in findings)


def test_a_chapter_from_elsewhere_has_its_rule_its_figure_and_its_page(user_run: UserRun) -> None:
    assert user_run.outcome.jobs["tally"] == 1
    first, told = user_run.facts["chapters"]
    assert (first["name"], told["name"]) == ("tesla_c1060", CHAPTER)
    page = told["facts"]
    assert (page["word"], [f["file"] for f in page["figures"]]) == ("hello", ["tally-mine.svg"])
    assert told["findings"] == ["Noted: 9 cells."]
    document = pypdfium2.PdfDocument(user_run.project.results / "report.pdf")
    text = " ".join(document[i].get_textpage().get_text_range() for i in range(len(document)))
    assert "Notes on a kernel: hello" in " ".join(text.split())
    assert "Cells by status" in text


def test_a_run_without_chapters_has_only_its_own_rules(user_run: UserRun) -> None:
    chapters = {CHAPTER: None, "tesla_c1060": {"simulate": None}}
    alone = {"run": "alone", "chapters": chapters}
    config = (*user_run.config, user_run.project.write_config("alone.yaml", alone))
    assert set(user_run.project.plan(config=config)) == GENERIC


@pytest.mark.slow
def test_broken_kernels_are_rows_and_end_the_run_after_its_report(user_run: UserRun) -> None:
    project = user_run.project
    write_broken(project.root / "own")
    config = {
        "kernel_folders": ["own", str(project.root.parent / "my-kernels")],
        "only": [*TINY["only"], "mine", *BROKEN],
        "kernels": {name: {} for name in BROKEN},
    }
    (project.results / "report.pdf").unlink()
    files = (*user_run.config, project.write_config("broken.yaml", config))
    outcome = project.snakemake(config=files)
    assert outcome.status != 0
    assert outcome.jobs["measure"] == len(BROKEN)
    assert (project.results / "report.pdf").read_bytes().startswith(b"%PDF-")
    cells = read_cells(project.results / "dataset").sort_values("block_x")
    for name, (_, _, statuses, message) in BROKEN.items():
        mine = cells[cells["kernel"] == name]
        assert mine["status"].tolist() == [*statuses, "too_many_threads"]
        assert re.search(message, mine["message"].iloc[1])
    # The terminal names the first error with its log and every sweep that failed.
    own = [x for x in outcome.text.splitlines() if x.startswith("gpushmoo: ")]
    (build,) = (x for x in own if "unbuilt, " in x and ": error: " in x)
    log = "results/tiny/logs/build/unbuilt-float.log"
    assert build.endswith(f"(whole message: {log})")
    assert "this" in (project.root / log).read_text()
    assert any("11 of 105 cells ended in a fault" in line for line in own), own
    (failed,) = (line for line in own if "could be measured" in line)
    for name in (*BROKEN, "mine"):
        dead = f"No cell of the sweep '{name}' could be measured" in failed
        assert dead == (name in ("unbuilt", "strays", "raises"))
    assert "Traceback" not in outcome.text
    facts = json.loads((project.results / "report.json").read_text())
    named = {f["where"].split(",")[0]: f["status"] for f in facts["faults"]}
    assert named.items() >= {(name, told[2][1]) for name, told in BROKEN.items()}
    shown = {k["name"] for k in facts["first_page"]["kernels"]}
    assert "mine" in shown
    assert not shown & {"unbuilt", "raises"}
    findings = " ".join(f["sentence"] for f in facts["findings"])
    assert "cells computed wrong results" in findings
    assert "unbuilt, float, broken: kernel.cl does not compile" in findings
    assert "raises, float, good: own/raises/workload.py:" in findings
    # A strict run fails for its faults, too.
    strict = project.snakemake(config=(*files, project.write_config("x.yaml", {"strict": True})))
    assert strict.status != 0
    assert "11 of 105 cells ended in a fault" in strict.text
    assert set(strict.jobs) == {"verdict", "all"}


def test_a_kernel_that_ends_the_program_ends_the_run(user_run: UserRun) -> None:
    folder = user_run.project.root / "quitting/quits"
    folder.mkdir(parents=True)
    (folder / "workload.py").write_text("import sys\n\nsys.exit(0)\n")
    kernels = {"kernels": {"quits": {}}, "only": ["quits"], "kernel_folders": ["quitting"]}
    config = user_run.project.write_config("quits.yaml", {"run": "quits", **kernels})
    outcome = user_run.project.snakemake("-n", config=(config,))
    assert outcome.status == 1
    assert outcome.text.splitlines()[-1] == (
        "gpushmoo: Kernel 'quits': workload.py does not load (quitting/quits/workload.py:3: "
        "SystemExit: 0 (a workload must not end the program))."
    )
