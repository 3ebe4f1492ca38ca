"""The command line: rows one after the other, a line for each as it is done, a table at the end."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from scripts.gpu_check.machine import Machine, find_machine
from scripts.gpu_check.outcome import Outcome, line
from scripts.gpu_check.rows import ROWS
from scripts.gpu_check.run import run_row


def check(description: str | None) -> int:
    arguments = parse(description)
    machine = find_machine(arguments.device, quick=arguments.quick)
    print(describe(machine))
    outcomes = [print_outcome(run_row(name, ROWS[name], machine)) for name in arguments.only]
    print(summary(outcomes))
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode({"machine": describe(machine), "rows": outcomes})) + b"\n")
    return int(any(each.status == "failed" for each in outcomes))


def parse(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models and few steps: whether it works, not how fast")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file")
    return parser.parse_args()


def describe(machine: Machine) -> str:
    names = {torch.cuda.get_device_name(number) for number in range(machine.ranks)} if machine.device == "cuda" else set()
    return f"{machine.devices}{': ' if names else ''}{', '.join(sorted(names))}; torch {torch.__version__}"


def print_outcome(outcome: Outcome) -> Outcome:
    print(line(outcome, max(map(len, ROWS))), flush=True)
    return outcome


def summary(outcomes: Sequence[Outcome]) -> str:
    counts = {status: sum(each.status == status for each in outcomes) for status in ("ok", "failed", "skipped")}
    return ", ".join(f"{count} {status}" for status, count in counts.items())
