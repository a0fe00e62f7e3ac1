"""Shards with cells that ended in a fault are measured again when that is asked, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from fakes import FOLDER, INFO, FakeDevice, Fault, cell_tag, make_cells, measure_cells
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.schema import FAULTS, Status
from gpushmoo.devices.build_file import KernelBuild, VersionBuild, write_build
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.planning.again import Remaking, cells_ended_as, sentence
from gpushmoo.planning.config import load_config
from gpushmoo.planning.flow import Flow
from gpushmoo.planning.inside_snakemake import Inside
from gpushmoo.storage.store import write_parquet

CELLS = make_cells()
AXES = ["threads", "chunks"]


def write_shard(path: Path, *kinds: str) -> str:
    """A shard whose first cells have these faults; its path."""
    faults = [
        Fault(cell_tag(cell), "run", nth, kind)
        for cell, kind in zip(CELLS, kinds, strict=False)
        # What is wrong once is wrong; what is slow is launched three times.
        for nth in (0, 1, 2)
    ]
    result = measure_cells(FakeDevice(faults=faults), CELLS).result
    write_parquet(cell_table(result, FOLDER.workload, INFO, AXES), path, {"axes": AXES})
    return str(path)


class Product(str):
    """An output of a rule whose only wildcard is the path."""

    is_storage = False

    def apply_wildcards(self, path: str) -> Product:
        return Product(path)


class Rule:
    """Has one output, whose only wildcard is the path."""

    def __init__(self, wildcard_names: set[str], script: str) -> None:
        self.wildcard_names, self.script, self.output = wildcard_names, script, [Product("")]

    def set_input(self, names_no_input: Callable[[str], list[str]]) -> None:
        self.names_no_input = names_no_input


def asking(rule: Rule, main: bool = True) -> SimpleNamespace:
    """A workflow object with one rule, in the process of the user or in a job's."""
    return SimpleNamespace(
        is_main_process=main,
        modifier=SimpleNamespace(rules=[rule]),
        dag=SimpleNamespace(forcefiles=set()),
    )


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    """Sound; with faults; with one, in a later repeat; damaged; and not there."""
    damaged = Path(write_shard(tmp_path / "d.parquet", "failed"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    return [
        write_shard(tmp_path / "a.parquet"),
        write_shard(tmp_path / "b.parquet", "slow", "wrong", "refused"),
        write_shard(tmp_path / "c.repeat-2.parquet", "slow"),
        str(damaged),
        str(tmp_path / "e.parquet"),
    ]


def test_faults_are_counted_by_shard(shards: list[str]) -> None:
    found = cells_ended_as(FAULTS, shards)
    assert found == {
        shards[1]: Counter({Status.TIMEOUT: 1, Status.WRONG_RESULT: 1}),
        shards[2]: Counter({Status.TIMEOUT: 1}),
    }
    assert sentence(found) == (
        "remeasure: 3 cells (2 timeout, 1 wrong_result) in 2 shards and their later repeats."
    )
    assert list(cells_ended_as({Status.WRONG_RESULT}, shards)) == [shards[1]]
    assert cells_ended_as({Status.DEVICE_LOST}, shards) == {}
    assert sentence({}) == "remeasure: no cell ended so; nothing is measured again."


@pytest.mark.parametrize(
    ("again", "main", "forced"),
    [
        (FAULTS, True, [1, 2]),
        (frozenset({Status.WRONG_RESULT}), True, [1]),
        (frozenset(), True, []),
        (FAULTS, False, []),
    ],
)
def test_exactly_the_shards_with_such_cells_are_forced(
    again: frozenset[Status],
    main: bool,
    forced: list[int],
    shards: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rule = Rule({"shard"}, "measure.sh")
    workflow = asking(rule, main)
    flow: Any = Flow.__new__(Flow)
    flow.config, flow.results = SimpleNamespace(remeasure=again, dataset=None), tmp_path
    flow.shard_files = [shards[i] for i in (0, 1, 2)]
    Inside(workflow).remake(Remaking(flow).faulty)
    # Snakemake asks more than once.
    assert [rule.names_no_input(path) for path in shards[:3] * 2] == [[]] * 6
    assert workflow.dag.forcefiles == {shards[i] for i in forced}
    said = capsys.readouterr().err
    # All is counted once.
    assert said.count("gpushmoo: remeasure: ") == (1 if main and again else 0)


@pytest.mark.parametrize(
    ("again", "forced"),
    [(FAULTS, ["failed"]), (frozenset({Status.TIMEOUT}), []), (frozenset(), [])],
)
def test_builds_that_failed_are_made_again(
    again: frozenset[Status], forced: list[str], tmp_path: Path
) -> None:
    """Else a compiler that crashed once would fail for as long as its sources stay."""
    failed = VersionBuild(status=Status.BUILD_FAILED, failure="the compiler's process crashed")
    for name, made in {"whole": VersionBuild(code=b"code"), "failed": failed}.items():
        write_build(tmp_path / f"{name}.json", KernelBuild("digest", {"target": {"plain": made}}))
    paths = {str(tmp_path / f"{name}.json"): name for name in ("whole", "failed", "missing")}
    flow: Any = SimpleNamespace(config=SimpleNamespace(remeasure=again), dataset=str(tmp_path))
    script = "../scripts/stages/build_kernel.py"
    assert (ROOT / "workflow/rules" / script).resolve().is_file()
    rule = Rule({"sweep"}, script)
    workflow = asking(rule)
    Inside(workflow).remake(Remaking(flow).faulty)
    assert [rule.names_no_input(path) for path in paths] == [[]] * 3
    assert [paths[path] for path in workflow.dag.forcefiles] == forced


@pytest.mark.parametrize(
    ("asked", "statuses"),
    [
        (None, frozenset()),
        ("failed", FAULTS),
        (["timeout", "throttled"], frozenset({Status.TIMEOUT, Status.THROTTLED})),
        (sorted(FAULTS), FAULTS),
    ],
)
def test_what_is_asked_again_measures_no_other_shard(
    asked: Any, statuses: frozenset[Status], raw_config: dict[str, Any]
) -> None:
    plain = Flow(raw_config, ask_device=False)
    flow = Flow(raw_config | {"remeasure": asked}, ask_device=False)
    assert flow.config.remeasure == statuses
    assert flow.shard_files == plain.shard_files
    wildcards = SimpleNamespace(sweep="copy2d_coalesced", dtype="float", shard="0000-of-0001")
    assert flow.job(wildcards) == plain.job(wildcards)


@pytest.mark.parametrize("asked", ["ok", "timeout", ["ok"], ["out_of_resources"], [], True])
def test_what_is_no_fault_is_refused(asked: Any, raw_config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^Config key 'remeasure"):
        load_config(raw_config | {"remeasure": asked}, ROOT)
    recorded = {"dataset": "reports/reference/nvidia-h200", "remeasure": "failed"}
    with pytest.raises(ConfigError, match=r"^remeasure: .* recorded dataset"):
        load_config(raw_config | recorded, ROOT)
