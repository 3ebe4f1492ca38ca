"""A cable is pulled, or a machine is gone without a word: the others go on, and whoever was cut off never trains on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from paceline.monitoring.points import MetricRecord
from paceline.monitoring.spool import SpoolReader
from tests.e2e.netns import Cable, Site, site
from tests.e2e.stack import wait_until
from tests.faults import faulty_job

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 600
CUT_AT = 40
NOTICE_SECONDS = 90.0


@pytest.fixture(scope="module")
def three_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("cut"), machines=3) as found:
        yield found


def start(stack: Site, folder: Path, name: str) -> tuple[str, dict[int, dict[str, Any]]]:
    """A job that has come to step CUT_AT, and where its ranks are."""
    fault_tolerance = {"recovery": "close_up", "max_restarts": 0}
    job_id = stack.submit(faulty_job(folder, nodes=3, steps=STEPS, fault_tolerance=fault_tolerance) | {"name": name})
    stack.wait_for_step(job_id, CUT_AT, timeout=NOTICE_SECONDS)
    return job_id, {rank["rank"]: rank for rank in stack.job(job_id)["ranks"]}


def assert_the_others_finish(stack: Site, job_id: str, cut_off: int, *words: str) -> dict[str, Any]:
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=NOTICE_SECONDS)
    assert (done["state"], done["restarts"], done["generation"]) == ("completed", 0, 2), done
    assert sorted(step for step, _ in stack.raw_curve(job_id)) == list(range(1, STEPS + 1))
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["action"], incident["cause"], incident["steps_lost"]) == ("closed_up", "hang", 0), incident
    assert incident["culprit"]["rank"] == cut_off
    for word in words:
        assert word in incident["why"], incident["why"]
    return dict(incident)


def slots(stack: Site) -> dict[str, list[str | None]]:
    """The job in each slot of each machine."""
    return {node["name"]: [slot["job_id"] for slot in node["slots"]] for node in stack.get("/cluster/nodes")["items"]}


def newest_step(stack: Site, machine: str, job_id: str, generation: int, rank: int) -> int:
    """That a rank has committed, as its own machine has it on disk."""
    spool = stack.data / "agents" / machine / "jobs" / job_id / f"g{generation}" / f"rank{rank}" / "metrics.spool"
    reader, newest = SpoolReader(spool), 0
    while records := list(reader.read()):
        newest = max(newest, *(msgspec.json.decode(record, type=MetricRecord).step for record in records))
    return newest


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.release), 2])
@pytest.mark.parametrize(
    "cables", [pytest.param(("data", "control"), id="all", marks=pytest.mark.release), pytest.param(("data",), id="data-only")]
)
def test_who_is_cut_off_is_left_behind_and_comes_back_with_empty_hands(
    three_machines: Site, tmp_path: Path, victim: int, cables: tuple[Cable, ...]
) -> None:
    stack = three_machines
    job_id, ranks = start(stack, tmp_path / "code", f"cut-{victim}-{'-'.join(cables)}")
    machine, pid = ranks[victim]["node_name"], ranks[victim]["pid"]
    spawner = psutil.Process(pid).parents()[1].pid
    stack.network.cut(machine, *cables)
    try:
        incident = assert_the_others_finish(stack, job_id, victim, f"rank {victim} cannot be reached", "wait(s) in call")
        assert newest_step(stack, machine, job_id, 1, victim) <= incident["resumed_step"] + 1  # that one was under way
    finally:
        stack.network.mend(machine)
    wait_until("the end of the rank that was cut off", lambda: not psutil.pid_exists(pid), NOTICE_SECONDS)
    wait_until("its machine's return", lambda: set(stack.node_states().values()) == {"ready"}, NOTICE_SECONDS)
    assert psutil.pid_exists(spawner), "its agent has adopted what was there"
    wait_until("its slot", lambda: slots(stack)[machine] == [None], NOTICE_SECONDS)


def test_a_machine_that_is_gone_without_a_word(three_machines: Site, tmp_path: Path) -> None:
    """The last of this module: it does not come back."""
    job_id, ranks = start(three_machines, tmp_path / "code", "gone")
    three_machines.lose_power(ranks[1]["node_name"])
    assert_the_others_finish(three_machines, job_id, 1, "rank 1 cannot be reached", "wait(s) in call")
