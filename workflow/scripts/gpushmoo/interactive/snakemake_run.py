"""Run Snakemake in this process, with one sentence for an unknown option and for Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from types import FrameType
from typing import TYPE_CHECKING

from .. import __name__ as library

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

# Exit statuses: the options are wrong, or Ctrl-C, as shells have it.
REFUSED = 2
STOPPED = 128 + signal.SIGINT
STOPPED_SENTENCE = "stopped. Finished shards are kept, and the same command goes on."


def run_snakemake(words: Sequence[str]) -> int:
    """Run Snakemake with the words of its command line, and return the exit status."""
    with _hearing_ctrl_c() as interruption:
        try:
            status = _ran(words)
        except KeyboardInterrupt:
            status = STOPPED
        except SystemExit as err:
            # A text is what Python prints then.
            status = err.code if isinstance(err.code, int) else int(err.code is not None)
            if isinstance(err.code, str):
                print(err.code, file=sys.stderr)
    return STOPPED if interruption else status


@contextmanager
def _hearing_ctrl_c() -> Iterator[list[int]]:
    """Make Ctrl-C silence stderr and raise KeyboardInterrupt in this context. Then print a line.

    The context yields a list that is not empty after Ctrl-C. Snakemake's log file still has
    everything that Snakemake prints after it.
    """
    heard = list[int]()

    def hear(number: int, frame: FrameType | None) -> None:
        if not heard:
            sys.stderr.flush()
            heard.append(os.dup(2))
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 2)
            os.close(silent)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN:
        signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        if heard:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            sys.stderr.flush()
            os.dup2(heard[0], 2)
            print(f"{library}: {STOPPED_SENTENCE}", file=sys.stderr, flush=True)
        else:
            signal.signal(signal.SIGINT, before)


def _ran(words: Sequence[str]) -> int:
    """Do the same as Snakemake's `main`, but without a page of usage for a wrong option."""
    from snakemake.cli import args_to_api, print_exception

    # Snakemake keeps the command in its records.
    sys.argv = ["snakemake", *words]
    try:
        parser, arguments = _parsed(words)
        return 0 if args_to_api(arguments, parser) else 1
    except Exception as err:
        print_exception(err)
        return 1


def _parsed(words: Sequence[str]) -> tuple[ArgumentParser, Namespace]:
    from snakemake.cli import parse_args

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            found: tuple[ArgumentParser, Namespace] = parse_args(words)
    except SystemExit as err:
        if err.code != REFUSED:
            raise
        problem = said.getvalue().rpartition(" error: ")[2].strip()
        # Snakemake prefixes its name to errors in its options, too.
        print(
            f"{library}: {problem}. See '{library} run --help', and '{library} run -- --help' for "
            "Snakemake's own options.",
            file=sys.stderr,
        )
        raise
    print(said.getvalue(), end="", file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(run_snakemake(sys.argv[1:]))
