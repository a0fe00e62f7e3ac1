"""Contain all code that reads and changes Snakemake's inner objects.

Snakemake has no public interface for the members of `Inside`. Each member is one use, with its
reason. tests/unit/planning/test_inside_snakemake.py runs the installed Snakemake for each of them,
and limits their number. pyproject.toml limits Snakemake's version.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.logging import logger
from snakemake.path_modifier import PathModifier
from snakemake.script import PythonScript
from snakemake.settings.types import DeploymentMethod, Quietness

from ..measuring import client
from ..stages import STAGE_ADDRESS, STAGES

# Snakemake's own words if no job is to run. Its events have no kind for it.
NOTHING_TO_DO: str = NOTHING_TO_BE_DONE_MSG


@dataclass(frozen=True)
class Job:
    """A job of this project's rules that Snakemake is going to run.

    Attributes
    ----------
    rule
        Name of the job's rule.
    script
        Path of the rule's script, empty for a rule without a script.
    gpus
        Number of GPUs that the job claims.
    outputs
        Paths of the job's outputs.
    wildcards
        Values of the rule's wildcards, by name.
    """

    rule: str
    script: str
    gpus: int
    outputs: tuple[str, ...]
    wildcards: Mapping[str, str]

    @property
    def is_python(self) -> bool:
        """Whether the job runs a Python script."""
        return self.script.endswith(".py")


# Names those of a job's products that are to be made again. It gets the script of the job's rule,
# the names of the rule's wildcards and the paths of the products.
Faulty = Callable[[str, Collection[str], list[str]], Iterable[str]]


class Inside:
    """Access to the inner objects of Snakemake's `workflow` that the rules need."""

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow
        # Is another one after another workflow has imported the rules.
        self._modifier = workflow.modifier

    @property
    def is_users_process(self) -> bool:
        """Whether the user started this process.

        Snakemake also reads the rules in the process of each job on another host. Publicly, the two
        differ only by Snakemake's own options on the command line.
        """
        return bool(self._workflow.is_main_process)

    @property
    def on_cluster(self) -> bool:
        """Whether jobs run on other hosts: only the executor of a cluster has a number of nodes.

        Rules have no public access to the executor, which a profile may name.
        """
        return self._workflow.resource_settings.nodes is not None

    @property
    def in_environments(self) -> bool:
        """Whether each job runs in a separate conda environment.

        Rules have no public access to the option, which a profile may set.
        """
        return DeploymentMethod.CONDA in self._workflow.deployment_settings.deployment_method

    @property
    def configuration(self) -> tuple[list[Path], Mapping[str, Any]] | None:
        """The configuration files in their order and the values of ``--config``, or None.

        It is None if a workflow that imports the rules passes the whole configuration. The public
        `config` is merged: it does not name the file of a key, which relative folders refer to.
        """
        if self._modifier.skip_configfile:
            return None
        settings = self._workflow.config_settings
        return [Path(path) for path in settings.configfiles], settings.config

    def take_prefix(self, folder: str) -> str:
        """Return `folder` with the prefix of all paths that an importing workflow sets.

        After this call, Snakemake adds no prefix. It would add the prefix to inputs and outputs,
        but not to parameters, which contain paths as well. Publicly, rules do not know the prefix.
        """
        prefixed: str = self._modifier.path_modifier.replace_prefix(folder)
        self._modifier.path_modifier = PathModifier(None, None, self._workflow)
        return prefixed

    def set_default_target(self, rule: str) -> None:
        """Make a rule of an included file the default target.

        Snakemake ignores the public ``default_target: True`` in an included file.
        """
        self._workflow.default_target = rule

    def limit(self, resource: str, total: int) -> None:
        """Let jobs claim at most this total of a resource, unless the user gave a total.

        A profile is the public place. The default profile does not know the configuration, and it
        overrides the profile of a cluster.
        """
        if resource not in self._workflow.global_resources:
            self._workflow.register_resource(resource, total)

    def quiet_about_rules(self) -> bool:
        """Return whether Snakemake must not print a line for each job. On a cluster it always does.

        The public ``quiet: rules`` of the default profile also hides which jobs failed. A job on
        this host prints its failure itself. A job that a cluster's scheduler ended cannot. The
        profile of a cluster cannot override the default profile.
        """
        quiet: set[Quietness] = self._workflow.output_settings.quiet or set()
        if self.on_cluster:
            quiet.discard(Quietness.RULES)
        return Quietness.RULES in quiet

    def filter_terminal(self, matters: Callable[[logging.LogRecord], bool]) -> None:
        """Print only log records for which `matters` returns True. The log file gets all of them.

        The public way is a plugin that replaces the logger. It would have to format all records
        itself.
        """
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(matters)

    def remake(self, faulty: Faulty) -> None:
        """Make Snakemake run the jobs again whose outputs `faulty` returns.

        Snakemake calls input functions while it builds its graph, the only time at which a file can
        be forced. So each rule gets an input function that names no input. The public
        ``--forcerun`` is read before the rules, and turns the files that it names into targets.
        Deleting a file would change the files that a dry run leaves. Files in a remote storage are
        not checked.
        """

        def names_no_input(rule: Any) -> Callable[[Any], list[str]]:
            def ask(wildcards: Any) -> list[str]:
                if self.is_users_process:
                    outputs = (file.apply_wildcards(wildcards) for file in rule.output)
                    paths = [str(file) for file in outputs if not file.is_storage]
                    again = faulty(rule.script or "", rule.wildcard_names, paths)
                    self._workflow.dag.forcefiles.update(again)
                return []

            return ask

        for rule in self._modifier.rules:
            rule.set_input(names_no_input(rule))

    def planned_jobs(self) -> list[Job]:
        """Return the jobs of this project's rules that Snakemake is going to run.

        The public ``onstart:`` gets only the path of the log.
        """
        ours = self._modifier.rules
        return [
            Job(
                rule=job.rule.name,
                script=job.rule.script or "",
                gpus=job.resources.get("gpu", 0),
                outputs=tuple(str(file) for file in job.output),
                wildcards=job.wildcards_dict,
            )
            for job in self._workflow.dag.needrun_jobs()
            if job.rule in ours
        ]

    def start_jobs_when_ready(self) -> None:
        """Remove Snakemake's default limit on starts of jobs on this host, 100 a second.

        With this limit, each job that ends leaves a timer that wakes the scheduler every second,
        and the run does not end before the last of these timers. Every limit that a profile can
        publicly set has the same effect. A limit that the user sets is kept.
        """
        limit = self._workflow.scheduler.job_rate_limiter
        is_default = limit is not None and (limit.max_jobs, limit.timespan) == (100, 1)
        if is_default and not self.on_cluster:
            self._workflow.scheduler.job_rate_limiter = None

    def serve_scripts(self, rules: Collection[str]) -> None:
        """Make the run's server run the scripts of these rules, unless a job claims a GPU.

        Snakemake would start a Python process for each script. The imports of Snakemake take a
        third of a second, and those of the script more. Publicly, a rule cannot name the program
        that runs its script.

        Parameters
        ----------
        rules
            Names of the rules.
        """
        alone = PythonScript.execute_script

        def execute_script(script: PythonScript, fname: str, edit: bool = False) -> None:
            if script.rulename not in rules or script.resources.get("gpu", 0):
                alone(script, fname, edit)
                return
            script._execute_cmd(
                "exec {python:q} -I -S {client:q} {module} {address} <<<{path:q}",
                python=sys.executable,
                client=client.__file__,
                module=STAGES,
                address=STAGE_ADDRESS,
                path=os.path.abspath(fname),
            )

        PythonScript.execute_script = execute_script
