"""The build file: what the compiler made of one kernel and dtype, for the jobs that measure it.

JSON with a sum of itself (see `storage.wholefile`). Code that several versions share stands in it
once, in Base64, under its SHA-256 sum.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import BuildError, TypedError, WorkloadError
from ..core.schema import Status
from ..storage.wholefile import read_json, write_json


@dataclass(frozen=True)
class VersionBuild:
    """One version of a kernel (`space.Version`), compiled for one kind of device.

    `log` holds the compiler's messages. `failure` is one sentence with the status `status` of the
    version's cells where they cannot be measured, else both are None. `code` is None for such a
    version, and where the runtime hands out no machine code that it takes back. `entries` tell of
    each kernel function what `sass.EntryCode` holds; None where no machine code was looked at.
    """

    compiler: str = ""
    options: str = ""
    log: str = ""
    status: Status | None = None
    failure: str | None = None
    code: bytes | None = None
    entries: list[dict[str, Any]] | None = None

    @property
    def error(self) -> TypedError | None:
        """The failure, as an error that gives the version's cells their status."""
        if self.failure is None:
            return None
        if self.status == Status.WORKLOAD_FAILED:
            return WorkloadError(self.failure)
        return BuildError(self.failure, self.log)


@dataclass(frozen=True)
class KernelBuild:
    """Builds of a kernel and dtype by target and name of the version.

    A target names the devices that run its code: an architecture (``sm_90``), or a device with its
    runtime. `kernel_digest` is that of the kernel folder the code was made from. `own_kernels` is
    the machine code, by target, of the kernels with which the backend looks at buffers.
    """

    kernel_digest: str
    targets: Mapping[str, Mapping[str, VersionBuild]]
    own_kernels: Mapping[str, bytes] = field(default_factory=dict)


def write_build(path: Path, build: KernelBuild) -> None:
    """Write the build file `path`, whole or not at all."""
    blobs: dict[str, str] = {}

    def kept(code: bytes | None) -> str | None:
        if code is None:
            return None
        name = hashlib.sha256(code).hexdigest()
        blobs[name] = b64encode(code).decode()
        return name

    targets = {
        target: {name: asdict(v) | {"code": kept(v.code)} for name, v in variants.items()}
        for target, variants in build.targets.items()
    }
    own = {target: kept(code) for target, code in build.own_kernels.items()}
    content = {"kernel_digest": build.kernel_digest, "builds": targets, "own_kernels": own}
    write_json(path, content | {"code": blobs})


def read_build(path: Path) -> KernelBuild:
    """The build in a file that `write_build` wrote. Raises DamagedFileError."""
    content = read_json(path)
    blobs = {name: b64decode(text) for name, text in content["code"].items()}

    def variant(values: dict[str, Any]) -> VersionBuild:
        status = values["status"] and Status(values["status"])
        return VersionBuild(**{**values, "status": status, "code": blobs.get(values["code"])})

    targets = {
        target: {name: variant(values) for name, values in variants.items()}
        for target, variants in content["builds"].items()
    }
    own = {target: blobs[name] for target, name in content["own_kernels"].items()}
    return KernelBuild(content["kernel_digest"], targets, own)
