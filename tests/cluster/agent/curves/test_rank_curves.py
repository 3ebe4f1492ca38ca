"""A rank and the reader of its files write one spool: real processes, at the same time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from paceline.cluster.agent.curves.rank_curves import RankCurves
from paceline.monitoring.event_reader import Scalars
from paceline.monitoring.points import MetricRecord
from paceline.monitoring.spool import SpoolReader
from paceline.training.rank_folder import RankFolder

STEPS = 400
RANK = """
import sys, time
from paceline.monitoring.recorder import Measurement
from paceline.monitoring.sinks import MetricSpool
from pathlib import Path

spool = MetricSpool(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for step in range(1, int(sys.argv[2]) + 1):
    try:
        spool.write([Measurement(step, time.time(), {"mine": float(step), "both": 1.0})])
    except BlockingIOError:
        raise SystemExit("its turn did not come")
spool.close()
"""


def test_two_processes_that_contend_for_one_spool_lose_nothing_and_number_every_record(tmp_path: Path) -> None:
    folder = RankFolder(tmp_path, "job", 1, 0)
    folder.path.mkdir(parents=True)
    command = [sys.executable, "-c", RANK, str(folder.metrics), str(STEPS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdin is not None
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        curves = RankCurves(str(folder.path))
        rank.stdin.write("go\n")
        rank.stdin.flush()
        for step in range(1, STEPS + 1):
            curves.catch_up()
            curves.add([Scalars(step, time.time(), [("theirs", float(step)), ("both", 2.0)])])
            curves.write()
        assert rank.wait(timeout=30) == 0
    records = _records(folder.metrics)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    told = {name: Counter(record.step for record in records if name in record.values) for name in ("mine", "theirs", "both")}
    assert told["mine"] == told["theirs"] == Counter(range(1, STEPS + 1))
    assert set(told["both"]) == set(range(1, STEPS + 1))


def _records(path: Path) -> list[MetricRecord]:
    reader, found = SpoolReader(path), list[MetricRecord]()
    while payloads := reader.read():
        found += [msgspec.json.decode(payload, type=MetricRecord) for payload in payloads]
    return found
