"""``python -m gpushmoo``: sweeps a kernel, shows cells, or writes a new kernel, from the shell."""

import sys

from .interactive.shell import main

if __name__ == "__main__":
    sys.exit(main())
