"""Format, lint, types, import contracts, generated files: what a reviewer should not have to look for.

    scripts/check [--quick]

--quick leaves out what takes more than a few seconds; pre-commit runs that half. Two run at a time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scripts.steps import ROOT

BIN = ROOT / ".venv" / "bin"
DASHBOARD = ROOT / "dashboard"
AT_A_TIME = 2


@dataclass(frozen=True)
class Check:
    name: str
    command: tuple[str, ...]
    quick: bool = False
    cwd: Path = ROOT


#: The longest first: the others run beside it.
CHECKS = (
    Check("mypy", (str(BIN / "mypy"),)),
    Check("ruff format", (str(BIN / "ruff"), "format", "--check", "."), quick=True),
    Check("ruff", (str(BIN / "ruff"), "check", "."), quick=True),
    Check("house rules", (sys.executable, "-m", "scripts.lint_house"), quick=True),
    Check("import contracts", (str(BIN / "lint-imports"),), quick=True),
    Check("migrations match the models", (sys.executable, "-m", "paceline.db.migrate", "check")),
    Check("generated files are fresh", (sys.executable, "-m", "scripts.check_generated")),
    Check("prettier", ("npm", "run", "--silent", "format:check"), cwd=DASHBOARD),
    Check("eslint", ("npm", "run", "--silent", "lint"), cwd=DASHBOARD),
    Check("tsc", ("npm", "run", "--silent", "typecheck"), cwd=DASHBOARD),
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only what takes a few seconds")
    quick = arguments.parse_args().quick
    failed = failing([check for check in CHECKS if check.quick or not quick])
    if failed:
        print(f"checks failed: {', '.join(check.name for check in failed)}")
    return 1 if failed else 0


def failing(checks: Sequence[Check]) -> list[Check]:
    """Run the checks and show how each ended; those that failed."""
    with ThreadPoolExecutor(AT_A_TIME) as workers:
        return [check for check, worked in zip(checks, workers.map(passes, checks), strict=True) if not worked]


def passes(check: Check) -> bool:
    """Run one check; its output is shown only when it fails."""
    began = time.monotonic()
    try:
        done = subprocess.run(check.command, cwd=check.cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        worked, output = done.returncode == 0, done.stdout
    except FileNotFoundError as error:
        worked, output = False, f"{error}; run 'scripts/setup --dev'\n"
    line = f"{'ok    ' if worked else 'FAILED'}  {time.monotonic() - began:5.1f} s  {check.name}\n"
    sys.stdout.write(line if worked else line + output)  # at once, or another check's lines could come between
    sys.stdout.flush()
    return worked


if __name__ == "__main__":
    sys.exit(main())
