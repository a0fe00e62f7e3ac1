"""The command ``gpushmoo``, also as ``python -m gpushmoo``."""

import sys


def main() -> int:
    """Do what the command line says."""
    try:
        if sys.argv[1:2] in (["ab"], ["sweep"], ["tune"]):
            from .measuring.starting import PROGRAM, start_early

            # Before the imports, which take as long as those of a measuring process.
            start_early(PROGRAM)
        from .interactive.shell import main as shell
    except KeyboardInterrupt:
        # The imports take seconds on a busy machine. Sentence and status are the shell's own.
        if sys.argv[1:2] == ["run"]:
            print(
                "gpushmoo: stopped. Finished shards are kept, and the same command goes on.",
                file=sys.stderr,
            )
            return 130
        print("gpushmoo: stopped.", file=sys.stderr)
        return 3
    return shell()


if __name__ == "__main__":
    sys.exit(main())
