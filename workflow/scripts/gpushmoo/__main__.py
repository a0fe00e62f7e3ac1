"""The command ``gpushmoo``, also as ``python -m gpushmoo``."""

import sys

from .measuring.starting import start_early


def main() -> int:
    """Do what the command line says."""
    if sys.argv[1:2] == ["sweep"]:
        # Before the imports, which take as long as those of a measuring process.
        start_early("gpushmoo.measuring.worker")
    try:
        from .interactive.shell import main as shell
    except KeyboardInterrupt:
        # The imports take seconds on a busy machine. The shell's own status for Ctrl-C.
        print("gpushmoo: stopped.", file=sys.stderr)
        return 3
    return shell()


if __name__ == "__main__":
    sys.exit(main())
