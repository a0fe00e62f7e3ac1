"""``python -m gpushmoo.devices.probe BACKEND INDEX RUNTIME CACHE``: facts of a device as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from ..core.errors import NoDeviceError
from .select import DeviceChoice, open_device, to_json


def main(argv: list[str]) -> int:
    """Print the facts, or the one-sentence reason on stderr with exit status 1."""
    backend, index, runtime, cache = argv
    try:
        device = open_device(DeviceChoice(backend, int(index), runtime, Path(cache)))
    except NoDeviceError as err:
        print(err, file=sys.stderr)
        return 1
    print(to_json(device.info))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
