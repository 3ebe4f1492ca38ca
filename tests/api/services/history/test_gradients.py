"""Gradients from the folders of ranks to whoever looks at them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.services.history import gradients
from paceline.cluster.agent.upload.artifacts import ArtifactUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.states import RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.artifacts import RankArtifact, leave_note
from paceline.monitoring.gradient_records import ParameterRecord, RecordedGradients, compress
from paceline.training.rank_folder import RankFolder
from tests import factories
from tests.conftest import Connect
from tests.factories import START

JOBS = "/api/v1/training/jobs"
EDGES = (-1.0, -0.1, -1e-12, 0.0, 1e-12, 0.1, 1.0)


def parameter(name: str, norm: float | None = 1.0, **fields: Any) -> ParameterRecord:
    known: dict[str, Any] = {
        "shape": (4,),
        "sharded": False,
        "elements": 4,
        "zeros": 1,
        "nans": 0,
        "infs": 0,
        "histogram": (0, 1, 0, 0, 0, 2, 0, 0),
    }
    return ParameterRecord(name=name, norm=norm, **known | fields)


@dataclass
class Recorded:
    """A running job of two ranks on one node, in its second generation, whose folders lie in `data`."""

    client: httpx.AsyncClient
    agent: httpx.AsyncClient
    services: Services
    node: NodeRow
    job: JobRow
    data: Path

    def leave(self, rank: int, *parameters: ParameterRecord, step: int = 5, generation: int = 2, unused: tuple[str, ...] = ()) -> None:
        record = RecordedGradients(step=step, parameters=parameters, unused=unused, edges=EDGES)
        self.leave_file(rank, "gradients", compress(record), step=step, generation=generation)

    def leave_file(self, rank: int, kind: Any, content: bytes, *, step: int = 5, generation: int = 2, error: str | None = None) -> None:
        folder = RankFolder(self.data, self.job.id, generation, rank).artifacts
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{kind}-step-{step}"
        if error is None:
            (folder / name).write_bytes(content)
        digest, size = hashlib.sha256(content).hexdigest(), 0 if error else len(content)
        leave_note(
            folder, RankArtifact(name=name, kind=kind, first_step=step, last_step=step, time=1.0, bytes=size, sha256=digest, error=error)
        )

    async def upload(self) -> None:
        await ArtifactUploader(self.agent, JobFolders(self.data / "jobs")).upload_all()

    async def get(self, path: str = "", status: int = 200) -> Any:
        answer = await self.client.get(f"{JOBS}/{self.job.id}/gradients{path}")
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
async def recorded(services: Services, client: httpx.AsyncClient, connect: Connect, tmp_path: Path) -> AsyncIterator[Recorded]:
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        spec = factories.job_spec(parallelism={"strategy": "ddp"}, resources={"nodes": 2}, gradients={"every": 5})
        job = await factories.create_running_job(session, node, spec=spec, generation=2)
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=1, started_at=START, store_token="t"))
        await session.flush()
        place = {"job_id": job.id, "generation": 1, "rank": 0, "node_id": node.id, "slot": 0, "local_rank": 0, "node_rank": 0}
        session.add(RankRow(**place, state=RankState.EXITED, updated_at=START))
    async with connect(credential) as agent:
        yield Recorded(client, agent, services, node, job, tmp_path / "agent")


async def test_a_step_has_each_parameter_of_each_rank_and_their_histograms_added(recorded: Recorded) -> None:
    recorded.leave(0, parameter("head.weight", 3.0), parameter("head.bias", 0.5))
    recorded.leave(1, parameter("head.weight", None, nans=2, zeros=0, histogram=(2, 0, 0, 0, 0, 0, 0, 0)), unused=("head.bias",))
    await recorded.upload()
    assert await recorded.get() == {
        "job_id": recorded.job.id,
        "steps": [{"step": 5, "generation": 2, "ready": 2, "arriving": 0, "failed": 0}],
        "request": None,
    }
    found = await recorded.get("/5")
    assert [(each["rank"], each["state"], each["snapshot_id"]) for each in found["ranks"]] == [(0, "ready", None), (1, "ready", None)]
    assert found["edges"] == list(EDGES)
    weight, bias = found["parameters"]
    assert (weight["name"], weight["histogram"], weight["unused"]) == ("head.weight", [2, 1, 0, 0, 0, 2, 0, 0], [])
    assert weight["ranks"] == [
        {"rank": 0, "shape": [4], "elements": 4, "norm": 3.0, "zeros": 1, "nans": 0, "infs": 0},
        {"rank": 1, "shape": [4], "elements": 4, "norm": None, "zeros": 0, "nans": 2, "infs": 0},
    ]
    assert ([each["rank"] for each in bias["ranks"]], bias["unused"]) == ([0], [1])


async def test_one_rank_can_be_asked_for(recorded: Recorded) -> None:
    for rank in (0, 1):
        recorded.leave(rank, parameter("head.weight", float(rank)))
        recorded.leave_file(rank, "snapshot", b"PK tensors")
    await recorded.upload()
    found = await recorded.get("/5?rank=1")
    assert [each["rank"] for each in found["ranks"]] == [1], "whose snapshots a client downloads, and whose records it reports as missing"
    assert [each["norm"] for each in found["parameters"][0]["ranks"]] == [1.0]
    assert found["parameters"][0]["histogram"] == [0, 1, 0, 0, 0, 2, 0, 0]


async def test_a_step_that_was_done_again_is_that_of_the_newest_generation(recorded: Recorded) -> None:
    recorded.leave(0, parameter("head.weight", 1.0), generation=1)
    recorded.leave(0, parameter("head.weight", 1.0), step=10, generation=1)
    for rank in (0, 1):
        recorded.leave(rank, parameter("head.weight", 2.0), step=10)
    await recorded.upload()
    assert [(each["step"], each["generation"], each["ready"]) for each in (await recorded.get())["steps"]] == [(5, 1, 1), (10, 2, 2)]
    again = await recorded.get("/10")
    assert (again["generation"], [each["norm"] for each in again["parameters"][0]["ranks"]]) == (2, [2.0, 2.0])
    assert (await recorded.get("/5"))["generation"] == 1


async def test_what_cannot_be_read_is_told_and_hides_no_other_rank(recorded: Recorded) -> None:
    recorded.leave(0, parameter("head.weight"))
    recorded.leave_file(1, "gradients", b"not what a rank writes")
    await recorded.upload()
    found = await recorded.get("/5")
    good, damaged = found["ranks"]
    assert (good["state"], damaged["state"]) == ("ready", "failed")
    assert damaged["error"].startswith("the record cannot be read: ")
    assert [each["rank"] for each in found["parameters"][0]["ranks"]] == [0]


async def test_a_record_that_could_not_be_kept_counts_as_failed(recorded: Recorded) -> None:
    recorded.leave_file(0, "gradients", b"", error="the disk is full")
    await recorded.upload()
    assert (await recorded.get())["steps"] == [{"step": 5, "generation": 2, "ready": 0, "arriving": 0, "failed": 1}]
    assert (await recorded.get("/5"))["ranks"] == [{"rank": 0, "state": "failed", "error": "the disk is full", "snapshot_id": None}]


async def test_a_snapshot_is_downloaded_as_its_rank_wrote_it(recorded: Recorded) -> None:
    recorded.leave(0, parameter("head.weight"))
    recorded.leave_file(0, "snapshot", b"PK tensors")
    await recorded.upload()
    ((snapshot),) = [each["snapshot_id"] for each in (await recorded.get("/5"))["ranks"]]
    answer = await recorded.client.get(f"{JOBS}/{recorded.job.id}/artifacts/{snapshot}/content")
    assert (answer.content, answer.headers["content-type"]) == (b"PK tensors", "application/octet-stream")
    assert answer.headers["content-disposition"] == 'attachment; filename="digits-g2-rank0-step5-gradients.pt"'


async def test_records_are_not_among_the_traces_and_make_no_events(recorded: Recorded) -> None:
    recorded.leave(0, parameter("head.weight"))
    await recorded.upload()
    job = f"{JOBS}/{recorded.job.id}"
    assert (await recorded.client.get(f"{job}/artifacts?kind=trace")).json()["items"] == []
    (found,) = (await recorded.client.get(f"{job}/artifacts")).json()["items"]
    assert (found["kind"], found["first_step"]) == ("gradients", 5)
    assert [event for event in (await recorded.client.get(f"{job}/events")).json()["items"] if "trace" in event["type"]] == []


async def test_what_is_not_there_or_too_much_is_refused(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await recorded.get())["steps"] == []
    assert (await recorded.get("/5", 404))["detail"].startswith("no gradients of step 5 are recorded")
    assert (await recorded.client.get(f"{JOBS}/01JD00000000000000000000ZZ/gradients")).status_code == 404
    for rank in (0, 1):
        recorded.leave(rank, parameter("head.weight"))
    await recorded.upload()
    monkeypatch.setattr(gradients, "MOST_RANKS", 1)
    refused = await recorded.get("/5", 400)
    assert refused["detail"] == "2 ranks have recorded step 5; at most 1 are read at once: name some with rank=0,1"


async def test_records_that_unfold_to_more_than_the_memory_are_not_read_at_once(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 ranks may have left 64 MiB each, in a few KB. The first ranks are read, whichever came first."""
    for rank in (1, 0):
        recorded.leave(rank, *(parameter(f"blocks.{number}.weight", histogram=(0,) * 1000) for number in range(10)))
        await recorded.upload()
    monkeypatch.setattr(gradients, "MOST_BYTES", 20_000)
    found = await recorded.get("/5")
    first, second = found["ranks"]
    assert (first["state"], second["state"]) == ("ready", "failed")
    assert second["error"] == "it is too large to be read along with those of other ranks; ask for rank 1 alone"
    assert [each["rank"] for each in found["parameters"][0]["ranks"]] == [0], "what fits is shown"
    assert len((await recorded.get("/5?rank=1"))["parameters"]) == 10


async def test_records_of_many_tiny_parameters_are_counted_by_what_they_take_in_memory(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of a parameter take 2,500 bytes, its text may have 100: a record of 6 MB took 150 MB, and one may have 64 MB."""
    for rank in (0, 1):
        recorded.leave(rank, *(parameter(str(number), shape=(), histogram=()) for number in range(100)))
    await recorded.upload()
    monkeypatch.setattr(gradients, "MOST_BYTES", 150 * gradients.PARAMETER_BYTES)
    assert [each["state"] for each in (await recorded.get("/5"))["ranks"]] == ["ready", "failed"]
    monkeypatch.setattr(gradients, "MOST_BYTES", 200 * gradients.PARAMETER_BYTES)
    assert [each["state"] for each in (await recorded.get("/5"))["ranks"]] == ["ready", "ready"]
