"""A user's kernel is one new folder; what is wrong with it ends in rows, not in a dead run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pypdfium2
import pytest
from conftest import USER_CUDA, USER_OPENCL, WORKLOAD_TEMPLATE
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


CHAPTER = "notes"
CHAPTER_FILES = {
    "chapter.py": """
from gpushmoo.chapters.contract import Chapter, ChapterPlan

class Notes(Chapter):
    document = "Notes on a kernel"
    kernels = frozenset({"mine"})

    def plan(self, options, run):
        return ChapterPlan(figures=("tally-mine",), params={"word": options["word"]})

CHAPTER = Notes()
""",
    "options.schema.yaml": """
type: object
additionalProperties: false
properties:
  word: {description: A word., type: string}
""",
    "pages.py": """
from gpushmoo.report.chapter_pages import Page, figures_of

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
    script:
        "tally.py"
""",
    # What a rule runs imports its chapter, wherever that lies.
    "tally.py": """
from pathlib import Path
from gpushmoo.storage.dataset import read_cells
from notes.drawing import tally

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
    "ceiling",
    "explorer",
    "figure",
    "measure",
    "report",
    "verdict",
}


def write_chapter(folder: Path) -> Path:
    chapter = folder / "my-chapters" / CHAPTER
    chapter.mkdir(parents=True)
    for name, text in CHAPTER_FILES.items():
        (chapter / name).write_text(text)
    return chapter


@dataclass(frozen=True)
class UserRun:
    """The finished project's run again, with one more kernel folder."""

    project: Project
    config: tuple[str, ...]
    outcome: Outcome
    built_in_cells_before: dict[str, tuple[int, bytes]] = field(repr=False)

    @property
    def cells(self) -> pd.DataFrame:
        """The rows of the user's kernel."""
        cells = read_cells(self.project.results / "dataset")
        return cells[cells["kernel"] == "mine"]


@pytest.fixture(scope="module")
def user_run(
    copy_finished: Callable[..., Project], tmp_path_factory: pytest.TempPathFactory
) -> UserRun:
    folder = tmp_path_factory.mktemp("user")
    mine = folder / "my-kernels" / "mine"
    mine.mkdir(parents=True)
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
        "chapter_folders": [str(write_chapter(folder).parent)],
        "chapters": {CHAPTER: {"word": "hello"}},
    }
    config = ("tiny.yaml", project.write_config("mine.yaml", named))
    return UserRun(project, config, project.snakemake(config=config), before)


def test_a_new_folder_is_swept_and_nothing_else_is_measured(user_run: UserRun) -> None:
    assert user_run.outcome.status == 0, user_run.outcome.text
    assert user_run.outcome.jobs["measure"] == 1
    after = print_of(user_run.project.results / "cells")
    assert set(after) - set(user_run.built_in_cells_before) == {"mine/float/0000-of-0001.parquet"}
    assert after.items() >= user_run.built_in_cells_before.items()
    assert len(user_run.cells) == 9


def test_each_fault_of_a_variant_is_a_row_with_its_status(user_run: UserRun) -> None:
    within = user_run.cells[user_run.cells["block_x"] <= 1024]
    statuses = within.groupby("variant")["status"].agg(set).to_dict()
    assert statuses == {"good": {"ok"}, "broken": {"build_failed"}, "forgets": {"wrong_result"}}
    over = user_run.cells[user_run.cells["block_x"] > 1024]
    assert set(over["status"]) == {"too_many_threads"}


def test_a_wrong_result_is_counted_and_never_among_the_best(user_run: UserRun) -> None:
    wrong = user_run.cells[user_run.cells["status"] == "wrong_result"]
    assert (wrong["wrong_words"] == 1).all()
    assert wrong["bandwidth_gbs"].isna().all()
    best = pd.read_parquet(user_run.project.results / "summary/best.parquet")
    assert set(best.loc[best["kernel"] == "mine", "variant"]) == {"good"}


def test_the_compilers_message_is_in_the_log_of_the_build(user_run: UserRun) -> None:
    log = (user_run.project.results / "logs/build/mine-float.log").read_text()
    assert "variant broken" in log
    assert re.search(r"error.*\bthis\b", log)


def test_the_terminal_and_the_report_name_the_faults(user_run: UserRun) -> None:
    assert "4 of 93 cells ended in a fault" in user_run.outcome.text
    assert "Traceback" not in user_run.outcome.text
    facts = json.loads((user_run.project.results / "report.json").read_text())
    named = {(f["where"], f["status"]): int(f["cells"]) for f in facts["faults"]}
    assert named == {
        ("mine, float, broken", "build_failed"): 2,
        ("mine, float, forgets", "wrong_result"): 2,
    }
    assert all(f["at"].count("block_x=") == 2 for f in facts["faults"])


def test_a_view_of_its_own_stands_in_the_report_under_its_heading(user_run: UserRun) -> None:
    facts = json.loads((user_run.project.results / "report.json").read_text())
    sections = {s["title"]: s["figures"] for s in facts["sections"]}
    assert sections["Times of launches"] == [
        {
            "file": "view-mine-float-launchtime.svg",
            "title": "mine: a title of its own",
            "caption": "Times of 2 cells.",
        }
    ]
    assert "Found: Times of 2 cells." in [f["sentence"] for f in facts["findings"]]
    assert "mine" in [kernel["name"] for kernel in facts["first_page"]["kernels"]]


def test_a_view_that_raises_costs_its_own_figure(user_run: UserRun) -> None:
    line = r"my-kernels/mine/workload\.py:\d+: KeyError: 'no such column'"
    name = "view-mine-broken-64x64-warm"
    assert re.search(f"gpushmoo: figure '{name}' is not drawn: {line}", user_run.outcome.text)
    facts = json.loads((user_run.project.results / "report.json").read_text())
    (figure,) = next(s["figures"] for s in facts["sections"] if s["title"] == "Further figures")
    assert figure["title"] == "mine: view 'view-broken' is not drawn"
    assert re.match(line, figure["caption"])
    assert any(re.search(line, finding["sentence"]) for finding in facts["findings"])


def test_a_chapter_from_elsewhere_has_its_rule_its_figure_and_its_page(user_run: UserRun) -> None:
    assert user_run.outcome.jobs["tally"] == 1
    results = user_run.project.results
    facts = json.loads((results / "report.json").read_text())
    assert [c["name"] for c in facts["chapters"]] == ["tesla_c1060", CHAPTER]
    page = facts["chapters"][1]["facts"]
    assert (page["word"], [f["file"] for f in page["figures"]]) == ("hello", ["tally-mine.svg"])
    assert facts["chapters"][1]["findings"] == ["Noted: 9 cells."]
    document = pypdfium2.PdfDocument(results / "report.pdf")
    text = " ".join(document[i].get_textpage().get_text_range() for i in range(len(document)))
    assert "Notes on a kernel: hello" in " ".join(text.split())
    assert "Cells by status" in text


def test_a_kernel_alone_simulates_nothing_and_has_no_chapters_page(user_run: UserRun) -> None:
    alone = {"run": "alone", "only": ["mine"], "chapters": {CHAPTER: None}}
    config = (*user_run.config, user_run.project.write_config("alone.yaml", alone))
    assert set(user_run.project.plan(config=config)) == GENERIC


def test_nothing_is_simulated_where_no_device_is_named(user_run: UserRun) -> None:
    none = user_run.project.write_config(
        "none.yaml", {"run": "none", "chapters": {"tesla_c1060": {"simulate": None}}}
    )
    jobs = set(user_run.project.plan(config=(*user_run.config, none)))
    assert jobs == GENERIC | {"tally"}


def test_a_strict_run_fails_after_the_report_is_written(user_run: UserRun) -> None:
    report = user_run.project.results / "report.pdf"
    report.unlink()
    strict = user_run.project.write_config("strict.yaml", {"strict": True})
    outcome = user_run.project.snakemake(config=(*user_run.config, strict))
    assert outcome.status != 0
    assert "4 of 93 cells ended in a fault" in outcome.text
    assert "Traceback" not in outcome.text
    assert "measure" not in outcome.jobs
    assert report.read_bytes().startswith(b"%PDF-")
