"""The one place that touches Snakemake's workflow object."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from snakemake.common.configfile import load_configfile
from snakemake.io import ancient
from snakemake.settings.types import Quietness

from ..core.backends import AUTO, BACKENDS
from ..core.errors import NoDeviceError
from ..devices.functions import functions_of
from ..devices.select import probe
from ..storage.wholefile import write_json
from .again import cells_ended_as, sentence
from .digest import code_digest
from .flow import Flow
from .products import damage, damage_of_shard

# Rules whose jobs run on the device.
ON_DEVICE = frozenset({"measure", "repeat", "timeline", "errors"})
_YAML_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


def load_flow(config: Mapping[str, Any], workflow: Any) -> Flow:
    """Check the configuration.

    Only the process that the user started asks a device; jobs that read the Snakefile again (on a
    cluster) do not. Raises ValueError with one sentence.
    """
    # `--config strict=true` arrives as a text.
    plain = {k: _YAML_WORDS.get(v, v) if isinstance(v, str) else v for k, v in config.items()}
    if _simulates_nothing(workflow.config_settings):
        plain["simulate"] = {}
    asks = plain.get("backend") == AUTO and plain.get("dataset") is None
    if asks and workflow.is_main_process and _on_cluster(workflow):
        named = " or ".join(f"backend={name}" for name in BACKENDS)
        raise ValueError(
            "backend: auto asks the host on which Snakemake starts, and the jobs run elsewhere; "
            f"name what the nodes have, as --config {named} does."
        )
    try:
        return Flow(plain, ask_device=bool(workflow.is_main_process))
    except NoDeviceError as err:
        raise ValueError(f"backend: {err}") from err


def _simulates_nothing(settings: Any) -> bool:
    """Whether the user's last word on simulated devices is an empty mapping.

    Merged into what stands before it, that would leave all devices in.
    """
    given = [*map(load_configfile, settings.configfiles), settings.config]
    return next((g["simulate"] for g in reversed(given) if "simulate" in g), None) == {}


def limit_gpus(flow: Flow, workflow: Any) -> None:
    """Let one measuring job more run at once on this host than there are devices that jobs claim.

    Snakemake ignores ``resources: gpu=1`` on the host itself unless the total is told; a total that
    the user gives (``--resources gpu=2``) stays. The lock lets one shard on a device; the job more
    has its process ready when a device gets free.
    """
    backend = flow.gpu_backend
    if backend is None or not workflow.is_main_process or _on_cluster(workflow):
        return
    if "gpu" not in workflow.global_resources:
        devices = functions_of(backend).count_devices() if flow.config.device == "all" else 1
        workflow.register_resource("gpu", devices + 1)


def tell_lost_jobs(workflow: Any) -> None:
    """Have Snakemake say on a cluster which job was lost and why.

    The default profile silences the rules, since measuring jobs say all that is worth reading. A
    job that the scheduler has ended says nothing here, and Snakemake's own word would be silenced.
    """
    quiet: set[Quietness] | None = workflow.output_settings.quiet
    if _on_cluster(workflow) and quiet is not None:
        quiet.discard(Quietness.RULES)


def _on_cluster(workflow: Any) -> bool:
    """Whether jobs run on other hosts.

    Which executor runs them is not known while the rules are read, and a total that is set later is
    not kept to. But only a cluster's has a number of nodes (``--jobs``).
    """
    return workflow.resource_settings.nodes is not None


def refuse_without_device(flow: Flow, workflow: Any) -> None:
    """Say once, before any job starts, that shards are to be measured on a device that is missing.

    Asked only when something is to be measured here: a report of finished shards needs no device.
    Where there seems to be one nothing is asked, which would take two seconds; should it not be
    usable, the measuring jobs say so. Raises SystemExit with one sentence.
    """
    backend = flow.gpu_backend
    if backend is None or not (workflow.is_main_process and workflow.local_exec):
        return
    if functions_of(backend).count_devices() > 0:
        return
    if any(job.rule.name in ON_DEVICE for job in workflow.dag.needrun_jobs()):
        try:
            probe(flow.choice)
        except NoDeviceError as err:
            raise SystemExit(f"gpushmoo: backend: {err}") from None


def refuse_unwritable(flow: Flow, workflow: Any) -> None:
    """Say once, before any job starts, that the results' folder cannot be written to.

    Raises SystemExit with one sentence.
    """
    if not workflow.is_main_process:
        return
    folder = next(p for p in (flow.results, *flow.results.parents) if p.exists())
    if not os.access(folder, os.W_OK):
        raise SystemExit(
            f"gpushmoo: '{folder}' cannot be written to (read-only, or another user's); nothing "
            "was started: make it writable, or choose another name by the key 'run'."
        )


def write_plan(flow: Flow, workflow: Any) -> None:
    """Leave word of what is now to be measured, for jobs that outlived an earlier run.

    Raises SystemExit with one sentence when it cannot be written.
    """
    if not workflow.is_main_process or flow.config.dataset is not None:
        return
    path = Path(flow.plan_file)
    try:
        write_json(path, flow.plan.as_plain())
    except OSError as err:
        raise SystemExit(f"gpushmoo: '{path}' could not be written ({err.strerror}).") from None


def shards_anew(flow: Flow, workflow: Any) -> Callable[[Any], list[str]]:
    """An input function for the measuring rules: names no file, has some shards made again.

    These are those with cells that the key `again` names; it is said on the terminal which and how
    many. It forces files as `remake_damaged` does.
    """

    @cache
    def asked_again() -> frozenset[str]:
        counts = cells_ended_as(flow.config.again, flow.shard_files)
        print(f"gpushmoo: {sentence(counts)}", file=sys.stderr)
        return frozenset(counts)

    def no_input(wildcards: Any) -> list[str]:
        path = flow.shard_file(wildcards)
        if flow.config.again and workflow.is_main_process and path in asked_again():
            workflow.dag.forcefiles.add(path)
        return []

    return no_input


def rerun_changed_scripts(workflow: Any) -> None:
    """Give every rule with a script the parameter ``code``, which has its jobs run again.

    It is the digest of the script and of all code that this imports. Taken of the rule, it can miss
    none; Snakemake itself knows but the script's time.
    """
    for rule in workflow.rules:
        if rule.script is not None:
            script = rule.basedir.join(rule.script).get_path_or_uri(secret_free=True)
            rule.set_params(code=code_digest(Path(script).resolve()))


def build_input(flow: Flow) -> Callable[[Any], str | list[str]]:
    """The input function of the measuring rules that names the build file.

    What changes a build file changes what is measured, so a new one measures anew. One that is
    only damaged is made again and, as an ancient() input, measures nothing. It may not always be
    ancient(): Snakemake then passes over the measuring jobs behind a build that runs again,
    whatever reason of their own they have.
    """
    is_damaged = cache(lambda path: damage(Path(path)) is not None)

    def build_file(wildcards: Any) -> str | list[str]:
        path = flow.build_file(wildcards)
        return ancient(path) if isinstance(path, str) and is_damaged(path) else path

    return build_file


def remake_damaged(workflow: Any) -> None:
    """Have every rule's damaged products made again; each is named once.

    Every rule gets one more input function, which names no file. Snakemake calls it for each job,
    for some more than once, while it builds its graph, which is the only time at which the set of
    forced files exists and can still be added to (its own ``--rerun-incomplete`` does the same).
    Forcing a file, rather than deleting it, leaves a dry run without effect. What lies in a storage
    is not looked at.
    """
    for rule in workflow.rules:
        rule.set_input(_forcing(workflow, rule))


def _forcing(workflow: Any, rule: Any) -> Callable[[Any], list[str]]:
    """The input function of a rule that has its damaged products made again."""
    measures = "shard" in rule.wildcard_names

    @cache
    def is_damaged(path: str) -> bool:
        fault = (damage_of_shard if measures else damage)(Path(path))
        if fault is not None:
            again = "measured" if measures else "made"
            print(f"gpushmoo: {fault} It is not used but {again} again.", file=sys.stderr)
        return fault is not None

    def no_input(wildcards: Any) -> list[str]:
        if workflow.is_main_process:
            outputs = (file.apply_wildcards(wildcards) for file in rule.output)
            paths = (str(file) for file in outputs if not file.is_storage)
            workflow.dag.forcefiles.update(path for path in paths if is_damaged(path))
        return []

    return no_input
