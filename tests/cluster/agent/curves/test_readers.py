"""The agent, a script that writes an event file, and the reader between them: real processes."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.agent.conftest import AgentProcess, assignment, drained, script_job, world
from tests.cluster.agent.coordinator import Coordinator

SCRIPT = """
import os, pathlib, time
from paceline.monitoring.event_file import EventFileWriter
from paceline.monitoring.recorder import Measurement

file = EventFileWriter(pathlib.Path(os.environ["FOLDER"]))
for step in range(1, 4):
    file.write([Measurement(step, time.time(), {"train/loss": 1.0 / step})])
print(os.path.isdir(os.environ["PACELINE_LOG_DIR"]))
"""


PRINTS = """
for step in range(1, 5):
    print("iter", f"{step}: loss {1 / step}, time 3 ms")
"""


async def test_what_a_script_prints_is_read_where_it_writes_nothing(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    job = script_job(tmp_path / "work" / "train.py", PRINTS)
    job["environment"] = {"working_directory": str(tmp_path / "work")}
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=job))
    await coordinator.until(drained("job"))
    received = coordinator.of("job")
    assert [(record.step, record.values) for record in received.streams["metrics"]] == [(step, {"loss": 1 / step}) for step in range(1, 5)]
    assert [event.data["how"] for event in received.streams["events"]] == ["read from printed lines"]
    assert await agent.end() == 0


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
