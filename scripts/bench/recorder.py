"""What `Recorder.record` costs the training loop, with the real spool behind it: `recorder_us`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from paceline.monitoring.recorder import Recorder
from paceline.monitoring.sinks import MetricSpool
from scripts.bench.figures import Figure, run, summarize

ROUNDS = 200
CALLS = 50  # per round; a step makes one


def measure() -> list[Figure]:
    values = {f"metric_{number}": float(number) for number in range(14)}  # as many as rank 0 records per step
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(MetricSpool(Path(folder) / "metrics.spool"))
        for round_ in range(ROUNDS):
            started = time.perf_counter()
            for call in range(CALLS):
                recorder.record(round_ * CALLS + call, dict(values))
            samples.append((time.perf_counter() - started) / CALLS * 1e6)
            time.sleep(0.001)  # a step is longer than its record: let the drain thread run between rounds
        recorder.close()
    return [summarize("recorder_us", "us", samples, f"per call of 14 values, limit 20; {recorder.dropped} dropped")]


if __name__ == "__main__":
    run(measure, __doc__)
