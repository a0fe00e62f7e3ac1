"""Where a shard's figures come from."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from .. import PROTOCOL_VERSION, __version__
from ..devices.base import DeviceInfo


def provenance(info: DeviceInfo, kernel_digest: str, builds: Mapping[str, str]) -> dict[str, Any]:
    """Facts stored with a shard: device, host, software, kernel digest, compiler options.

    `builds` maps a variant to the compiler options it was built with.
    """
    return {
        "gpushmoo": __version__,
        "protocol_version": PROTOCOL_VERSION,
        "device": {**asdict(info), "extra": dict(info.extra)},
        "host": {
            "name": socket.gethostname(),
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "kernel_digest": kernel_digest,
        "builds": dict(builds),
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
