"""What the loops over data, pools, experiments and news have to do in a cluster of `any_order.py`.

Three ends are cut short, because they would leave the process: nodes of pools are asked for at `FakeProvisioner`, mail has no server, and long
histories are read, and experiments analyzed, in this process.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update

from paceline.api.core.identity import SYSTEM, Caller
from paceline.api.errors import ProblemError
from paceline.api.services.experiments import expansion, experiments
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.lifecycle import events
from paceline.api.services.nodes import launches, pools
from paceline.api.services.storage import removals
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.cluster.history.notifications import NotificationEvent
from paceline.cluster.provisioners.settings import PoolSpec
from paceline.cluster.states import CheckpointState
from paceline.db.base import MetricsBase, new_id
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.experiments import ExperimentRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.metrics import MetricRollupRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.notifications import ChannelRow, DeliveryRow, RuleRow
from paceline.monitoring.points import RankBatch
from tests import factories, readings

if TYPE_CHECKING:
    from tests.any_order import AnyCluster

ADA = Caller(user_id="u", name="ada", role="admin", kind="key", credential="")
POOL = PoolSpec.model_validate(
    {
        "name": "lab",
        "provider": {"type": "ssh", "hosts": ["ada@gpu1", "ada@gpu2"]},
        "slots": 2,
        "autoscale": {"device": "cpu", "idle_seconds": 60, "discards_checkpoints": True},
    }
)
SWEEP = ExperimentSpec.model_validate(
    {
        "name": "lr",
        "job": factories.job_spec(optimizer={"kind": "sgd"}).model_dump(
            mode="json", include={"name", "model", "data", "optimizer", "parallelism", "training"}
        ),
        "grid": {"optimizer.lr": [0.1, 0.01]},
        "metric": {"name": "loss"},
    }
)
ADDRESS = "http://127.0.0.1:8080"


class ReadsHere(HeavyReads):
    """Reads long histories in this process: another one takes seconds to start."""

    async def _elsewhere(self, work: Any) -> Any:
        return await work(self.services.control, self.services.metrics)


class AnyData:
    """Stores what ranks and nodes send, and asks for what users ask for."""

    def __init__(self, cluster: AnyCluster) -> None:
        self.cluster, self.services = cluster, cluster.services
        self._writer = MetricsWriter(self.services.metrics, self.services.bus, lambda: cluster.now)
        self._sent: Counter[tuple[str, int, int]] = Counter()
        self._spools = self._experiments = 0

    async def points(self, job_id: str, rank: int, first: int, count: int) -> None:
        """Points and lines of a rank, whether or not there is such a rank by now."""
        generation = (await self.cluster.job(job_id)).generation
        place = (job_id, generation, rank)
        metrics = factories.records(first, count, seq=self._sent[place] + 1)
        lines = factories.log_lines(count, seq=self._sent[place] + 1)
        self._sent[place] += count
        batch = RankBatch(job_id=job_id, generation=generation, rank=rank, metrics=metrics, logs=lines)
        async with self._writer.running():
            await self._writer.store([batch])

    async def readings(self, node_id: str) -> None:
        self._spools += 1
        columns = {"host": {"load_1m": [1.0, 2.0]}}
        await readings.store(self.services, node_id, self.cluster.now.timestamp(), columns, spool=self._spools)

    async def damage(self, table: type[Any], where: Any, **values: Any) -> None:
        """Leave values in rows of either database that no version has written."""
        database = self.services.metrics if issubclass(table, MetricsBase) else self.services.control
        async with database.write() as session:
            await session.execute(update(table).where(where).values(**values))

    async def checkpoint(self, job_id: str, node_id: str, step: int, state: CheckpointState) -> None:
        async with self.services.write() as session:
            job, node = await session.get(JobRow, job_id), await session.get(NodeRow, node_id)
            assert job is not None
            assert node is not None
            folder = f"/checkpoints/{job_id}/{new_id()}"
            session.add(factories.checkpoint(job, node, step=step, state=state, directory=folder, created_at=self.cluster.now))

    async def artifact(self, job_id: str, node_id: str, kind: str, *, arrived: bool) -> None:
        columns: dict[str, Any] = {"generation": 1, "rank": 0, "first_step": 1, "last_step": 2, "bytes": 1, "sha256": "0" * 64}
        columns |= {"path": "rank0/a", "folder": "rank0"} if kind == "file" else {}
        now = self.cluster.now
        async with self.services.write() as session:
            stored = now if arrived else None
            row = ArtifactRow(job_id=job_id, node_id=node_id, kind=kind, created_at=now, stored_at=stored, **columns)
            row.name = row.id = new_id()
            session.add(row)

    async def event(self, job_id: str, type: str, data: Any) -> None:
        async with self.services.write() as session:
            row = await events.record(session, type=type, actor=SYSTEM, cause="", message="", job_id=job_id, time=self.cluster.now)
            row.data = data

    async def remove(self, job_id: str, *, with_checkpoints: bool) -> None:
        """As a user may: what is refused changes nothing."""
        try:
            async with self.services.write() as session:
                await removals.ask(session, job_id, ADA.actor, self.cluster.now, with_checkpoints=with_checkpoints)
        except ProblemError as refused:
            if refused.status >= 500:
                raise

    async def pool(self) -> None:
        async with self.services.write() as session:
            await pools.apply(session, POOL, "", ADDRESS, ADA.actor, self.cluster.now)

    async def ask_for_node(self) -> None:
        try:
            async with self.services.write() as session:
                await launches.request_of_pool(session, POOL.name, 1, "", ADA.actor, "ada asked for it", self.cluster.now)
        except ProblemError as refused:
            if refused.status >= 500:
                raise

    async def experiment(self) -> str:
        self._experiments += 1
        spec = SWEEP.model_copy(update={"name": f"sweep-{self._experiments}"})
        grid = await expansion.expanded(self.services, spec)
        async with self.services.write() as session:
            return (await experiments.post(session, spec, grid, ADA, self.services)).id

    async def end_experiments(self) -> None:
        """As once all trials have ended: from then on an analysis is due."""
        await self.damage(ExperimentRow, ExperimentRow.ended_at.is_(None), state="completed", settled=True, ended_at=self.cluster.now)

    async def ask_of_experiments(self, what: str) -> None:
        async with self.services.control.read() as session:
            ids = list(await session.scalars(select(ExperimentRow.id)))
        for experiment_id in ids:
            try:
                async with self.services.write() as session:
                    row = await experiments.find(session, experiment_id, lock=True)
                    await getattr(experiments, what)(session, row, "*", ADA.actor, self.cluster.now)
            except ProblemError as refused:
                if refused.status >= 500:
                    raise

    async def channel(self) -> None:
        """A channel whose mail goes nowhere, and a rule that asks for everything."""
        made = {"created_by": "ada", "created_at": self.cluster.now}
        async with self.services.write() as session:
            channel = ChannelRow(name="mail", kind="email", recipients=["ada@example.org"], base_url=ADDRESS, tokens=5.0, **made)
            channel.tokens_at = self.cluster.now
            session.add(channel)
            await session.flush()
            all_events = [each.value for each in NotificationEvent]
            session.add(RuleRow(channel_id=channel.id, events=all_events, queued_minutes=1, goodput_below=0.9, from_seq=0, **made))

    async def curves_of(self, job_id: str) -> int:
        async with self.services.metrics.read() as session:
            return int(await session.scalar(select(func.count()).where(MetricRollupRow.job_id == job_id)) or 0)

    async def told_of(self, job_id: str) -> list[str]:
        """The kinds of facts about a job that are, or were, on their way to the channel."""
        async with self.services.control.read() as session:
            return list(await session.scalars(select(DeliveryRow.event).where(DeliveryRow.job_id == job_id)))
