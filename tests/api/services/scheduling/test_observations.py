"""What agents report, in any order, against what the rows say."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

from paceline.api.core.context import Services
from paceline.api.services.scheduling import observations
from paceline.api.services.scheduling.observations import NodeReport
from paceline.cluster.protocol import Observed, ObservedAssignment, ObservedRank
from paceline.cluster.states import RANK_TRANSITIONS, REPORTED_RANK_STATES, RankState
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from tests import factories

LATER = factories.START + timedelta(seconds=3)
PAIRS = list(product(RankState, RankState))


async def ranks_in(services: Services, states: list[RankState]) -> tuple[str, JobRow]:
    """(a node, a job that has one rank in each of the states on it)."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
        (first,) = (await job_rows.ranks(session, [(job.id, 1)]))[job.id, 1]
        await session.delete(first)
        await session.flush()
        place = {"job_id": job.id, "generation": 1, "node_id": node.id, "local_rank": 0, "node_rank": 0, "updated_at": factories.START}
        session.add_all(RankRow(rank=number, slot=number, state=state, **place) for number, state in enumerate(states))
    return node.id, job


async def report(services: Services, node_id: str, job: JobRow, states: list[RankState]) -> list[RankRow]:
    ranks = tuple(ObservedRank(rank=number, slot=number, state=state) for number, state in enumerate(states))
    observed = Observed(revision=0, assignments=(ObservedAssignment(job_id=job.id, generation=1, ranks=ranks),))
    async with services.write() as session:
        await observations.apply_all(session, [NodeReport(await session.get_one(NodeRow, node_id), observed, LATER)])
    async with services.control.read() as session:
        return list((await job_rows.ranks(session, [(job.id, 1)]))[job.id, 1])


async def test_a_report_advances_a_rank_and_one_that_comes_late_changes_nothing(services: Services) -> None:
    node_id, job = await ranks_in(services, [old for old, _ in PAIRS])
    found = await report(services, node_id, job, [new for _, new in PAIRS])
    advances = [new in RANK_TRANSITIONS[old] and new in REPORTED_RANK_STATES for old, new in PAIRS]
    assert [rank.state for rank in found] == [new if on else old for (old, new), on in zip(PAIRS, advances, strict=True)]
    assert [rank.updated_at == LATER for rank in found] == advances


async def test_the_same_report_twice_changes_nothing_the_second_time(services: Services) -> None:
    told = sorted(REPORTED_RANK_STATES)
    node_id, job = await ranks_in(services, [RankState.ASSIGNED] * len(told))
    first = [(rank.state, rank.updated_at) for rank in await report(services, node_id, job, told)]
    assert [state for state, _ in first] == told
    assert [(rank.state, rank.updated_at) for rank in await report(services, node_id, job, told)] == first


async def test_a_rank_holds_the_card_that_its_agent_offered_when_it_took_the_rank_up(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session, device="cuda", inventory={"gpus": [{"index": 3}, {"index": 5}]})
        job = await factories.create_running_job(session, node, world_size=2)
        for rank in (await job_rows.ranks(session, [(job.id, 1)]))[job.id, 1]:
            rank.state, rank.card = RankState.ASSIGNED, None
    found = await report(services, node.id, job, [RankState.STARTING, RankState.ASSIGNED])
    assert [rank.card for rank in found] == [3, None]
    async with services.write() as session:  # the agent was started again with --gpus 7
        (await session.get_one(NodeRow, node.id)).inventory = {"gpus": [{"index": 7}]}
    found = await report(services, node.id, job, [RankState.RUNNING, RankState.EXITED])
    assert [rank.card for rank in found] == [3, None]
