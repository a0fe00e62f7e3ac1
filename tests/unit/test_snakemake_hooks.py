"""What Snakemake is made to say and to limit, with its workflow object made up."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpushmoo.planning import snakemake_hooks as hooks
from gpushmoo.storage.wholefile import write_summed
from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.settings.types import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

VERDICT = "gpushmoo: the report is report.pdf."


@pytest.fixture
def said(tmp_path: Path) -> Callable[..., list[str]]:
    """What a terminal, and a log file, get of records after `tell_what_matters`."""

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
        job = SimpleNamespace(output=list(asked))
        workflow = SimpleNamespace(
            output_settings=SimpleNamespace(quiet={Quietness.RULES} if quiet is None else quiet),
            resource_settings=SimpleNamespace(nodes=nodes),
            dag=SimpleNamespace(jobs=[job]),
            logger_manager=SimpleNamespace(logger=SimpleNamespace(handlers=[handler])),
        )
        flow: Any = SimpleNamespace(path=lambda *parts: str(tmp_path.joinpath(*parts)))
        hooks.tell_what_matters(flow, workflow)
        made = [logging.makeLogRecord(record) for record in records]
        said = [record.msg for record in made if handler.filter(record)]
        handler.close()
        return said

    return say


def test_a_run_with_nothing_to_do_ends_with_the_last_runs_lines(
    said: Callable[..., list[str]], tmp_path: Path
) -> None:
    nothing = {"msg": NOTHING_TO_BE_DONE_MSG}
    verdict = tmp_path / "summary/verdict.txt"
    assert said([nothing], [verdict]) == [NOTHING_TO_BE_DONE_MSG]
    verdict.parent.mkdir()
    write_summed(verdict, f"{VERDICT}\n".encode())
    assert said([nothing], [verdict]) == [f"{NOTHING_TO_BE_DONE_MSG}\n{VERDICT}"]
    # Asked for something else, such as one figure.
    assert said([nothing], [tmp_path / "figure.pdf"]) == [NOTHING_TO_BE_DONE_MSG]
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
    monkeypatch.setattr(hooks, "functions_of", lambda _: three)
    resources = dict(given)
    workflow = SimpleNamespace(
        is_main_process=main,
        check_envvars=True,
        resource_settings=SimpleNamespace(nodes=nodes),
        global_resources=resources,
        register_resource=resources.__setitem__,
    )
    flow: Any = SimpleNamespace(gpu_backend=backend, config={"device": "all"})
    hooks.limit_gpus(flow, workflow)
    assert resources.get("gpu") == limit


def test_one_device_that_is_named_is_measured_alone_and_none_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = [3]
    monkeypatch.setattr(
        hooks, "functions_of", lambda _: SimpleNamespace(count_devices=lambda: counted[0])
    )

    def absent(_: Any) -> None:
        raise hooks.NoDeviceError("No device answers.")

    monkeypatch.setattr(hooks, "probe", absent)
    flow: Any = SimpleNamespace(gpu_backend="cuda", config={"device": "all"}, choice=None)
    assert hooks._devices(flow) == 3
    hooks.refuse_without_device(flow)
    counted[0] = 0
    assert hooks._devices(flow) == 1
    with pytest.raises(hooks.ConfigError, match="No device answers"):
        hooks.refuse_without_device(flow)
    flow.gpu_backend = None
    hooks.refuse_without_device(flow)
    counted[0], flow.gpu_backend, flow.config = 3, "cuda", {"device": 1}
    assert hooks._devices(flow) == 1


@pytest.mark.parametrize(
    ("limit", "nodes", "stays"),
    [((100, 1), None, False), ((10, 1), None, True), ((100, 1), 3, True), (None, None, True)],
)
def test_snakemakes_own_limit_on_starts_is_lifted_on_this_host_alone(
    limit: tuple[int, int] | None, nodes: int | None, stays: bool
) -> None:
    own = limit and SimpleNamespace(max_jobs=limit[0], timespan=limit[1])
    scheduler = SimpleNamespace(job_rate_limiter=own)
    settings = SimpleNamespace(nodes=nodes)
    hooks.start_jobs_when_ready(SimpleNamespace(scheduler=scheduler, resource_settings=settings))
    assert (scheduler.job_rate_limiter is own) is stays


@pytest.mark.parametrize(
    ("earlier", "rules", "refused"),
    [
        ({"otava": "/absent/otava"}, ["report", "history"], True),
        ({"otava": "/absent/otava"}, ["report", "mine_history"], True),
        ({"otava": "/absent/otava"}, ["report", "figure"], False),
        (None, ["history"], False),
    ],
)
def test_change_points_need_their_program_only_where_they_are_asked_for(
    earlier: dict[str, str] | None, rules: list[str], refused: bool, tmp_path: Path
) -> None:
    jobs = [
        SimpleNamespace(
            rule=SimpleNamespace(name=name, script=None, wildcard_names=set()),
            resources={},
            output=[],
        )
        for name in rules
    ]
    flow: Any = SimpleNamespace(
        results=tmp_path,
        config=SimpleNamespace(earlier=earlier, chapters={}),
        measures=False,
        gpu_backend=None,
    )
    workflow = SimpleNamespace(
        local_exec=True,
        deployment_settings=SimpleNamespace(deployment_method=set()),
        resource_settings=SimpleNamespace(nodes=None),
        scheduler=SimpleNamespace(job_rate_limiter=None),
    )
    if not refused:
        hooks.start_run(flow, workflow, jobs)
        return
    with pytest.raises(SystemExit, match="otava"):
        hooks.start_run(flow, workflow, jobs)
