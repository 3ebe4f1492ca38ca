"""Runs everything: checks, the dashboard's tests, then pytest. What failed stands in the last lines, by name.

    scripts/test [--all | PYTEST ARGUMENTS]

Without `--all`, tests that are marked `release` are left out (full products of plans, further stories of faults), and parity takes fewer steps.
Two processes of pytest share the tests out. With other arguments, pytest runs with these.
With CI=true a missing PostgreSQL, Redis, Chromium, promtool or sshd is a failure instead of a skip.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scripts import run_checks, services
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
        failed = [*_checks(), *_dashboard_tests(environment), *_pytest(environment, sys.argv[1:])]
    if failed:
        say(f"failed after {time.monotonic() - began:.0f} s:")
        print("\n".join(f"    {line}" for line in failed), flush=True)
    return 1 if failed else 0


def provide(running: ExitStack) -> dict[str, str]:
    """Start or find the services; what the tests read to find them."""
    found = {
        "PACELINE_TEST_POSTGRES": running.enter_context(services.postgres()),
        "PACELINE_TEST_REDIS": running.enter_context(services.redis()),
        "PACELINE_TEST_CHROMIUM": services.chromium(),
        "PACELINE_TEST_PROMTOOL": services.promtool(),
        "PACELINE_TEST_SSHD": services.sshd(),
    }
    missing = [name for name, value in found.items() if value is None]
    if missing:
        message = f"NOT HERE, AND NOT INSTALLABLE: {', '.join(name.removeprefix('PACELINE_TEST_') for name in missing)}"
        if os.environ.get("CI") == "true":
            raise StepError(f"{message}; with CI=true nothing may be skipped")
        say(f"!!! {message}: THE TESTS THAT NEED THEM ARE SKIPPED !!!")
    return {name: value for name, value in found.items() if value is not None}


def _checks() -> list[str]:
    """The names of the checks that failed; what each of them said is far above by the time that this is shown."""
    say("checks")
    return [f"check: {check.name}" for check in run_checks.failing(run_checks.CHECKS)]


def _dashboard_tests(environment: dict[str, str]) -> list[str]:
    say("dashboard tests")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ("--reporter=default", "--reporter=json", f"--outputFile.json={report}")
        done = subprocess.run(["npm", "run", "--silent", "test", "--", *options], cwd=DASHBOARD, env=environment, check=False)
        if done.returncode == 0:
            return []
        named = failed_tests(json.loads(report.read_text())) if report.exists() else []
    return named or [f"dashboard tests: exit {done.returncode}"]


def failed_tests(report: dict[str, Any]) -> list[str]:
    """Each test that failed in a report of vitest (its form is Jest's), or each file that could not be loaded, with the first line of why."""
    lines = []
    for file in report["testResults"]:
        where = file["name"].removeprefix(f"{DASHBOARD}/")
        failed = [(test["fullName"], test["failureMessages"]) for test in file["assertionResults"] if test["status"] == "failed"]
        if not failed and file["status"] == "failed":
            failed = [("could not be run", [file["message"]])]
        lines += [f"{where}: {name}: {_first_line(''.join(messages))}" for name, messages in failed]
    return lines


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _pytest(environment: dict[str, str], arguments: list[str]) -> list[str]:
    say("pytest")
    done = subprocess.run([*PYTEST, *_pytest_arguments(arguments)], cwd=ROOT, env=environment, check=False)
    return [] if done.returncode == 0 else [f"pytest: exit {done.returncode}"]


def _pytest_arguments(arguments: list[str]) -> list[str]:
    if arguments == [EVERYTHING]:
        return [*SHARED]
    return arguments or [*SHARED, "-m", "not release"]


if __name__ == "__main__":
    sys.exit(main())
