"""One row in a process of its own: what it breaks, hangs or leaves on a GPU is gone with it.

python -m scripts.gpu_check.run ROW DEVICE RANKS QUICK FILE
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import msgspec

from scripts.gpu_check.machine import Machine, RowSkippedError
from scripts.gpu_check.outcome import Outcome, Row, RowFailedError
from scripts.steps import ROOT

LAST_LINES = 12


def run_row(name: str, row: Row, machine: Machine) -> Outcome:
    """Never raises for what the row does."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "outcome.json", Path(folder) / "output.log"
        started = time.monotonic()
        ended = wait_for(start(name, machine, file, output), row.seconds)
        seconds = time.monotonic() - started
        if file.exists():
            return msgspec.json.decode(file.read_bytes(), type=Outcome)
        return Outcome(name, "failed", seconds, f"{ended}: {last_words(output)}")


def start(name: str, machine: Machine, file: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "scripts.gpu_check.run", name, machine.device, str(machine.ranks), str(int(machine.quick)), str(file)]
    with output.open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def wait_for(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for the process and return how it ended. No process that it has started outlives it."""
    try:
        code = process.wait(seconds)
        return f"ended with exit code {code}"
    except subprocess.TimeoutExpired:
        return f"not done after {seconds:g} s"
    finally:
        end_session(process)


def end_session(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all are gone already
    finally:
        process.wait()


def last_words(output: Path) -> str:
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return "\n    ".join(lines[-LAST_LINES:])


def outcome_of(name: str, machine: Machine) -> Outcome:
    from scripts.gpu_check.rows import ROWS

    started = time.monotonic()
    try:
        seen = ROWS[name].check(machine)
        return Outcome(name, "ok", time.monotonic() - started, seen.text, seen.figures)
    except RowSkippedError as reason:
        return Outcome(name, "skipped", time.monotonic() - started, str(reason))
    except RowFailedError as error:
        return Outcome(name, "failed", time.monotonic() - started, str(error))
    except Exception as error:  # noqa: BLE001 - a row that breaks is a row that failed; the trace goes with it
        traceback.print_exc()
        return Outcome(name, "failed", time.monotonic() - started, f"{type(error).__name__}: {error}")


def main() -> None:
    name, device, ranks, quick, file = sys.argv[1:]
    assert device in ("cpu", "cuda")
    machine = Machine("cuda" if device == "cuda" else "cpu", int(ranks), quick == "1")
    outcome = outcome_of(name, machine)
    Path(file).write_bytes(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
