"""The disk under an agent's data is full, a real one: agent and ranks live, what finds no room is counted and told, and all else arrives."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from paceline.monitoring.recorder import CAPACITY, USERS_SHARE
from scripts.faults.disks import fill, small_disk, why_not
from tests.e2e.conftest import taken_down
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until
from tests.ports import free_port
from tests.processes import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CODE = Path(__file__).parent / "user_code" / "talkative.py"
NODE, RANKS = "local-1", 2
ROOM_MEBIBYTES = 8
STEPS = 20  # what is waited for before and after
LINE_CHARACTERS = 400  # of each batch: the last page of a file, which has room on a full disk too, holds few of them
KEPT = int(CAPACITY * USERS_SHARE)  # of a rank's own points, while the disk takes none
NEWS_SECONDS = 90.0


class SmallNode(NamedTuple):
    """A stack, and the disk of its one agent, which has nothing else on it."""

    stack: Stack
    disk: Path


@pytest.fixture(scope="module")
def small_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallNode]:
    if (reason := why_not()) is not None:
        pytest.skip(f"NO FULL DISK: {reason}")
    folder = tmp_path_factory.mktemp("small")
    with small_disk(folder / "agents" / NODE, ROOM_MEBIBYTES) as disk, taken_down(folder) as stack:
        stack.up(free_port(), agents=1, slots=RANKS)
        yield SmallNode(stack, disk)


@dataclass(frozen=True)
class TalkativeJob:
    """A job on the small node, as the coordinator has it stored."""

    stack: Stack
    folder: Path
    job_id: str

    @classmethod
    def start(cls, stack: Stack, folder: Path) -> TalkativeJob:
        shutil.copy(CODE, folder)
        spec = {
            "name": "talkative",
            "resources": {"nodes": 1, "slots_per_node": RANKS},
            "parallelism": {"strategy": "ddp"},
            "entrypoint": f"{CODE.stem}:make_task",
            "environment": {"working_directory": str(folder)},
            "training": {"steps": 30_000, "global_batch_size": RANKS, "micro_batch_size": 1, "eval_every_steps": None},
            "checkpoint": {"every_steps": None},
        }
        return cls(stack, folder, stack.submit(spec))

    def state(self) -> dict[str, Any]:
        return self.stack.job(self.job_id)

    def processes(self) -> set[int]:
        """The agent's process and those of all ranks."""
        agents = [each.pid for each in self.stack.processes() if "paceline.cluster.agent.main" in command_of(each)]
        return {*agents, *(rank["pid"] for rank in self.state()["ranks"])}

    def wait_for_steps(self, count: int) -> None:
        """Wait until each rank has told its agent of so many further steps."""
        begun = max(rank["step"] for rank in self.state()["ranks"])
        wait_until("further steps", lambda: min(rank["step"] for rank in self.state()["ranks"]) >= begun + count, NEWS_SECONDS)

    def recorded(self, rank: int) -> int:
        """How many points of its own a rank has recorded."""
        file = self.folder / f"recorded.{rank}"
        return int(file.read_text()) if file.exists() else 0

    def trained(self) -> Counter[tuple[int, int]]:
        """How often each (rank, step) of the trainer is stored."""
        return Counter((rank, step) for rank, step, values in self._points() if "step_seconds" in values)

    def own(self, rank: int) -> list[int]:
        return [int(values["own"]) for teller, _, values in self._points() if teller == rank and "own" in values]

    def lines(self, rank: int) -> list[str]:
        query = "SELECT text FROM log_lines WHERE job_id = ? AND rank = ? ORDER BY seq"
        return [text for (text,) in self._rows(query, self.job_id, rank)]

    def _points(self) -> list[tuple[int, int, dict[str, Any]]]:
        rows = self._rows('SELECT rank, step, "values" FROM metric_records WHERE job_id = ?', self.job_id)
        return [(rank, step, json.loads(values)) for rank, step, values in rows]

    def _rows(self, query: str, *parameters: object) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.stack.data / 'metrics.db'}?mode=ro", uri=True)) as database:
            return database.execute(query, parameters).fetchall()


def test_a_full_disk_under_an_agent_ends_neither_it_nor_its_ranks_and_costs_only_what_is_told(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """The agent died of it, and so did the rank that printed the next line; its job stood still then."""
    stack, disk = small_node
    job = TalkativeJob.start(stack, tmp_path)
    stack.wait_for_step(job.job_id, STEPS, timeout=NEWS_SECONDS)
    processes, before = job.processes(), job.trained()
    printed = [len(batches(job.lines(rank))) for rank in range(RANKS)]
    filler = fill(disk)
    (tmp_path / "flood").touch()
    wait_until("more points than are kept", lambda: all(job.recorded(rank) > 2 * KEPT for rank in range(RANKS)), NEWS_SECONDS)
    (tmp_path / "flood").unlink()
    job.wait_for_steps(STEPS)
    assert job.processes() == processes
    assert [node["state"] for node in stack.get("/cluster/nodes")["items"]] == ["ready"]
    assert "acknowledged cannot be saved" in (stack.data / "run" / f"{NODE}.log").read_text()
    filler.unlink()
    job.wait_for_steps(STEPS)
    stack.change("PUT", job.job_id, "pause")
    paused = stack.wait_for_state(job.job_id, "paused", "failed", timeout=NEWS_SECONDS)
    assert (paused["state"], paused["generation"], paused["restarts"]) == ("paused", 1, 0), paused
    assert_every_step_is_stored_once(job, before, paused["progress"]["last_checkpoint_step"])
    for rank in range(RANKS):
        assert_lost_points_are_counted(job, rank)
        assert_lost_lines_are_counted(job, rank, printed[rank])
    dropped = [
        event for event in stack.get(f"/training/jobs/{job.job_id}/events", limit=200)["items"] if event["type"] == "rank.data_dropped"
    ]
    assert [event["data"]["what"] for event in dropped] == ["metric records"]


def test_the_node_takes_jobs_afterwards(small_node: SmallNode) -> None:
    """The last of this file: the disk has been full, and has room again."""
    stack, _ = small_node
    job_id = stack.submit(tiny_gpt("afterwards", 10, nodes=1))
    assert stack.wait_for_state(job_id, "completed", "failed", timeout=NEWS_SECONDS)["state"] == "completed"
    assert [step for step, _ in stack.raw_curve(job_id)] == list(range(1, 11))


def assert_every_step_is_stored_once(job: TalkativeJob, before: Counter[tuple[int, int]], last: int) -> None:
    """What was acknowledged before included."""
    expected = Counter((rank, step) for rank in range(RANKS) for step in range(1, last + 1))
    assert before <= expected
    wait_until("all steps", lambda: job.trained() >= expected, NEWS_SECONDS)
    assert job.trained() == expected


def assert_lost_points_are_counted(job: TalkativeJob, rank: int) -> None:
    wait_until("the count of lost points", lambda: dropped_in_all(job.lines(rank)), NEWS_SECONDS)
    (dropped,), own = dropped_in_all(job.lines(rank)), job.own(rank)
    assert len(own) == len(set(own)) > KEPT // 2, "points that find a place in memory are kept"
    assert dropped > 0
    assert len(own) + dropped == job.recorded(rank)


def assert_lost_lines_are_counted(job: TalkativeJob, rank: int, printed: int) -> None:
    """`printed`: how many batches of the rank had been told of before."""
    lines = job.lines(rank)
    lost = [int(found[1]) for line in lines if (found := re.match(r"WARNING (\d+) bytes of output are lost here: No space left", line))]
    whole = batches(lines)
    assert whole == sorted(set(whole))
    missing = set(range(1, whole[-1] + 1)).difference(whole)
    assert missing, "the disk was full for that long"
    assert min(missing) > printed
    assert max(missing) <= whole[-1] - STEPS // 2, "with room again nothing is lost"
    cut_off = sum(line.startswith("batch ") for line in lines) - len(whole)
    assert sum(lost) >= (len(missing) - cut_off) * LINE_CHARACTERS


def batches(lines: list[str]) -> list[int]:
    """The batches that were told of in whole lines."""
    return [int(found[1]) for line in lines if (found := re.fullmatch(r"batch (\d+) \.+", line)) and len(line) >= LINE_CHARACTERS]


def dropped_in_all(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.match(r"WARNING (\d+) records of metrics were dropped in all", line))]
