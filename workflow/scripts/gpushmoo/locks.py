"""One measurement per device at a time, across processes and users of a host."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from filelock import FileLock


def device_lock(uuid: str) -> FileLock:
    """The lock of the device `uuid`; the kernel frees it when its holder dies.

    Lock files lie in GPUSHMOO_LOCK_DIR or the system's temporary folder, so that all runs on a
    host meet at the same file.
    """
    folder = Path(os.environ.get("GPUSHMOO_LOCK_DIR", tempfile.gettempdir()))
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", uuid)
    return FileLock(folder / f"gpushmoo-{name}.lock", mode=0o666)
