"""What the command lines of the protocol runs have in common."""

from __future__ import annotations

import argparse

MOST_RANKS = 64


def positive(text: str) -> int:
    """Return a whole number of at least 1. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def require_startable(parser: argparse.ArgumentParser, world_size: int) -> None:
    """End the process with exit code 2 where there are too many ranks for one machine."""
    if world_size > MOST_RANKS:
        parser.error(f"--world-size {world_size} is more than the {MOST_RANKS} processes that are started here")
