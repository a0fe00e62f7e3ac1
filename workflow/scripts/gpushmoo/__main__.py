"""``python -m gpushmoo``: sweeps a kernel, or writes a new one, from the shell."""

import sys

from .interactive.shell import main

if __name__ == "__main__":
    sys.exit(main())
