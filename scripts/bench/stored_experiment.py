"""An experiment that has ended, written straight into the databases: as many trials and steps as are asked for, with the records of their ranks.

data = Path(tempfile.mkdtemp())
experiment_id = asyncio.run(write_experiment(data, None, StoredExperiment(trials=1000, steps=1000)))
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import EndReason, JobState, NodeState, RankState
from paceline.db.base import new_id
from paceline.db.migrate import upgrade_all
from paceline.db.models.experiments import ExperimentRow, TrialRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.metrics import MetricRecordRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import ingest, rollups
from paceline.db.repositories.ingest import Row
from paceline.db.session import Database, open_databases
from paceline.monitoring.points import STEP_PARTS
from paceline.monitoring.rollup import all_levels
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
#: Trials of which the records are made up anew; the others have the records of one of these.
PATTERNS = 40
BATCHES = (16, 32, 64, 128, 256)
LEARNING_RATES = 20
REPEATS = 5


@dataclass(frozen=True)
class StoredExperiment:
    """Trials over two strategies, five batch sizes and as many learning rates as it takes, five repeats of each, two ranks."""

    trials: int
    steps: int
    name: str = "sweep"
    description: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        rates = [1e-4 * 1.3**at for at in range(math.ceil(self.trials / (2 * len(BATCHES) * REPEATS)))]
        axes = {"parallelism.strategy": ["ddp", "fsdp"], "training.global_batch_size": list(BATCHES), "optimizer.lr": rates}
        return {
            "version": 1,
            "name": self.name,
            "project": "bench",
            "description": self.description,
            "job": _job("ddp", 16, 1e-3, self.steps),
            "grid": axes,
            "repeats": REPEATS,
        }

    def cells(self) -> Iterator[dict[str, Any]]:
        """The values of each trial, in the order of the grid."""
        grid = self.spec["grid"]
        for index in range(self.trials):
            at = index // REPEATS
            yield {
                path: values[at // span % len(values)] for (path, values), span in zip(grid.items(), (1, 2, 2 * len(BATCHES)), strict=True)
            }


def _job(strategy: str, batch: int, rate: float, steps: int) -> dict[str, Any]:
    return {
        "name": "trial",
        "project": "bench",
        "model": {"kind": "mlp", "hidden": [16]},
        "data": {"kind": "digits"},
        "optimizer": {"kind": "adamw", "lr": rate},
        "parallelism": {"strategy": strategy},
        "resources": {"slots": 2},
        "training": {"steps": steps, "global_batch_size": batch},
    }


async def write_experiment(data: Path, database_url: str | None, order: StoredExperiment) -> str:
    """Write it to new databases, or to those that are there. Returns the experiment's id."""
    control, metrics = open_databases(data, database_url)
    try:
        await upgrade_all(control, metrics)
        async with control.write() as session:
            experiment_id, job_ids = await _write_rows(session, order)
        await _write_metrics(metrics, order, job_ids)
    finally:
        await control.close()
        await metrics.close()
    return experiment_id


async def _write_metrics(metrics: Database, order: StoredExperiment, job_ids: Sequence[str]) -> None:
    made = {seed: list(_values(seed, order.steps)) for seed in range(min(PATTERNS, order.trials))}
    buckets = {seed: list(_buckets(steps)) for seed, steps in made.items()}
    for first in range(0, len(job_ids), 100):
        async with metrics.write() as session:
            for at, job_id in enumerate(job_ids[first : first + 100], first):
                await _write_points(session, job_id, made[at % len(made)], buckets[at % len(made)])
    async with metrics.write() as session:
        newest = await session.scalar(select(func.max(MetricRecordRow.seq))) or 0
        await rollups.move_marks(session, {rollups.EVERY_RANK: newest})


async def _write_rows(session: AsyncSession, order: StoredExperiment) -> tuple[str, list[str]]:
    """(the experiment's id, the ids of its jobs in the order of the trials)."""
    node = NodeRow(
        name=f"bench-{order.name}",
        state=NodeState.READY,
        state_since=START,
        credential_hash=new_id(),
        slots=2,
        inventory={"hostname": "bench"},
        joined_at=START,
    )
    experiment = ExperimentRow(
        name=order.name, project="bench", state="completed", spec=order.spec, axes=list(order.spec["grid"]), created_by="bench", created_by_id=None,
        created_at=START, state_since=START, ended_at=START, settled=True, best_trial=None, best_metric=None,
    )  # fmt: skip
    session.add_all([node, experiment])
    await session.flush()
    rows: dict[type[Any], list[dict[str, Any]]] = {JobRow: [], GenerationRow: [], RankRow: [], TrialRow: []}
    for index, values in enumerate(order.cells()):
        began = START + timedelta(seconds=30 * index)
        ended = began + timedelta(seconds=0.11 * order.steps + 2)
        document = _job(values["parallelism.strategy"], values["training.global_batch_size"], values["optimizer.lr"], order.steps)
        job_id = new_id()
        rows[JobRow].append(_job_columns(job_id, f"{order.name}-{index}", document, began, ended))
        rows[GenerationRow].append(
            {
                "job_id": job_id,
                "generation": 1,
                "world_size": 2,
                "started_at": began,
                "ended_at": ended,
                "store_token": "t",
                "end_reason": EndReason.COMPLETED,
            }
        )
        rows[RankRow] += [
            {"job_id": job_id, "generation": 1, "rank": rank, "node_id": node.id, "slot": rank, "local_rank": rank, "node_rank": 0,
             "state": RankState.EXITED, "drained": True, "updated_at": ended}
            for rank in range(2)
        ]  # fmt: skip
        rows[TrialRow].append(
            {"experiment_id": experiment.id, "index": index, "key": str(index), "configuration": index // REPEATS, "repeat": index % REPEATS,
             "values": values, "world_size": 2, "document": document, "job_id": job_id, "rungs": []}
        )  # fmt: skip
    for table, found in rows.items():
        await session.execute(insert(table), found)
    return experiment.id, [row["id"] for row in rows[JobRow]]


def _job_columns(job_id: str, name: str, document: dict[str, Any], began: datetime, ended: datetime) -> dict[str, Any]:
    return {
        "id": job_id,
        "name": name,
        "project": "bench",
        "priority": 0,
        "state": JobState.COMPLETED,
        "end_reason": EndReason.COMPLETED,
        "spec": StoredSpec(JobSpec.model_validate(document).model_dump(mode="json")),
        "world_size": 2,
        "generation": 1,
        "created_by": "bench",
        "created_at": began,
        "queued_at": began,
        "started_at": began,
        "state_since": ended,
        "ended_at": ended,
        "ran_seconds": (ended - began).total_seconds(),
    }


def _values(seed: int, steps: int) -> Iterator[tuple[int, float, dict[str, float]]]:
    """(step, time, values) of rank 0, as a trainer reports them."""
    noise, time = random.Random(seed), START.timestamp()
    for step in range(1, steps + 1):
        seconds = 0.1 * (1 + 0.02 * (seed % 5)) * noise.lognormvariate(0, 0.05)
        time += seconds + 0.002
        shares = dict(zip(STEP_PARTS, (0.04, 0.26, 0.48, 0.12, 0.08, 0.02), strict=True))
        yield step, time, {
            "loss": 2.3 * math.exp(-step / (200 + 5 * seed)) + 0.4 + noise.gauss(0, 0.02),
            "learning_rate": 1e-3,
            "gradient_norm": noise.lognormvariate(0, 0.3),
            "samples_per_second": 32 / seconds,
            "first_sample": 32.0 * (step - 1),
            "samples": 32.0,
            "epoch_samples": 1437.0,
            "step_seconds": seconds,
            "memory_bytes": 2.1e8,
            "peak_memory_bytes": 2.4e8 + 1e6 * seed,
            "replicate_sent_bytes": 1.8e6,
            "overlapped_communication_seconds": 0.01,
            **{name: share * seconds for name, share in shares.items()},
        }  # fmt: skip


def _buckets(steps: Sequence[tuple[int, float, dict[str, float]]]) -> Iterator[tuple[Any, ...]]:
    """The columns of roll-ups behind the job's id."""
    for name in steps[0][2]:
        for level, buckets in all_levels((step, time, values[name]) for step, time, values in steps).items():
            for number, each in buckets.items():
                yield (
                    name,
                    0,
                    level,
                    number,
                    1,
                    each.count,
                    each.nan_count,
                    each.minimum,
                    each.maximum,
                    each.sum,
                    each.last,
                    each.last_step,
                    each.last_time,
                )


async def _write_points(
    session: AsyncSession, job_id: str, steps: Sequence[tuple[int, float, dict[str, float]]], buckets: Sequence[tuple[Any, ...]]
) -> None:
    records: list[Row] = [(job_id, 1, 0, step, time, json.dumps(values, separators=(",", ":"))) for step, time, values in steps]
    await ingest.insert_records(session, records)
    await ingest.add_names(session, [(job_id, name) for name in steps[0][2]])
    await rollups.merge(session, [(job_id, *bucket) for bucket in buckets])
