"""What a simulated node does with the places of its ranks, beside a coordinator that takes all that is uploaded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx
import msgspec

from paceline.cluster.agent.ranks.reconcile import ForgetRank, MoveRank, StartRank
from paceline.cluster.protocol import RankKey
from paceline.cluster.simulation.clock import SimulatedClock
from paceline.cluster.simulation.cluster import SimulatedCluster
from paceline.cluster.simulation.gang import GangSettings
from paceline.cluster.simulation.machines import H100
from paceline.cluster.simulation.node_ranks import SimulatedNodeRanks
from paceline.monitoring.points import HighWater, Upload, UploadReply
from paceline.training.link import ProcessIdentity
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import training_job, world
from tests.waiting import until

OLD, NEW = RankKey("job", 1, 0), RankKey("job", 2, 0)
SPEC = StoredSpec(training_job() | {"training": {"steps": 400}})


@dataclass
class StoredSteps:
    """Takes uploads as a coordinator does, and keeps the steps of each generation."""

    of: dict[int, list[int]] = field(default_factory=dict)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        batches = msgspec.json.decode(request.content, type=Upload).batches
        for batch in batches:
            self.of.setdefault(batch.generation, []).extend(record.step for record in batch.metrics)
        marks = [
            HighWater(
                job_id=batch.job_id,
                generation=batch.generation,
                rank=batch.rank,
                metrics=max((each.seq for each in batch.metrics), default=0),
                logs=max((each.seq for each in batch.logs), default=0),
                events=max((each.seq for each in batch.events), default=0),
            )
            for batch in batches
        ]
        return httpx.Response(200, content=msgspec.json.encode(UploadReply(acknowledged=marks)))


async def test_the_step_after_which_a_rank_moves_is_not_lost_though_all_before_it_were_uploaded() -> None:
    stored = StoredSteps()
    gangs = SimulatedCluster("", GangSettings(SimulatedClock(speedup=60.0), H100, 1, seed=1))
    async with httpx.AsyncClient(base_url="http://coordinator", transport=httpx.MockTransport(stored)) as http:
        node = SimulatedNodeRanks("node", http, gangs, lambda: None)
        uploading = asyncio.create_task(node.uploader.run())

        def forgotten() -> bool:
            node.note_drained()
            if OLD in node.records and node.records[OLD].drained:
                node.carry_out(ForgetRank(OLD))
            return OLD not in node.records

        node.carry_out(StartRank(world("job"), SPEC))
        await until(lambda: stored.of.get(1) and node.uploader.is_empty(OLD), "an upload of all steps so far")
        node.carry_out(MoveRank(OLD, world("job", generation=2, birth=ProcessIdentity(1, 0), at_boundary=True), SPEC))
        assert not forgotten(), "its process is at its last step there"
        await until(lambda: forgotten() and stored.of.get(2), "the end of the old place, and steps in the new one")
        assert stored.of[1] + stored.of[2] == list(range(1, stored.of[2][-1] + 1))
        uploading.cancel()
        gangs.of(world("job", generation=2), SPEC).dissolve()
