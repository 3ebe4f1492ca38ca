"""Ranks come and go on a whole stack while the others train on: same processes, no hole in the curve, the same bits."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.stack import Stack, wait_until
from tests.faults import Fault, faulty_job, slow_down
from tests.ports import free_port
from tests.processes import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

STEPS = 500
CHANGE_TIMEOUT_SECONDS = 120.0
AGENTS = 3

Rank = dict[str, Any]


@pytest.fixture(scope="module")
def three(empty_stack: Stack) -> Stack:
    """Three agents of this module's own: a test removes one of their nodes."""
    empty_stack.up(free_port(), agents=AGENTS)
    return empty_stack


@pytest.fixture(scope="module")
def undisturbed(three: Stack, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, float]]:
    """Every job here is the same training, on whatever ranks."""
    job_id = three.submit(faulty_job(tmp_path_factory.mktemp("well"), nodes=1, steps=STEPS, parallelism={"strategy": "ddp"}))
    three.wait_for_state(job_id, "completed", timeout=CHANGE_TIMEOUT_SECONDS)
    curve = three.raw_curve(job_id)
    assert [step for step, _ in curve] == list(range(1, STEPS + 1))
    return curve


class Gang:
    """A job that is in no hurry until `finish`."""

    def __init__(self, stack: Stack, folder: Path, nodes: int, *faults: Fault, spares: int = 0) -> None:
        self.stack = stack
        tolerance = {"recovery": "close_up", "max_restarts": 0, "spares": spares}
        spec = faulty_job(folder, *faults, nodes=nodes, steps=STEPS, fault_tolerance=tolerance, parallelism={"strategy": "ddp"})
        self._slow = slow_down(folder)
        self.id = stack.submit(spec)
        self.until_full(nodes, spares)

    @property
    def job(self) -> dict[str, Any]:
        return self.stack.job(self.id)

    def members(self) -> list[Rank]:
        return [rank for rank in self.job["ranks"] if not rank["parked"]]

    def pids(self) -> dict[str, int]:
        return {rank["node_name"]: rank["pid"] for rank in self.members()}

    def until_full(self, nodes: int, spares: int = 0, beyond: int = 0) -> dict[str, Any]:
        """Runs with that many, in a generation after `beyond`, and has taken a step in it."""

        def full() -> dict[str, Any] | None:
            job = self.job
            assert job["state"] not in ("failed", "completed"), job
            members = [rank for rank in job["ranks"] if not rank["parked"]]
            parked = [rank["state"] for rank in job["ranks"] if rank["parked"]]
            newest = job["generations"][-1] if job["generations"] else {}
            started = job["state"] == "running" and job["generation"] > beyond and newest.get("first_step_at") is not None
            return job if started and len(members) == nodes and parked == ["parked"] * spares else None

        try:
            return wait_until(f"{nodes} ranks and {spares} spares", full, CHANGE_TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{error}; {self.job}\n{self.stack.logs()}") from error

    def until_state(self, *states: str) -> None:
        self.stack.wait_for_state(self.id, *states, timeout=CHANGE_TIMEOUT_SECONDS)

    def newcomer(self, before: dict[str, int]) -> Rank | None:
        """A member whose process is known, on a node that had none."""
        return next((rank for rank in self.members() if rank["node_name"] not in before and rank["pid"]), None)

    def events(self) -> list[dict[str, Any]]:
        return list(self.stack.get(f"/training/jobs/{self.id}/events", limit=200)["items"])

    def story(self) -> str:
        return "\n".join(f"{event['time']} {event['type']}: {event['message']} ({event['cause']})" for event in self.events())

    def exits(self) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["type"] == "rank.exited"]

    def resize(self, nodes: int) -> None:
        headers = {"If-Match": f'"{self.job["revision"]}"'}
        response = self.stack.client.put(f"/training/jobs/{self.id}/resize", json={"nodes": nodes}, headers=headers)
        assert response.status_code == 200, response.text

    def finish(self, undisturbed: list[tuple[int, float]]) -> None:
        """To the end: it never restarted, and its curve is the undisturbed one to the last bit."""
        self._slow.unlink()
        self.until_state("completed", "failed")
        job = self.job
        assert (job["state"], job["restarts"]) == ("completed", 0), job
        assert self.stack.raw_curve(self.id) == undisturbed


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """It neither hears nor says anything for a while."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        if process.is_running():
            process.send_signal(signal.SIGCONT)


def agent_of(stack: Stack, node: str) -> psutil.Process:
    folder = str(Path("agents") / node)
    return next(
        each for each in stack.processes() if "paceline.cluster.agent.main" in command_of(each) and folder in " ".join(command_of(each))
    )


def test_a_dead_rank_is_replaced_in_its_own_slot(three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    gang = Gang(three, tmp_path / "code", 3, Fault(rank=1, step=20, moment="backward"))
    before = gang.pids()
    dead = next(rank for rank in gang.members() if rank["rank"] == 1)["node_name"]
    after = gang.until_full(3, beyond=2)
    assert after["generation"] == 3  # closed up, then grown back
    pids = gang.pids()
    assert pids.keys() == before.keys()
    assert [name for name in pids if pids[name] != before[name]] == [dead]
    gang.finish(undisturbed)


def test_a_spare_takes_the_place_in_one_change(three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    gang = Gang(three, tmp_path / "code", 2, spares=1)
    before = gang.job
    spare = next(rank for rank in before["ranks"] if rank["parked"])
    victim, survivor = gang.members()
    os.kill(victim["pid"], signal.SIGKILL)
    after = gang.until_full(2, spares=1, beyond=before["generation"])
    assert after["generation"] == before["generation"] + 1
    assert sorted(gang.pids().values()) == sorted([survivor["pid"], spare["pid"]])
    again = next(rank for rank in after["ranks"] if rank["parked"])
    assert again["node_name"] == victim["node_name"]  # a new spare, where there is room now
    gang.finish(undisturbed)


def test_resized_up_and_down_while_it_trains(three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    gang = Gang(three, tmp_path / "code", 1)
    first = gang.pids()
    gang.resize(3)
    gang.until_full(3)
    assert first.items() <= gang.pids().items()
    middle = gang.pids()
    gang.resize(2)
    gang.until_full(2)
    assert gang.pids().items() <= middle.items()
    gone = wait_until("the end of the third", lambda: gang.exits(), CHANGE_TIMEOUT_SECONDS)
    assert [event["data"]["outcome"] for event in gone] == ["released"]
    gang.finish(undisturbed)


@pytest.mark.release
def test_a_joiner_that_is_killed_while_it_warms_up_is_tried_again(
    three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]
) -> None:
    gang = Gang(three, tmp_path / "code", 2, Fault(rank=2, step=1))  # its rehearsal
    before = gang.pids()
    gang.resize(3)
    gang.until_full(3)
    assert (tmp_path / "code" / "fault.2.1.SIGKILL.done").exists()
    assert before.items() <= gang.pids().items()
    gang.finish(undisturbed)


def test_a_joiner_that_is_killed_while_it_joins_is_tried_again(three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    gang = Gang(three, tmp_path / "code", 2)
    before = gang.pids()
    with stopped(agent_of(three, next(iter(before)))):  # somebody is not told, so that the change stays pending
        gang.resize(3)
        gang.until_state("resizing")
        joiner = wait_until("the joiner", lambda: gang.newcomer(before), CHANGE_TIMEOUT_SECONDS)
        os.kill(joiner["pid"], signal.SIGKILL)
    full = gang.until_full(3)
    assert next(rank["pid"] for rank in full["ranks"] if rank["node_name"] == joiner["node_name"]) != joiner["pid"]
    assert before.items() <= gang.pids().items()
    gang.finish(undisturbed)


def test_a_rank_that_dies_while_a_change_is_pending(three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    gang = Gang(three, tmp_path / "code", 2)
    victim, survivor = gang.members()
    with stopped(agent_of(three, survivor["node_name"])):
        gang.resize(3)
        gang.until_state("resizing")
        os.kill(victim["pid"], signal.SIGKILL)
    gang.until_full(3)
    assert gang.pids()[survivor["node_name"]] == survivor["pid"]
    gang.finish(undisturbed)


@pytest.mark.release
def test_an_agent_that_is_killed_while_a_change_is_pending(three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    gang = Gang(three, tmp_path / "code", 2)
    before = gang.pids()
    agent = agent_of(three, gang.members()[0]["node_name"])
    with stopped(agent):
        gang.resize(3)
        gang.until_state("resizing")
        generation = gang.job["generation"]
        agent.kill()
        agent.wait(10)
    three.up(three.port, agents=AGENTS)
    assert gang.until_full(3)["generation"] == generation, gang.story()  # that very change
    assert before.items() <= gang.pids().items()
    gang.finish(undisturbed)


@pytest.mark.release
def test_a_drained_nodes_rank_moves_elsewhere(three: Stack, tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    """Last: the node does not come back."""
    gang = Gang(three, tmp_path / "code", 2)
    before = gang.pids()
    leaving = gang.members()[0]
    assert three.client.delete(f"/cluster/nodes/{leaving['node_id']}").status_code in (200, 202, 204)
    gang.until_full(2, beyond=1)
    after = gang.pids()
    assert leaving["node_name"] not in after
    assert {name: pid for name, pid in before.items() if name != leaving["node_name"]}.items() <= after.items()
    gang.finish(undisturbed)
