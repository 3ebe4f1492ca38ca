"""The coordinator's own administration command, which needs no key but the data folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from paceline.cli.errors import CliError, StackError, TakenError, UsageProblem
from paceline.cli.exits import ExitCode
from paceline.cli.settings import child_environment
from paceline.location import ROOT

ADMIN_TIMEOUT_S = 60.0

_ERRORS: dict[int, type[CliError]] = {ExitCode.USAGE: UsageProblem, ExitCode.CONFLICT: TakenError}


def ask_admin(data: Path, *arguments: str, timeout: float = ADMIN_TIMEOUT_S) -> dict[str, Any]:
    """Run an administration command. Returns its one JSON document, also where it ended with 1 after printing one."""
    command = [sys.executable, "-m", "paceline.api.admin", *arguments]
    environment = child_environment(PACELINE_DATA=str(data))
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{' '.join(command[1:])} took over {timeout:g} s and was ended") from error
    if not done.stdout:
        message = done.stderr.strip()[-2000:].removeprefix("error: ")
        raise _ERRORS.get(done.returncode, StackError)(message or f"{' '.join(command[1:])} exited {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document
