"""What the benchmarks share: a figure, its median and p95, `--json FILE`, and a table on the terminal."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline.monitoring.words import plural


@dataclass(frozen=True)
class Figure:
    figure: str
    unit: str
    median: float
    p95: float
    n: int
    reference: str  # what the number is compared with, or what it means


def summarize(figure: str, unit: str, samples: Sequence[float], reference: str) -> Figure:
    ordered = sorted(samples)
    p95 = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return Figure(figure, unit, statistics.median(ordered), p95, len(ordered), reference)


def run(measure: Callable[[], list[Figure]], description: str | None) -> None:
    """The command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    print(machine())
    report(measure(), arguments.json)


def run_shortened(measure: Callable[[bool], list[Figure]], description: str | None) -> None:
    """The command line of a benchmark that has a short form: `measure(True)`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, steps and links")
    arguments = parser.parse_args()
    print(machine())
    report(measure(arguments.quick), arguments.json)


def machine() -> str:
    """Say what the figures are measured on: "AMD EPYC 9454, 2 cores, Linux 6.8.0"."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {plural(os.cpu_count() or 1, 'core')}, {platform.system()} {platform.release()}"


def report(figures: Sequence[Figure], file: Path | None) -> None:
    for figure in figures:
        print(f"{figure.figure:28} {figure.median:>12.4g} {figure.unit:6} p95 {figure.p95:.4g}  n {figure.n}  {figure.reference}")
    if file is not None:
        file.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")
