"""The module that training scripts import, as a script would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from paceline.distributed.env import RANK_FOLDER
from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolReader
from paceline.training.rank_folder import RankFolder

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


HOSTILE = """
import numpy
import paceline

for step in (-1, 2**53, 0.5, "one", True):
    try:
        paceline.log(step, loss=1.0)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
paceline.log(numpy.int64(3), loss=numpy.float32(0.5))
paceline.log(4, **{f"name_{number}": 1.0 for number in range(2_000)})
paceline.log(5, loss=1.0)
"""


def test_a_bad_step_raises_in_the_scripts_own_line_and_what_follows_is_recorded(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE], env={RANK_FOLDER: str(tmp_path)}, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "ValueError step -1 is not between 0 and 9007199254740991",
        "ValueError step 9007199254740992 is not between 0 and 9007199254740991",
        "TypeError step 0.5 (float) is not an integer",
        "TypeError step 'one' (str) is not an integer",
        "TypeError step True (bool) is not an integer",
    ]
    folder = RankFolder.at(tmp_path)
    records = [msgspec.json.decode(payload, type=MetricRecord) for payload in SpoolReader(folder.metrics).read()]
    assert [(record.seq, record.step) for record in records] == [(1, 3), (2, 4), (3, 5)]
    assert records[0].values == {"loss": 0.5}
    (event,) = [msgspec.json.decode(payload, type=RankEvent) for payload in SpoolReader(folder.events).read()]
    assert (event.kind, event.data["count"], event.data["example"]) == ("data_dropped", 1_001, "name_999")
    assert "WARNING metric names are dropped: over 1000 distinct names" in done.stderr
