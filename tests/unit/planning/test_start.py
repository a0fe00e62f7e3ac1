"""What the start of a run prints, limits, checks and starts, with Snakemake made up."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpushmoo.core.errors import NoDeviceError, UnreadableError
from gpushmoo.planning import inside_snakemake, start
from gpushmoo.planning.inside_snakemake import NOTHING_TO_DO, Inside
from gpushmoo.storage.wholefile import write_atomic
from snakemake.settings.types import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

VERDICT = "gpushmoo: the report is report.pdf."


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What a terminal, and a log file, get of records after `quiet_snakemake_output`."""

    def say(
        records: Sequence[dict[str, Any]],
        asked: Sequence[Path] = (),
        quiet: set[Quietness] | None = None,
        nodes: int | None = None,
        to_file: bool = False,
    ) -> list[str]:
        handler: logging.Handler = (
            logging.FileHandler(tmp_path / "log") if to_file else logging.StreamHandler()
        )
        workflow = SimpleNamespace(
            modifier=None,
            output_settings=SimpleNamespace(quiet={Quietness.RULES} if quiet is None else quiet),
            resource_settings=SimpleNamespace(nodes=nodes),
        )
        monkeypatch.setattr(inside_snakemake, "logger", SimpleNamespace(handlers=[handler]))
        flow: Any = SimpleNamespace(path=lambda *parts: str(tmp_path.joinpath(*parts)))
        start.quiet_snakemake_output(flow, Inside(workflow), {str(path) for path in asked})
        made = [logging.makeLogRecord(record) for record in records]
        said = [record.msg for record in made if handler.filter(record)]
        handler.close()
        return said

    return say


def test_a_run_with_nothing_to_do_ends_with_the_last_runs_lines(
    said: Callable[..., list[str]], tmp_path: Path
) -> None:
    nothing = {"msg": NOTHING_TO_DO}
    verdict = tmp_path / "summary/verdict.txt"
    assert said([nothing], [verdict]) == [NOTHING_TO_DO]
    verdict.parent.mkdir()
    write_atomic(verdict, f"{VERDICT}\n".encode())
    assert said([nothing], [verdict]) == [f"{NOTHING_TO_DO}\n{VERDICT}"]
    # Asked for something else, such as one figure.
    assert said([nothing], [tmp_path / "figure.pdf"]) == [NOTHING_TO_DO]
    assert said([{"msg": "other"}], [verdict]) == ["other"]


def test_a_terminal_gets_twenty_steps_and_no_job(said: Callable[..., list[str]]) -> None:
    def steps(total: int) -> list[dict[str, Any]]:
        numbers = range(1, total + 1)
        return [
            {"msg": str(n), "event": LogEvent.PROGRESS, "done": n, "total": total} for n in numbers
        ]

    assert said(steps(7)) == [str(n) for n in range(1, 8)]
    assert said(steps(40)) == [str(n) for n in range(2, 41, 2)]
    many = said(steps(1000))
    assert (len(many), many[-1]) == (20, "1000")
    of_jobs = [{"msg": "j", "event": e} for e in (LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED)]
    select, other = {"msg": "Select jobs to execute..."}, {"msg": "e", "event": LogEvent.JOB_ERROR}
    assert said([*of_jobs, select, other]) == ["e"]
    # All is in the log file, on a cluster, and where the user asked for it.
    every = [*steps(40), *of_jobs, select, other]
    assert len(said(every, to_file=True)) == len(every)
    assert len(said(every, quiet=set())) == len(every)
    quiet = {Quietness.RULES, Quietness.HOST}
    assert len(said(every, quiet=quiet, nodes=2)) == len(every)
    assert quiet == {Quietness.HOST}


def test_configuration_files_may_be_templates_and_name_no_key_twice(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    settings = SimpleNamespace(configfiles=[path], config={"seed": "3"})
    modifier = SimpleNamespace(skip_configfile=False)
    inside = Inside(SimpleNamespace(modifier=modifier, config_settings=settings))
    path.write_text("__use_yte__: true\nseed: ?1 + 1\n")
    assert start._given({}, inside) == [({"seed": 2}, tmp_path), ({"seed": 3}, Path.cwd())]
    path.write_text("seed: 1\nseed: 2\n")
    with pytest.raises(UnreadableError, match="seed"):
        start._given({}, inside)


def of_device(device: str | int) -> SimpleNamespace:
    """The part of a configuration that names a device."""
    return SimpleNamespace(settings=SimpleNamespace(device=device))


@pytest.mark.parametrize(
    ("backend", "given", "nodes", "main", "limit"),
    [
        ("cuda", {}, None, True, 6),
        ("cuda", {"gpu": 1}, None, True, 1),
        (None, {}, None, True, None),
        ("cuda", {}, 4, True, None),
        ("cuda", {}, None, False, None),
    ],
)
def test_two_jobs_for_each_gpu_of_this_host(
    backend: str | None,
    given: dict[str, int],
    nodes: int | None,
    main: bool,
    limit: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = SimpleNamespace(count_devices=lambda: 3)
    monkeypatch.setattr(start, "functions_of", lambda _: three)
    resources = dict(given)
    workflow = SimpleNamespace(
        modifier=None,
        is_main_process=main,
        resource_settings=SimpleNamespace(nodes=nodes),
        global_resources=resources,
        register_resource=resources.__setitem__,
    )
    flow: Any = SimpleNamespace(gpu_backend=backend, config=of_device("all"))
    start.limit_gpus(flow, Inside(workflow))
    assert resources.get("gpu") == limit


def test_one_device_that_is_named_is_measured_alone_and_none_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = [3]
    monkeypatch.setattr(
        start, "functions_of", lambda _: SimpleNamespace(count_devices=lambda: counted[0])
    )

    def absent(_: Any) -> None:
        raise NoDeviceError("No device answers.")

    monkeypatch.setattr(start, "probe", absent)
    flow: Any = SimpleNamespace(gpu_backend="cuda", config=of_device("all"), choice=None)
    assert start._devices(flow) == 3
    start.refuse_without_device(flow)
    counted[0] = 0
    assert start._devices(flow) == 1
    with pytest.raises(start.ConfigError, match="No device answers"):
        start.refuse_without_device(flow)
    flow.gpu_backend = None
    start.refuse_without_device(flow)
    counted[0], flow.gpu_backend, flow.config = 3, "cuda", of_device(1)
    assert start._devices(flow) == 1


def inside_of(names: Sequence[str], gpus: int, nodes: int | None = None) -> Inside:
    """A workflow that is to run a job of each of these rules."""
    jobs = [
        SimpleNamespace(
            rule=SimpleNamespace(name=name, script=None),
            resources={"gpu": gpus},
            output=[],
            wildcards_dict={},
        )
        for name in names
    ]
    return Inside(
        SimpleNamespace(
            modifier=SimpleNamespace(rules=[job.rule for job in jobs]),
            is_main_process=True,
            dag=SimpleNamespace(needrun_jobs=lambda: jobs),
            deployment_settings=SimpleNamespace(deployment_method=set()),
            resource_settings=SimpleNamespace(nodes=nodes),
            scheduler=SimpleNamespace(job_rate_limiter=None),
        )
    )


@pytest.mark.parametrize(
    ("gpus", "nodes", "refused"), [(1, None, True), (0, None, False), (1, 2, False)]
)
def test_a_missing_gpu_is_reported_once_before_the_jobs(
    gpus: int, nodes: int | None, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: Any) -> None:
        raise NoDeviceError("No device answers.")

    monkeypatch.setattr(start, "probe", absent)
    none = SimpleNamespace(count_devices=lambda: 0)
    monkeypatch.setattr(start, "functions_of", lambda _: none)
    flow: Any = SimpleNamespace(
        results=tmp_path,
        config=SimpleNamespace(earlier=None, chapters={}),
        measures=False,
        gpu_backend="cuda",
        choice=None,
    )
    inside = inside_of(["measure", "measure"], gpus, nodes)
    if not refused:
        start.start_run(flow, inside)
        return
    with pytest.raises(SystemExit, match="backend: No device answers"):
        start.start_run(flow, inside)
