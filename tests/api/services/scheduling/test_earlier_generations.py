"""What earlier generations of a job say of where it should be placed: on both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.scheduling.earlier_generations import LEFT_OUT, EarlierGenerations, read
from paceline.cluster.policy.failures import UNREACHABLE
from paceline.cluster.states import CheckpointState, JobState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.training.link import FailureReport
from tests import factories

NOW = factories.START
SHARED = {"checkpoint": {"directory": "/shared"}}


async def add_node(session: AsyncSession, name: str, disk: str | None) -> NodeRow:
    node, _ = await factories.create_node(session, name=name, inventory={"checkpoint_disk": disk})
    return node


async def waits(session: AsyncSession, **columns: Any) -> JobRow:
    known: dict[str, Any] = {"generation": 1} | columns
    return await factories.create_job(session, **known)


async def failed(session: AsyncSession, node: NodeRow, *, pid: int | None = None, **said: Any) -> JobRow:
    """A job that waits since its rank on `node` has failed."""
    job = await factories.create_running_job(session, node)
    job.state = JobState.RECOVERING
    rank = await session.get_one(RankRow, (job.id, 1, 0))
    rank.state, rank.outcome, rank.pid, rank.drained = RankState.EXITED, "failed", pid, True
    report: dict[str, Any] = {"kind": "exit", "rank": 0, "message": "cannot start"} | said
    rank.failure = msgspec.to_builtins(FailureReport(**report))
    await session.flush()
    return job


async def look(session: AsyncSession, *jobs: JobRow, later: timedelta = timedelta()) -> EarlierGenerations:
    return await read(session, jobs, await node_rows.present(session), NOW + later)


async def test_a_job_prefers_the_nodes_that_share_the_folder_of_its_newest_checkpoint(services: Services) -> None:
    async with services.write() as session:
        a, b = await add_node(session, "a", "one"), await add_node(session, "b", "two")
        also_a = await add_node(session, "also-a", "one")
        job, other, new = await waits(session), await waits(session), await waits(session, generation=0)
        session.add_all([factories.checkpoint(job, node, step=step) for node, step in ((a, 20), (b, 10))])
        session.add(factories.checkpoint(job, b, step=30, state=CheckpointState.DAMAGED))
        session.add(factories.checkpoint(other, b, step=5))
        await session.flush()
        found = await look(session, job, other, new)
        assert found.prefers == {job.id: {a.id, also_a.id}, other.id: {b.id}}
        assert (found.request_of(job).prefers, found.request_of(new).prefers) == (found.prefers[job.id], frozenset())


async def test_no_node_is_preferred_for_a_folder_that_many_may_see(services: Services) -> None:
    async with services.write() as session:
        a, mounts = await add_node(session, "a", "one"), await add_node(session, "mounts", None)
        named, mounted = await waits(session, spec=factories.job_spec(**SHARED)), await waits(session)
        session.add_all([factories.checkpoint(named, a, step=1), factories.checkpoint(mounted, mounts, step=1)])
        await session.flush()
        assert (await look(session, named, mounted)).prefers == {}


async def test_a_job_that_starts_from_another_ones_checkpoint_prefers_the_node_that_has_it(services: Services) -> None:
    async with services.write() as session:
        a = await add_node(session, "a", "one")
        first, named = await waits(session), await waits(session, spec=factories.job_spec(**SHARED))
        origin, elsewhere = factories.checkpoint(first, a, step=1), factories.checkpoint(named, a, step=1)
        session.add_all([origin, elsewhere])
        await session.flush()
        own_folder = await waits(session, generation=0, restored_from=origin.id, spec=factories.job_spec(**SHARED))
        of_shared = await waits(session, generation=0, restored_from=elsewhere.id)
        assert (await look(session, own_folder, of_shared)).prefers == {own_folder.id: {a.id}}


async def test_a_node_that_could_not_start_a_rank_is_left_out_for_a_while(services: Services) -> None:
    async with services.write() as session:
        a = await add_node(session, "a", None)
        job = await failed(session, a)
        assert (await look(session, job)).leaves_out == {job.id: {a.id}}
        assert (await look(session, job)).request_of(job).leaves_out == {a.id}
        assert (await look(session, job, later=LEFT_OUT)).leaves_out == {}


async def test_a_node_on_which_a_rank_failed_by_itself_is_not_left_out(services: Services) -> None:
    async with services.write() as session:
        a = await add_node(session, "a", None)
        jobs = [
            await failed(session, a, exit_code=1),
            await failed(session, a, pid=7),
            await failed(session, a, ordered=True),
            await failed(session, a, kind="invalid_input"),
            await failed(session, a, pid=7, kind="exception", exception="ValueError", exit_code=1),
        ]
        assert (await look(session, *jobs)).leaves_out == {}


async def test_a_checkpoint_that_one_node_could_not_read_is_not_looked_for_on_others_that_do_not_share_the_folder(
    services: Services,
) -> None:
    async with services.write() as session:
        home, a, b = [await add_node(session, name, f"of {name}") for name in ("home", "a", "b")]
        await add_node(session, "mounts", None)
        unreadable: dict[str, Any] = {"pid": 7, "kind": "exception", "exception": UNREACHABLE, "exit_code": 1}
        job, unknown = await failed(session, a, **unreadable), await failed(session, a, **unreadable)
        session.add(factories.checkpoint(job, home, step=1))
        await session.flush()
        found = await look(session, job, unknown)
        assert found.leaves_out == {job.id: {a.id, b.id}, unknown.id: {a.id}}


async def test_a_job_goes_on_on_the_device_that_it_has_run_on(services: Services) -> None:
    async with services.write() as session:
        gpu, _ = await factories.create_node(session, name="g", device="cuda")
        cpu = await add_node(session, "c", None)
        on_gpu, on_cpu = await factories.create_running_job(session, gpu), await factories.create_running_job(session, cpu)
        chosen = await factories.create_running_job(session, cpu, spec=factories.job_spec(resources={"device": "cuda"}))
        refused, new = await failed(session, gpu), await waits(session, generation=0)
        gpu.device = "cpu"  # its agent offers no cards any more
        await session.flush()
        found = await look(session, on_gpu, on_cpu, chosen, refused, new)
        wanted = [found.request_of(job).requirements for job in (on_gpu, on_cpu, chosen, refused, new)]
        assert [(each.device, each.has_run) for each in wanted] == [
            ("cuda", True),
            ("cpu", True),
            ("cuda", False),
            (None, False),
            (None, False),
        ]


async def test_a_script_goes_back_to_the_slots_where_its_own_folder_is(services: Services) -> None:
    """The last generation counts that had a process: one that could not start left nothing anywhere."""
    script: dict[str, Any] = {"script": {"path": "t.py"}, "model": None, "data": None, "training": None}
    elsewhere = script | {"environment": {"working_directory": "/srv/shared"}}
    async with services.write() as session:
        a, b = await add_node(session, "a", "one"), await add_node(session, "b", "two")
        own = await factories.create_running_job(session, b, spec=factories.job_spec(**script))
        own.generation = 2
        session.add(GenerationRow(job_id=own.id, generation=2, world_size=1, started_at=NOW, store_token="t"))
        await session.flush()
        for generation, rank in ((1, 1), (2, 0)):
            session.add(
                RankRow(
                    job_id=own.id,
                    generation=generation,
                    rank=rank,
                    node_id=a.id,
                    slot=rank,
                    local_rank=0,
                    node_rank=generation % 2,
                    state=RankState.EXITED,
                    updated_at=NOW,
                )
            )
        shared = await factories.create_running_job(session, b, spec=factories.job_spec(**elsewhere))
        trains = await factories.create_running_job(session, b)
        await session.flush()
        found = await look(session, own, shared, trains)
        assert found.last_held == {own.id: ((b.id, 1), (a.id, 1))}
        assert found.request_of(own).last_held == ((b.id, 1), (a.id, 1))


async def test_a_job_that_ran_on_nodes_whose_mounts_differ_sees_one_folder(services: Services) -> None:
    """It lies behind a link: the job was placed on both nodes before their agents told of mounts, and has to be after the next fault."""
    async with services.write() as session:
        proven, not_yet, alone = [await ran_on_two(session, name) for name in ("proven", "not-yet", "alone")]
        (await session.get_one(RankRow, (alone.id, 1, 1))).node_id = (await session.get_one(RankRow, (alone.id, 1, 0))).node_id
        for job in (proven, alone):
            (await session.get_one(GenerationRow, (job.id, 1))).first_step_at = NOW
        await session.flush()
        found = await look(session, proven, not_yet, alone)
        assert found.see_one_folder == {proven.id}
        assert [found.request_of(job).one_folder for job in (proven, not_yet, alone)] == [False, True, True]


async def ran_on_two(session: AsyncSession, name: str) -> JobRow:
    """A job that names a folder, with a rank on each of two machines that have nothing mounted."""
    machines = [f"{name}-{number}" for number in range(2)]
    nodes = [(await factories.create_node(session, name=each, inventory={"machine": each, "shared_mounts": []}))[0] for each in machines]
    spec = factories.job_spec(**SHARED, resources={"nodes": 2}, parallelism={"strategy": "ddp"})
    job = await factories.create_running_job(session, nodes[0], spec=spec)
    (await session.get_one(RankRow, (job.id, 1, 1))).node_id = nodes[1].id
    await session.flush()
    return job
