"""The module that training scripts import, as a script would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from distributed.env import RANK_FOLDER
from monitoring.points import MetricRecord
from monitoring.spool import SpoolReader
from training.link import RankFolder

SCRIPT = """
import sys
import paceline

assert "torch" not in sys.modules
for step in (1, 2):
    paceline.log(step, loss=step / 4, accuracy=paceline.world().rank)
"""
ROOT = Path(__file__).parents[1]


def run(environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout


def test_in_a_job_values_reach_the_ranks_spool(tmp_path: Path) -> None:
    assert run({RANK_FOLDER: str(tmp_path), "RANK": "3", "WORLD_SIZE": "4"}) == ""
    payloads = SpoolReader(RankFolder.at(tmp_path).metrics).read()
    records = [msgspec.json.decode(payload, type=MetricRecord) for payload in payloads]
    assert [(record.seq, record.step, record.values) for record in records] == [
        (1, 1, {"loss": 0.25, "accuracy": 3.0}),
        (2, 2, {"loss": 0.5, "accuracy": 3.0}),
    ]


def test_outside_a_job_they_are_printed() -> None:
    assert run({}) == "step 1 loss 0.25 accuracy 0\nstep 2 loss 0.5 accuracy 0\n"
