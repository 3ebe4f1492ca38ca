"""What the benchmark scripts share of their command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from paceline.cli.errors import CliError
from paceline.cli.exits import ExitCode
from paceline.cli.interrupts import interruptible
from paceline.cli.render.output import note


def positive(text: str) -> int:
    """Return a whole number of at least 1. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def add_shared_options(parser: argparse.ArgumentParser, *, name: str, steps: int, repeats: int) -> None:
    """Add the options of place and length, with the script's own defaults."""
    parser.add_argument(
        "--steps", type=positive, default=steps, metavar="N", help=f"steps of each trial; the first ones warm up; default: {steps}"
    )
    parser.add_argument("--repeats", type=positive, default=repeats, metavar="N", help=f"trials of each configuration; default: {repeats}")
    parser.add_argument("--name", default=name, help=f"of the experiment; one of that name is extended; default: {name}")
    parser.add_argument("--url", help="coordinator; default: the configured one, else one of its own on this machine")
    parser.add_argument("--api-key", help="in place of the stored one")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results") / name, metavar="DIR", help="default: %(default)s")


def run_main(main: Callable[[], int]) -> int:
    """Run a script's `main`. Returns its exit code, or that of the error or the signal that ended it."""
    import typer

    try:
        with interruptible():
            return main()
    except CliError as error:
        note(*error.lines())
        return error.exit_code
    except typer.Exit:
        return ExitCode.INTERRUPTED
