"""The coordinator is killed in the middle of a recovery, or a survivor's agent is: it takes longer, and nothing is lost.

The moments are read from the coordinator's own database, so that each kill strikes right after what it is named for was stored.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest

from paceline.monitoring.points import RankEvent
from paceline.monitoring.spool import SpoolReader
from paceline.training.rank_folder import RankFolder
from tests.e2e.stack import Stack, wait_until
from tests.faults import TASK, Fault, computed, faulty_job, slow_down
from tests.ports import free_port
from tests.processes import command_of, surroundings_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NODES = 3
STEPS = 300
VICTIM = 1
POLL_SECONDS = 0.002
RECOVERY_SECONDS = 90.0
CLOSE_UP: dict[str, Any] = {"fault_tolerance": {"recovery": "close_up", "max_restarts": 0}}
SAVING_STEPS = 60
#: Has a task record points of its own by the hundred with each micro-batch: its node is behind when its coordinator comes back.
RECORDING = """
import paceline

_batch = Table.batch


def _recording(self, indices, generator):
    for number in range(100):
        paceline.log(1, own=number)
    return _batch(self, indices, generator)


Table.batch = _recording
"""


class Moment(NamedTuple):
    """`has_come`: (job id, rows of the control database) -> whether it is time to strike."""

    name: str
    has_come: Callable[[str, sqlite3.Connection], bool]


def is_stored(query: str) -> Callable[[str, sqlite3.Connection], bool]:
    return lambda job_id, database: bool(database.execute(query, {"job": job_id}).fetchone()[0])


DECIDED = Moment("the decision is stored", is_stored("SELECT generation >= 2 FROM jobs WHERE id = :job"))
LATER = [
    Moment(
        "the new generation forms",
        is_stored("SELECT count(*) FROM ranks WHERE job_id = :job AND generation = 2 AND state IN ('starting', 'running')"),
    ),
    Moment("it runs again", is_stored("SELECT state = 'running' AND generation >= 2 FROM jobs WHERE id = :job")),
]


@pytest.fixture(scope="module")
def stack(empty_stack: Stack) -> Stack:
    empty_stack.up(free_port(), agents=NODES)
    return empty_stack


class Gang(NamedTuple):
    job_id: str
    before: dict[int, int]  # process ids by rank
    slow: Path  # it is in no hurry until this is deleted


def start(stack: Stack, folder: Path) -> Gang:
    """In full swing, and with most of it still to come."""
    spec = faulty_job(folder, nodes=NODES, steps=STEPS, parallelism={"strategy": "ddp"}, **CLOSE_UP)
    slow = slow_down(folder)
    job_id = stack.submit(spec)
    stack.wait_for_step(job_id, 10)
    return Gang(job_id, {rank["rank"]: rank["pid"] for rank in stack.job(job_id)["ranks"]}, slow)


def wait_for(stack: Stack, moment: Moment, job_id: str) -> None:
    with closing(sqlite3.connect(f"file:{stack.data / 'paceline.db'}?mode=ro", uri=True)) as database:
        wait_until(moment.name, lambda: moment.has_come(job_id, database), RECOVERY_SECONDS, POLL_SECONDS)


def assert_whole(stack: Stack, gang: Gang) -> None:
    """One fault, closed up once, by the same processes, with every step told once. A replacement may have joined them since."""
    job_id, before, slow = gang
    wait_until("the next generation", lambda: stack.job(job_id)["generation"] >= 2, RECOVERY_SECONDS)
    slow.unlink()
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=RECOVERY_SECONDS)
    assert (done["state"], done["restarts"]) == ("completed", 0), done
    assert done["generation"] in (2, 3), done
    pids = {rank["pid"] for rank in done["ranks"]}
    assert {pid for rank, pid in before.items() if rank != VICTIM} == pids & set(before.values()), done
    assert sorted(step for step, _ in stack.raw_curve(job_id)) == list(range(1, STEPS + 1))
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["action"], incident["steps_lost"], incident["next_generation"]) == ("closed_up", 0, 2), incident
    kinds = [event["type"] for event in stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"]]
    assert kinds.count("job.closed_up") == 1, kinds
    assert kinds.count("job.carried_on") in range(1, done["generation"]), kinds


def test_a_rank_that_dies_while_the_coordinator_is_away_is_answered_when_it_is_back(stack: Stack, tmp_path: Path) -> None:
    gang = start(stack, tmp_path)
    stack.kill_coordinator()
    os.kill(gang.before[VICTIM], signal.SIGKILL)
    stack.up(free_port(), agents=NODES)
    assert_whole(stack, gang)


def test_a_rank_that_dies_while_the_coordinator_is_upgraded_costs_no_other_rank(stack: Stack, tmp_path: Path) -> None:
    """It leaves in good order, and the first agent that finds its successor must not look like the only one that is left."""
    gang = start(stack, tmp_path)
    process = stack.coordinator()
    process.terminate()
    process.wait(timeout=60)
    os.kill(gang.before[VICTIM], signal.SIGKILL)
    stack.up(free_port(), agents=NODES)
    assert_whole(stack, gang)


def test_a_rank_killed_without_a_coordinator_goes_on_from_a_checkpoint_that_nobody_was_told_of(stack: Stack, tmp_path: Path) -> None:
    """The coordinator knows of an older one. The node comes back with the death and thousands of points; the restart waits for the checkpoint."""
    away, end = Fault(0, 21, "hold", "data"), Fault(0, 45, "hold")
    fails_over: dict[str, Any] = {"fault_tolerance": {"recovery": "restart", "max_restarts": 1}, "checkpoint": {"every_steps": 10}}
    spec = faulty_job(tmp_path, away, end, nodes=1, steps=SAVING_STEPS, **fails_over)
    with (tmp_path / TASK.name).open("a") as task:
        task.write(RECORDING)
    job_id = stack.submit(spec)
    wait_until("a checkpoint", lambda: stack.job(job_id)["progress"].get("last_checkpoint_step"), RECOVERY_SECONDS)
    wait_until("step 21", (tmp_path / away.done).exists, RECOVERY_SECONDS)
    (rank,) = stack.job(job_id)["ranks"]
    stack.kill_coordinator()
    away.release(tmp_path)
    wait_until("step 45", (tmp_path / end.done).exists, RECOVERY_SECONDS)
    saved, known = saved_steps(stack, rank["node_name"], job_id), known_steps(stack, job_id)
    assert max(saved) > max(known) > 0
    os.kill(rank["pid"], signal.SIGKILL)
    stack.up(free_port(), agents=NODES)
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=RECOVERY_SECONDS)
    begun_at = [generation["start_step"] for generation in done["generations"]]
    assert (done["state"], done["restarts"], begun_at) == ("completed", 1, [0, max(saved)]), done
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["resumed_step"], incident["steps_lost"]) == (max(saved), 44 - max(saved)), incident
    events = stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"]
    stored = [each["seq"] for each in events if each["type"] == "checkpoint.committed" and each["data"]["step"] in saved]
    assert len(stored) == len(saved)
    assert max(stored) < min(each["seq"] for each in events if each["generation"] == 2), events
    taken = Counter(step for _, step, micro_batch in computed(tmp_path) if step and micro_batch == 0)
    assert taken == {step: 1 + (max(saved) < step < 45) for step in range(1, SAVING_STEPS + 1)}


def saved_steps(stack: Stack, node: str, job_id: str) -> set[int]:
    """The steps of the checkpoints that the job's only rank has told its agent of, in its first generation."""
    spool = RankFolder(stack.data / "agents" / node, job_id, 1, 0).events
    events = [msgspec.json.decode(record, type=RankEvent) for record in SpoolReader(spool).read()]
    return {event.data["step"] for event in events if event.kind == "checkpoint_committed"}


def known_steps(stack: Stack, job_id: str) -> set[int]:
    """The steps of the checkpoints that the coordinator has stored."""
    with closing(sqlite3.connect(f"file:{stack.data / 'paceline.db'}?mode=ro", uri=True)) as database:
        return {step for (step,) in database.execute("SELECT step FROM checkpoints WHERE job_id = ?", (job_id,))}


@pytest.mark.parametrize(
    "moment", [DECIDED, *(pytest.param(each, marks=pytest.mark.release) for each in LATER)], ids=lambda moment: moment.name
)
def test_a_coordinator_killed_within_a_recovery_finishes_it_afterwards(stack: Stack, tmp_path: Path, moment: Moment) -> None:
    gang = start(stack, tmp_path)
    coordinator = stack.coordinator()  # found before the moment: to look through all processes takes as long as a recovery
    os.kill(gang.before[VICTIM], signal.SIGKILL)
    wait_for(stack, moment, gang.job_id)
    kill(coordinator)
    stack.up(free_port(), agents=NODES)
    assert_whole(stack, gang)


def test_a_survivors_agent_killed_within_a_recovery_finds_its_rank_and_moves_it(stack: Stack, tmp_path: Path) -> None:
    gang = start(stack, tmp_path)
    agent = agent_of(stack, next(rank["node_name"] for rank in stack.job(gang.job_id)["ranks"] if rank["rank"] == 0))
    os.kill(gang.before[VICTIM], signal.SIGKILL)
    wait_for(stack, DECIDED, gang.job_id)
    kill(agent)
    stack.up(free_port(), agents=NODES)
    assert_whole(stack, gang)


def test_a_rank_that_dies_while_the_agent_of_another_is_away_is_the_one_that_is_named(stack: Stack, tmp_path: Path) -> None:
    gang = start(stack, tmp_path)
    ranks = stack.job(gang.job_id)["ranks"]
    kill(agent_of(stack, next(rank["node_name"] for rank in ranks if rank["rank"] == 2)))
    wait_until("its absence", lambda: is_away(stack, next(rank["node_id"] for rank in ranks if rank["rank"] == 2)), RECOVERY_SECONDS)
    os.kill(gang.before[VICTIM], signal.SIGKILL)
    wait_until("the next generation", lambda: stack.job(gang.job_id)["generation"] >= 2, RECOVERY_SECONDS)
    stack.up(free_port(), agents=NODES)
    gang.slow.unlink()
    done = stack.wait_for_state(gang.job_id, "completed", "failed", timeout=RECOVERY_SECONDS)
    assert (done["state"], done["restarts"]) == ("completed", 0), done
    assert gang.before[0] in {rank["pid"] for rank in done["ranks"]}
    (incident,) = stack.get(f"/training/jobs/{gang.job_id}/incidents")
    assert (incident["culprit"]["rank"], incident["culprit"]["signal"]) == (VICTIM, "SIGKILL"), incident
    assert sorted(step for step, _ in stack.raw_curve(gang.job_id)) == list(range(1, STEPS + 1))


def is_away(stack: Stack, node_id: str) -> bool:
    """Its channel to the coordinator has ended."""
    with closing(sqlite3.connect(f"file:{stack.data / 'paceline.db'}?mode=ro", uri=True)) as database:
        return database.execute("SELECT channel_id IS NULL FROM nodes WHERE id = ?", (node_id,)).fetchone() == (1,)


def agent_of(stack: Stack, node: str) -> psutil.Process:
    """Killed, it leaves its ranks and their parent, the spawner, alive."""
    mine = [process for process in stack.processes() if "paceline.cluster.agent.main" in command_of(process)]
    (agent,) = [process for process in mine if f"agents/{node}" in surroundings_of(process)]
    return agent


def kill(process: psutil.Process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=5)
