"""The agent, a script that writes an event file, and the reader between them: real processes."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.agent.conftest import AgentProcess, assignment, drained, script_job, world
from tests.cluster.agent.coordinator import Coordinator

SCRIPT = """
import os, pathlib, time
from monitoring.event_file import EventFile
from monitoring.recorder import Measurement

file = EventFile(pathlib.Path(os.environ["FOLDER"]))
for step in range(1, 4):
    file.write([Measurement(step, time.time(), {"train/loss": 1.0 / step})])
print(os.path.isdir(os.environ["PACELINE_LOG_DIR"]))
"""


async def test_what_a_script_writes_reaches_the_coordinator_before_its_rank_is_drained(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    """Its last steps too: it ends right after them."""
    (tmp_path / "work").mkdir()
    job = script_job(tmp_path / "work" / "train.py", SCRIPT)
    job["environment"] = {"working_directory": str(tmp_path / "work"), "variables": {"FOLDER": "runs"}}
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=job))
    await coordinator.until(drained("job"))
    received = coordinator.of("job")
    assert [(record.step, round(float(record.values["loss"]), 2)) for record in received.streams["metrics"]] == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.33),
    ]
    assert received.text[-1] == "True"
    await coordinator.desire()
    await coordinator.until(lambda c: c.rank("job") is None)
    assert await agent.end() == 0
    assert agent.processes() == []
