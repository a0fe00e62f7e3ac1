"""The one place that touches Snakemake's workflow object while a Snakefile is read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .devices.base import NoDeviceError
from .flow import Flow


def load_flow(config: Mapping[str, Any], workflow: Any) -> Flow:
    """Check the configuration and have broken shards made again.

    Only the process that the user started asks a device or looks at shards; jobs that read the
    Snakefile again (on a cluster) do not. Raises ValueError with one sentence.
    """
    main = bool(workflow.is_main_process)
    try:
        flow = Flow(config, ask_device=main)
    except NoDeviceError as err:
        raise ValueError(f"backend: {err}") from err
    if main and workflow.dag_settings is not None:
        broken = flow.broken_shards()
        for path in broken:
            print(
                f"gpushmoo: '{path}' is not a whole Parquet file (truncated or foreign); "
                "it is not used but measured again.",
                file=sys.stderr,
            )
        # Forcing the files, rather than deleting them here, leaves a dry run without effect.
        forced = frozenset(workflow.dag_settings.forcerun) | frozenset(broken)
        workflow.dag_settings.forcerun = forced
    return flow
