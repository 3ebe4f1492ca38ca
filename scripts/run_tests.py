"""Runs everything: checks, the dashboard's tests, then pytest, whose summary comes last.

    scripts/test [--all | PYTEST ARGUMENTS]

Without `--all`, tests that are marked `release` are left out (full products of plans, further stories of faults), and parity takes fewer steps.
Two processes of pytest share the tests out. With other arguments, pytest runs with these.
With CI=true a missing PostgreSQL, Redis or Chromium is a failure instead of a skip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from scripts import services
from scripts.steps import ROOT, StepError, say

DASHBOARD = ROOT / "dashboard"
PYTEST = (sys.executable, "-m", "pytest", "--durations", "20")
EVERYTHING = "--all"
SHARED = ("-n", "2", "--dist", "loadscope", "--no-loadscope-reorder")


def main() -> int:
    began = time.monotonic()
    with ExitStack() as running:
        try:
            environment = {**os.environ, **provide(running)}
        except StepError as error:
            print(f"tests cannot run: {error}", file=sys.stderr)
            return 1
        if sys.argv[1:] == [EVERYTHING]:
            environment["PACELINE_TEST_AT_LENGTH"] = "1"
        failed = [name for name, worked in _parts(environment, sys.argv[1:]) if not worked]
    if failed:
        say(f"failed after {time.monotonic() - began:.0f} s: {', '.join(failed)}")
    return 1 if failed else 0


def provide(running: ExitStack) -> dict[str, str]:
    """Start or find the services; what the tests read to find them."""
    found = {
        "PACELINE_TEST_POSTGRES": running.enter_context(services.postgres()),
        "PACELINE_TEST_REDIS": running.enter_context(services.redis()),
        "PACELINE_TEST_CHROMIUM": services.chromium(),
    }
    missing = [name for name, value in found.items() if value is None]
    if missing:
        message = f"NOT HERE, AND NOT INSTALLABLE: {', '.join(name.removeprefix('PACELINE_TEST_') for name in missing)}"
        if os.environ.get("CI") == "true":
            raise StepError(f"{message}; with CI=true nothing may be skipped")
        say(f"!!! {message}: THE TESTS THAT NEED THEM ARE SKIPPED !!!")
    return {name: value for name, value in found.items() if value is not None}


def _parts(environment: dict[str, str], arguments: list[str]) -> list[tuple[str, bool]]:
    parts = [
        ("checks", [sys.executable, "-m", "scripts.run_checks"], ROOT),
        ("dashboard tests", ["npm", "run", "--silent", "test"], DASHBOARD),
        ("pytest", [*PYTEST, *_pytest_arguments(arguments)], ROOT),
    ]
    return [(name, _run(name, command, folder, environment)) for name, command, folder in parts]


def _pytest_arguments(arguments: list[str]) -> list[str]:
    if arguments == [EVERYTHING]:
        return [*SHARED]
    return arguments or [*SHARED, "-m", "not release"]


def _run(name: str, command: list[str], folder: Path, environment: dict[str, str]) -> bool:
    say(name)
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
