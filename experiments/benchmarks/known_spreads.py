"""Writes how far runs of the same thing lie apart on a device, for `comparing/known_spreads`.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/known_spreads.py RUN RUN ...

Each RUN is a run's folder or a folder of shards; all are of one and the same thing, best of several
hosts and days. Needs no device.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpushmoo.comparing import known
from gpushmoo.comparing.runs import read_run

if __name__ == "__main__":
    folder = Path(known.__file__).parent / known.FOLDER
    print(known.write_spreads([read_run(place) for place in sys.argv[1:]], folder))
