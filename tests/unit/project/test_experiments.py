"""Instruments name what the library has."""

import ast
import importlib
import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mutant_tests
import mutants
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from gpushmoo.interactive.arguments import loaded
from gpushmoo.interactive.shell import build_parser
from gpushmoo.registry import extra_folders


def test_what_instruments_import_from_the_library_is_there() -> None:
    missing = []
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpushmoo."):
                above, extra, *_ = [*node.module.split(".")[1:], ""]
                if above == "extras" and extra not in extra_folders():
                    continue
                module = importlib.import_module(str(node.module))
                names = [
                    a.name
                    for a in node.names
                    if not hasattr(module, a.name) and not find_spec(f"{node.module}.{a.name}")
                ]
                missing += [f"{path.name}: {node.module}.{name}" for name in names]
    assert missing == []


def test_the_command_that_is_timed_is_one() -> None:
    timed = runpy.run_path(str(ROOT / "experiments/benchmarks/fixed_cost.py"))["SHELL"]
    assert build_parser().parse_args(timed[3:]).sizes == [2048]


def test_the_seconds_of_several_devices_add_up() -> None:
    """Of a device: those of its shards, between them, and behind its last one."""
    bench = runpy.run_path(str(ROOT / "experiments/benchmarks/several_devices.py"))
    found = bench["of_device"]([(5.0, 8.0), (1.0, 4.0)], 10.0)
    assert (found["shards"], found["busy_s"]) == (2, 6.0)
    assert (found["between_s"], found["last_s"]) == (1.0, 2.0)
    for kernel, asked in bench["kernels"]([64, 128], 4).items():
        folder = loaded(ROOT / "kernels" / kernel)
        assert {*asked["dtypes"]} <= {*folder.workload.dtypes}
        assert {*asked["variants"]} <= {*folder.workload.variants}


def test_the_table_of_repeated_runs_counts_pairs(tmp_path: Path) -> None:
    """Two groups; the hot one moves by 3 % from run to run, its intervals are of 2 %."""
    bench = runpy.run_path(str(ROOT / "experiments/benchmarks/repeated_runs.py"))

    def run(hot_s: float) -> pd.DataFrame:
        medians = np.array([1.0, 1.0, hot_s, hot_s])
        columns = {"group": ["a", "a", "hot", "hot"], "median_s": medians}
        columns |= {"low": 0.98 * medians, "high": 1.02 * medians}
        return pd.DataFrame(columns | {"hot": [False, False, True, True]}, index=list("wxyz"))

    runs = [run(1.0), run(1.03), run(1.09)]
    found = bench["found_of"](runs, 1, 6, ["an alarm"], {})
    assert (found.cells, found.pairs, found.hot_cells) == (4, 3, 2)
    assert (found.disjoint, found.held, found.least_held) == (0.0, 1.0, 1.0)
    # 1.00 and 1.03 overlap, and neither holds the other; 1.09 lies apart from both.
    assert found.hot_disjoint == pytest.approx(2 / 3)
    assert (found.hot_held, found.hot_least_held) == (0.0, 0.0)
    assert bench["largest_change"](runs, run(2.0)) == pytest.approx(0.0)
    table = "\n".join(bench["lines"](found))
    assert "1 of 6" in table
    assert "66.67%" in table


def test_repeated_runs_are_alike_but_for_the_length_of_their_samples(tmp_path: Path) -> None:
    bench = runpy.run_path(str(ROOT / "experiments/benchmarks/repeated_runs.py"))
    config = ROOT / "experiments/benchmarks/repeated_runs.yaml"
    planned = bench["planned_runs"](config, "cuda", 4)
    # What measures reads the plan from a file.
    pairs = runpy.run_path(str(ROOT / "experiments/gpu/record_pairs.py"))
    pairs["write_plan"](tmp_path / "plan", planned)
    told = pairs["read_plan"](tmp_path / "plan")
    assert told == planned
    plans = {plan["run"]: plan for plan in told["plans"]}
    pair = ["usual", "planted"]
    assert [run for _, run in told["runs"]] == [*pair * 2, "half", "twice", *pair * 2]
    factors = {
        name: {shard[4].measure.launches_factor for shard in plan["shards"]}
        for name, plan in plans.items()
    }
    assert factors == {"usual": {1.0}, "half": {0.5}, "twice": {2.0}, "planted": {1}}
    kernels = {(shard[0], shard[1]) for shard in plans["usual"]["shards"]}
    copies = {kernel for kernel in kernels if kernel[0].startswith("copy_planted")}
    assert len({kernel for kernel, _ in kernels - copies}) == 5
    assert len(kernels - copies) == 10
    assert {plans[name]["built_as"] for name in ("half", "twice")} == {"usual"}
    # Planted ones hold the copies alone, of the same name and another text.
    assert {(shard[0], shard[1]) for shard in plans["planted"]["shards"]} == copies
    codes = [{shard[4].folder for shard in plans[n]["shards"]} for n in ("usual", "planted")]
    assert codes[1].isdisjoint(codes[0])


MUTATED = """
import numpy as np

MOST: int = 7

@dataclass(frozen=True)
class Found:
    share: float = 0.5

def chosen(rows, limit_s):
    log.info("all of them", True)
    if len(rows) > MOST or not limit_s < 2.5:
        raise ValueError("more than 8")
    pairs = zip(rows, rows, strict=True)
    said = "±" if MOST == 9 else ""
    return [a for a, b in pairs if a is b], np.ones(4).reshape(-1), said
"""


def test_a_mutant_changes_what_a_result_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "found.py").write_text(MUTATED)
    made = list(mutants.mutants_of(Path("found.py")))
    changes = {(m.old, m.new) for m in made}
    # A bound counts where numbers are whole; elsewhere the comparison is turned round.
    assert changes == {
        ("7", "8"),
        ("0.5", "0.76"),
        (">", ">="),
        ("or", "and"),
        ("<", ">="),
        ("2.5", "3.76"),
        ("is", "is not"),
        ("4", "5"),
        ("==", "!="),
        ("9", "10"),
    }
    for mutant in made:
        changed = mutant.applied(MUTATED)
        assert changed != MUTATED
        assert len(changed) == len(MUTATED) + len(mutant.new) - len(mutant.old)
        ast.parse(changed)
    # An edit elsewhere leaves the draw of a line as it was.
    (tmp_path / "found.py").write_text("# A remark.\n" + MUTATED)
    moved = list(mutants.mutants_of(Path("found.py")))
    assert [m.draw(7) for m in moved] == [m.draw(7) for m in made]
    assert [m.draw(8) for m in moved] != [m.draw(7) for m in made]
    assert [m.line for m in moved] == [m.line + 1 for m in made]


def test_the_nearest_tests_come_first() -> None:
    tests = mutant_tests.Tests()
    for module, named, nearest in (
        ("extras/judging/judge.py", "def _widening(", "test_judging"),
        ("workloads/user_code.py", "def work_fault(", "test_user_code"),
        ("model/machine.py", "MIN_RISE =", "test_machine_facts"),
        ("planning/start.py", "def limit_gpus(", "test_start"),
    ):
        path = mutant_tests.LIBRARY / module
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        line = next(i for i, text in enumerate(lines, start=1) if text.startswith(named))
        near = tests.near(path, line)
        assert nearest in [Path(file).stem for file in near.files[:2]], module
        assert near.names & {*named.removesuffix("(").split()}
        # The functions that use it are near, too.
        assert module != "model/machine.py" or {"_warp_launch", "machine_facts"} <= near.names


def test_a_test_that_fails_without_the_change_kills_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mutant is tried until its seconds of a processor are over."""
    copy: Any = object.__new__(mutant_tests.Copy)
    copy._passes, ran = {}, []

    def run(root: str, files: list[str], names: set[str], limit_s: float) -> Any:
        ran.append((root, files[0], limit_s))
        unfit = {test for test, passes in copy._passes.items() if not passes}
        fails = {"a": ["a::always"], "b": ["b::only_changed"]}.get(files[0].split("::")[0], [])
        failed = [t for t in fails if t not in unfit and (root == "changing" or "always" in t)]
        return mutant_tests.Outcome(failed[0] if failed else None, 1, 4.0)

    monkeypatch.setattr(copy, "_run", run, raising=False)
    monkeypatch.setattr(copy, "_write", lambda *_: None, raising=False)
    monkeypatch.setattr(mutant_tests, "TOGETHER", 1)
    copy._changing, copy._clean = "changing", "clean"
    found = copy.tried(mutant_tests.Near(["a", "b", "c"]), 60.0)
    assert (found.failed, found.passed) == ("b::only_changed", 3)
    assert copy._passes == {"a::always": False, "b::only_changed": True}
    # The time of a processor is over before the tests are.
    copy._passes = {}
    assert copy.tried(mutant_tests.Near(["c", "c", "c", "b"]), 10.0).failed is None
