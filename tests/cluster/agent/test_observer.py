"""What an agent sees of its ranks from outside."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.agent import observer
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.observer import CPU_WINDOW_SECONDS, CpuMeter, RankObserver, program_of, quiet_since
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import training_job, world

NOW = 1_000_000.0
SCRIPT: dict[str, Any] = {"name": "job", "script": {"path": "train.py", "args": ["--lr", "1"]}}


def rank(folder: Path, ages: dict[str, float], spec: dict[str, Any] = SCRIPT, **changes: Any) -> RankRecord:
    """One whose files were changed so many seconds before NOW."""
    for name, age in ages.items():
        path: Path = getattr(RankFolder.at(folder), name)
        path.write_text("")
        os.utime(path, (NOW - age, NOW - age))
    order = RankOrder(spec=StoredSpec(spec), world=world("job"), folder=str(folder), agent_socket="/socket")
    return RankRecord(order=order, phase=RankPhase.ALIVE, pid=7, **changes)


def test_the_newest_of_output_steps_and_events_counts(tmp_path: Path) -> None:
    assert quiet_since(rank(tmp_path, {"order": 900, "output": 400}), 300.0, NOW) == NOW - 400
    assert quiet_since(rank(tmp_path, {"metrics": 200}), 300.0, NOW) is None  # a step, without output
    assert quiet_since(rank(tmp_path, {"metrics": 350, "events": 20}), 300.0, NOW) is None
    assert quiet_since(rank(tmp_path, {"events": 350}), 300.0, NOW) == NOW - 350


def test_a_script_that_says_its_output_is_older_than_time_is_quiet_since_a_time_that_can_be_reported(tmp_path: Path) -> None:
    """The coordinator could not read that time, and so no report of the node."""
    assert quiet_since(rank(tmp_path, {"order": NOW + 5, "output": NOW + 5}), 300.0, NOW) == 0.0


def test_the_spec_wins_over_the_agents_patience(tmp_path: Path) -> None:
    quiet = rank(tmp_path, {"output": 20}, SCRIPT | {"fault_tolerance": {"hang_seconds": 8}})
    assert quiet_since(quiet, 300.0, NOW) == NOW - 20


async def test_a_script_is_not_quiet_because_its_machine_slept(tmp_path: Path) -> None:
    """One with `hang_seconds` was ended as hung within seconds of waking up."""
    folder, patience, slept = AgentFolder(tmp_path), 600.0, 3600.0
    folder.create()
    table = RankTable(folder)
    key = table.add(rank(tmp_path, {"output": 5}).order).key
    table.change(key, phase=RankPhase.ALIVE, pid=os.getpid())
    watching = RankObserver(table, patience, lambda slot: None, lambda: None)
    for seconds in (0.0, 1.0, patience):  # that it was awake
        await watching.look_once(NOW + seconds + (slept if seconds else 0.0), seconds)
        assert table.ranks[key].quiet_since is None
    await watching.look_once(NOW + slept + 1.0 + patience, 1.0 + patience)
    assert table.ranks[key].quiet_since == NOW - 5


async def test_a_quiet_script_is_seen_after_a_clock_that_was_ahead_has_been_set_back(tmp_path: Path) -> None:
    """None was ended as hung until the hour by which the clock had been wrong was over."""
    folder, patience, ahead = AgentFolder(tmp_path), 600.0, 3600.0
    folder.create()
    table = RankTable(folder)
    key = table.add(rank(tmp_path, {"output": 5}).order).key
    table.change(key, phase=RankPhase.ALIVE, pid=os.getpid())
    watching = RankObserver(table, patience, lambda slot: None, lambda: None)
    for now, monotonic in ((NOW, 0.0), (NOW + ahead, 1.0), (NOW + 2.0, 2.0)):
        await watching.look_once(now, monotonic)
        assert table.ranks[key].quiet_since is None
    await watching.look_once(NOW + 2.0 + patience, 2.0 + patience)
    assert table.ranks[key].quiet_since == NOW - 5


def test_our_own_trainer_and_ranks_that_are_told_to_end_are_never_quiet(tmp_path: Path) -> None:
    assert quiet_since(rank(tmp_path, {"output": 900}, training_job()), 300.0, NOW) is None
    assert quiet_since(rank(tmp_path, {"output": 900}, stopping=True), 300.0, NOW) is None
    assert quiet_since(rank(tmp_path / "gone", {}), 300.0, NOW) is None


def test_cpu_time_is_that_of_the_last_seconds() -> None:
    meter = CpuMeter()
    assert meter.cores(7) is None
    for second in range(31):
        meter.note({7: float(min(second, 15)), 8: 0.0}, float(second))  # busy for 15 s, then idle
        if second == 15:
            assert meter.cores(7) == 1.0
    assert (meter.cores(7), meter.cores(8)) == (0.0, 0.0)
    meter.note({7: 15.0}, 31.0)
    assert meter.cores(8) is None
    assert CPU_WINDOW_SECONDS < 15


async def test_proc_is_not_gone_through_at_each_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 4 ms of each second beside 150 processes, and a node of eight cards has a thousand."""
    folder = AgentFolder(tmp_path)
    folder.create()
    table = RankTable(folder)
    key = table.add(rank(tmp_path, {"output": 5}).order).key
    table.change(key, phase=RankPhase.ALIVE, pid=7)
    looks, spent = list[float](), 0.0

    def spend(pids: Iterable[int]) -> dict[int, float]:
        looks.append(spent)
        return dict.fromkeys(pids, spent)

    monkeypatch.setattr(observer, "cpu_seconds_of", spend)
    watching = RankObserver(table, 600.0, lambda slot: None, lambda: None)
    for second in range(22):
        spent = second / 2
        await watching.look_once(NOW + second, float(second))
    assert len(looks) == 6
    assert watching._cpu.cores(7) == 0.5


@pytest.mark.parametrize(
    ("spec", "program"),
    [(SCRIPT, "train.py --lr 1"), ({"script": {"command": ["bash", "run.sh"]}}, "bash run.sh"), (training_job(), "")],
)
def test_a_forked_rank_is_told_by_its_program(spec: dict[str, Any], program: str) -> None:
    assert program_of(StoredSpec(spec)) == program
