"""What an agent knows of its ranks, from what they say, while they change places too."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.ranks.launch import keep
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.protocol import RankKey
from paceline.cluster.states import RankState
from paceline.training.link import Moving, Parked, ProcessIdentity, RankHello, RankOrder, Stalled
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import training_job, world

NOW = 100.0
JOB = "01J00000000000000000000000"
STALLED = Stalled(step=7, phase="exchange", seconds=2.0, limit=1.0, patience=30.0, since=1.0, unanswered=(1,))


@pytest.fixture
def table(tmp_path: Path) -> RankTable:
    return RankTable(AgentFolder(tmp_path))


def order(generation: int, rank: int, birth: ProcessIdentity | None = None, *, parked: bool = False) -> RankOrder:
    place = world(JOB, rank, 4, generation, birth=birth, at_boundary=birth is not None, parked=parked)
    return RankOrder(spec=StoredSpec({}), world=place, folder="/nowhere", agent_socket="/nowhere")


def stall_of(table: RankTable, rank: RankRecord) -> Stalled | None:
    return table.ranks[rank.key].stall


def test_a_rank_that_stalls_on_its_way_to_a_boundary_is_stalled_in_its_next_place(table: RankTable) -> None:
    old = table.add(order(1, 2))
    new = table.move(old.key, order(2, 1, birth=ProcessIdentity(1, 2)))
    assert table.on_message(old.key, STALLED, NOW)
    found = stall_of(table, new)
    assert found is not None
    assert (found.step, found.unanswered) == (7, ())  # rank 1 of that generation is somebody else in this one
    assert table.on_message(old.key, Moving(), NOW)
    assert stall_of(table, new) is None


def test_a_rank_that_stalls_where_it_is_names_its_peers(table: RankTable) -> None:
    rank = table.add(order(1, 2))
    table.add(order(1, 3))
    assert table.on_message(rank.key, STALLED, NOW)
    assert stall_of(table, rank) == STALLED
    assert table.ranks[RankKey(JOB, 1, 3)].stall is None


@pytest.mark.parametrize(("parked", "state"), [(True, RankState.PARKED), (False, RankState.STARTING)])
def test_a_warm_process_that_stays_parked_is_not_taken_for_one_that_is_still_starting(
    table: RankTable, parked: bool, state: RankState
) -> None:
    old = table.add(order(1, 4, parked=True))
    table.change(old.key, phase=RankPhase.ALIVE, pid=7)
    assert table.on_message(old.key, Parked(), NOW)
    assert not table.on_message(old.key, Parked(), NOW)  # said again: nothing to report
    new = table.move(old.key, order(2, 3, birth=ProcessIdentity(1, 4), parked=parked))
    table.on_message(new.key, RankHello(job_id=JOB, generation=2, rank=3, pid=7, birth=ProcessIdentity(1, 4)), NOW)
    assert (table.ranks[old.key].state, table.ranks[new.key].state) == (RankState.MOVED, state)


def test_an_order_that_was_prepared_by_an_agent_that_ended_does_not_stay_for_ever(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path)
    ranks = [RankFolder(folder.path, JOB, generation, 0) for generation in (1, 2, 3)]
    for generation, rank in enumerate(ranks, 1):
        place = world(JOB, generation=generation)
        keep(RankOrder(spec=StoredSpec(training_job()), world=place, folder=str(rank.path), agent_socket="/nowhere"))
    for rank in ranks[:2]:
        rank.output.touch()
    ranks[1].preparing.touch()
    table = RankTable(folder)
    table.load()
    assert set(table.ranks) == {RankKey(JOB, 1, 0)}
    assert [rank.order.exists() for rank in ranks] == [True, False, False]
