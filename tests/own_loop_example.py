"""`examples/own_loop.py` as a user runs it, and what it printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "own_loop.py"
RUN_TIMEOUT_SECONDS = 240
#: Of rank 0, which alone prints it; torchrun puts nothing before it.
LINE = re.compile(r"^step (\d+) loss (\S+) norm (\S+)$", re.MULTILINE)

Curve = dict[int, tuple[float, float]]


def environment(**more: str) -> dict[str, str]:
    """Outside of any job or world."""
    outside = ("PACELINE_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "NNODES", "NODE_RANK", "GPUS_PER_NODE", "TORCHELASTIC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHON": sys.executable, **more}


def run_plainly(*arguments: str) -> Curve:
    """In a world of one: loss and gradient norm by step."""
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return curve_in(done.stdout)


def curve_in(output: str) -> Curve:
    return {int(step): (float(loss), float(norm)) for step, loss, norm in LINE.findall(output)}
