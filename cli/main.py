"""`paceline`: the command line of a coordinator. Nothing heavy is imported before Ctrl-C has a meaning."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: `cli.exits.ExitCode.INTERRUPTED`, before that module is imported.
INTERRUPTED = 130


def main() -> None:
    """Import the commands and run the one that was typed. Ctrl-C during the imports exits with 130, without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where it is ignored, as behind `nohup` or `&`
        signal.signal(signal.SIGINT, _end_now)
    from paceline.cli.app import run

    signal.signal(signal.SIGINT, before)
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # while typer builds the commands; later it handles Ctrl-C itself
        sys.exit(INTERRUPTED)


def _end_now(number: int, frame: FrameType | None) -> None:
    """End the process at once: there is nothing to clean up. An exception could get lost here: some modules catch all of them while they
    are imported."""
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
