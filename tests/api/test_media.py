"""From `paceline.log` to whoever asks: real contents, the agent's own uploader, the real app."""

from __future__ import annotations

import io
import time
import zipfile
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import PIL.Image
import pytest

from paceline.api.core.context import Services
from paceline.api.services.artifacts import media_offers
from paceline.api.services.history import media
from paceline.cluster.agent.upload.artifacts import ArtifactUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.states import RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.images import Image, ImageList
from paceline.media import Histogram, Media, Table
from paceline.monitoring.media import MediaKind, MediaLabel
from paceline.monitoring.media_recorder import LoggedMedia, MediaRecorder
from paceline.training.rank_folder import RankFolder
from tests import factories
from tests.conftest import Connect

JOBS = "/api/v1/training/jobs"
PICTURE = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)


@dataclass
class OwnCode:
    """An object that a job's own code has packed, within no limits."""

    kind: MediaKind
    document: dict[str, Any]
    count: int = 1
    size: int = 1
    refusal: str | None = None

    def content(self) -> bytes:
        head = zlib.compress(msgspec.json.encode(self.document))
        return len(head).to_bytes(4, "big") + head

    def words(self) -> str:
        return "(nothing)"


@dataclass
class Harness:
    client: httpx.AsyncClient
    agent: httpx.AsyncClient
    services: Services
    node: NodeRow
    job: JobRow
    data: Path

    async def log(self, step: int, key: str, media: Media, *, rank: int = 0, generation: int = 1) -> None:
        recorder = MediaRecorder(lambda *_: pytest.fail("nothing may be dropped"))
        folder = RankFolder(self.data, self.job.id, generation, rank).artifacts
        label = MediaLabel(key=key, kind=media.kind, count=media.count)
        recorder.record(LoggedMedia(folder, step, time.time(), label, media.size, media.content))
        recorder.close()
        await ArtifactUploader(self.agent, JobFolders(self.data / "jobs")).upload_all()

    async def get(self, path: str = "", **query: Any) -> Any:
        answer = await self.client.get(f"{JOBS}/{self.job.id}/media{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, path: str, **query: Any) -> tuple[int, str]:
        answer = await self.client.get(f"{JOBS}/{self.job.id}/media{path}", params=query)
        return answer.status_code, answer.json()["detail"]

    async def recover(self, start: int) -> None:
        """Begin generation 2 at a step, on the same node."""
        async with self.services.write() as session:
            session.add(
                GenerationRow(job_id=self.job.id, generation=2, world_size=2, started_at=factories.START, start_step=start, store_token="t")
            )
            for rank in (0, 1):
                session.add(
                    RankRow(
                        job_id=self.job.id,
                        generation=2,
                        rank=rank,
                        node_id=self.node.id,
                        slot=rank,
                        local_rank=rank,
                        node_rank=0,
                        state=RankState.RUNNING,
                        updated_at=factories.START,
                    )
                )


@pytest.fixture
async def harness(services: Services, client: httpx.AsyncClient, connect: Connect, tmp_path: Path) -> AsyncIterator[Harness]:
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        spec = factories.job_spec(parallelism={"strategy": "ddp"}, resources={"nodes": 2})
        job = await factories.create_running_job(session, node, spec=spec)
    async with connect(credential) as agent:
        yield Harness(client, agent, services, node, job, tmp_path / "agent")


async def test_images_come_back_with_their_captions(harness: Harness) -> None:
    for rank in (0, 1):
        await harness.log(10, "val/samples", ImageList([Image(PICTURE, caption=f"rank {rank}, {n}") for n in range(3)]), rank=rank)
    assert (await harness.get())["keys"] == [
        {"key": "val/samples", "kind": "images", "steps": [10], "ranks": [0, 1], "bytes": (await harness.get())["keys"][0]["bytes"]}
    ]
    found = await harness.get("/object", key="val/samples")
    assert (found["step"], found["ranks"], len(found["objects"])) == (10, [0, 1], 2)
    second = found["objects"][1]["images"][2]
    assert second == {"number": 2, "width": 9, "height": 7, "caption": "rank 1, 2", "format": "png"}
    answer = await harness.client.get(f"{JOBS}/{harness.job.id}/media/{found['objects'][1]['id']}/images/2")
    assert (answer.headers["content-type"], "immutable" in answer.headers["cache-control"]) == ("image/png", True)
    with PIL.Image.open(io.BytesIO(answer.content)) as picture:
        assert (np.asarray(picture) == PICTURE).all()
    missing = await harness.client.get(f"{JOBS}/{harness.job.id}/media/{found['objects'][1]['id']}/images/3")
    assert missing.status_code == 404


async def test_an_image_of_several_chunks_is_whole(harness: Harness) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2, 700, 700, 3), dtype=np.uint8)
    await harness.log(1, "noise", ImageList([Image(each) for each in noise]))
    found = (await harness.get("/object", key="noise"))["objects"][0]
    for number, each in enumerate(noise):
        answer = await harness.client.get(f"{JOBS}/{harness.job.id}/media/{found['id']}/images/{number}")
        with PIL.Image.open(io.BytesIO(answer.content)) as picture:
            assert (np.asarray(picture) == each).all()


async def test_histograms_and_tables_come_back(harness: Harness) -> None:
    await harness.log(3, "w", Histogram([1.0, 2.0, float("nan")], bins=2))
    await harness.log(3, "preds", Table(["a", "b"], [[1, "x"], [float("inf"), None]]))
    histogram = (await harness.get("/object", key="w", step=3))["objects"][0]["histogram"]
    assert (histogram["counts"], histogram["edges"], histogram["nans"], histogram["values"]) == ([1, 1], [1.0, 1.5, 2.0], 1, 3)
    table = (await harness.get("/object", key="preds"))["objects"][0]["table"]
    assert table == {"columns": ["a", "b"], "rows": [[1, "x"], ["Infinity", None]], "total_rows": 2}


async def test_steps_come_in_pages_and_histograms_evenly_chosen(harness: Harness) -> None:
    for step in range(0, 50, 10):
        await harness.log(step, "w", Histogram([step]))
    page = await harness.get("/steps", key="w", limit=2)
    rest = await harness.get("/steps", key="w", limit=200, cursor=page["next_cursor"])
    assert [each["step"] for each in page["items"] + rest["items"]] == [0, 10, 20, 30, 40]
    assert rest["next_cursor"] is None
    found = await harness.get("/histograms", key="w", most=3)
    assert (found["steps"], [each["step"] for each in found["items"]]) == (5, [0, 20, 40])
    ranged = await harness.get("/histograms", key="w", first_step=10, last_step=30)
    assert [each["histogram"]["mean"] for each in ranged["items"]] == [10.0, 20.0, 30.0]


async def test_a_step_done_again_replaces_what_it_logged(harness: Harness) -> None:
    for step in (10, 20):
        for rank in (0, 1):
            await harness.log(step, "k", ImageList([Image(PICTURE, caption="before")]), rank=rank)
    await harness.recover(10)
    await harness.log(20, "k", ImageList([Image(PICTURE, caption="after")]), generation=2)
    found = await harness.get("/object", key="k")
    assert (found["step"], found["generation"], found["ranks"]) == (20, 2, [0])
    assert found["objects"][0]["images"][0]["caption"] == "after"
    assert (await harness.get("/object", key="k", step=10))["ranks"] == [0, 1]


async def test_what_is_sent_again_is_stored_once_and_without_events(harness: Harness) -> None:
    await harness.log(1, "k", Histogram([1]))
    events = (await harness.client.get(f"{JOBS}/{harness.job.id}/events")).json()["items"]
    assert [event for event in events if "trace" in event["type"] or "media" in event["type"]] == []
    assert (await harness.client.get(f"{JOBS}/{harness.job.id}/artifacts")).json()["items"] == [], "the list of traces is not flooded"
    assert len((await harness.client.get(f"{JOBS}/{harness.job.id}/artifacts?kind=media")).json()["items"]) == 1


async def test_over_the_jobs_limit_objects_are_dropped_and_told_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_offers, "MAX_JOB_OBJECTS", 2)
    for step in range(6):
        await harness.log(step, "k", Histogram([step]))
    assert [each["steps"] for each in (await harness.get())["keys"]] == [[0, 1]]
    events = (await harness.client.get(f"{JOBS}/{harness.job.id}/events")).json()["items"]
    (told,) = [event for event in events if event["type"] == "job.media_dropped"]
    assert told["message"] == "images, histograms or tables are dropped, for example k at step 2 of rank 0"
    folder = RankFolder(harness.data, harness.job.id, 1, 0).artifacts
    assert list(folder.iterdir()) == [], "the node keeps nothing that is refused"


async def test_what_is_not_there_is_answered_with_what_is(harness: Harness) -> None:
    assert await harness.get() == {"job_id": harness.job.id, "keys": []}
    assert await harness.refused("/object", key="k") == (404, "nothing is stored under 'k'; ask for the job's media to see the keys")
    await harness.log(7, "k", Histogram([1]))
    assert await harness.refused("/object", key="k", step=3) == (404, "k was not logged at step 3; the nearest step that has it is 7")
    assert (await harness.refused("/object", key="k", rank="x"))[0] == 400
    assert (await harness.client.get(f"{JOBS}/nope/media")).status_code == 404


async def test_an_image_that_is_said_to_be_larger_than_its_object_is_not_looked_for(harness: Harness) -> None:
    """Its chunks would be asked for until the end of days, with a connection of the pool."""
    for step, said in enumerate((10**15, -1, 5_000)):
        images = [{"width": 4, "height": 3, "caption": "", "format": "png", "bytes": said}]
        await harness.log(step, "k", OwnCode("images", {"images": images}))
        entry = (await harness.get("/steps", key="k"))["items"][-1]["objects"][0]
        answer = await harness.client.get(f"{JOBS}/{harness.job.id}/media/{entry['id']}/images/0")
        assert (answer.status_code, answer.json()["code"]) == (409, "artifact_not_ready")


async def test_objects_that_unfold_to_more_than_the_memory_are_not_read(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"values": 1, "nans": 0, "infs": 0, "mean": None, "std": None, "least": None, "most": None}
    bomb = OwnCode("histogram", {"histogram": facts | {"counts": [0] * 200_000, "edges": [0] * 200_001}})
    for step in range(2):
        await harness.log(step, "w", bomb)
    await harness.log(2, "w", Histogram([1.0]))
    assert [each["step"] for each in (await harness.get("/histograms", key="w"))["items"]] == [2]
    (found,) = (await harness.get("/object", key="w", step=1))["objects"]
    assert (found["histogram"], found["error"]) == (None, "the object cannot be read: it is cut off, or has more than 262,144 bytes")
    for rank in (0, 1):
        await harness.log(3, "t", Table(["a"], [["x" * 1_000]] * 30), rank=rank)
    monkeypatch.setattr(media, "MOST_BYTES", 20_000)
    first, second = (await harness.get("/object", key="t"))["objects"]
    assert (first["error"], len(first["table"]["rows"])) == (None, 30)
    assert (second["error"], second["table"]) == ("it is too large to be read with those of other ranks: ask for rank 1 alone", None)
    assert len((await harness.get("/object", key="t", rank="1"))["objects"][0]["table"]["rows"]) == 30


async def test_a_viewer_may_look(harness: Harness, connect: Connect) -> None:
    await harness.log(7, "k", Histogram([1]))
    async with harness.services.write() as session:
        _, key = await factories.create_user(session, name="vera", role="viewer")
    async with connect(key) as viewer:
        assert (await viewer.get(f"{JOBS}/{harness.job.id}/media/object?key=k")).status_code == 200


async def test_tensorboard_reads_images_and_histograms(harness: Harness, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    await harness.log(5, "one", ImageList([Image(PICTURE)]), rank=1)
    await harness.log(5, "two", ImageList([Image(PICTURE), Image(PICTURE)]), rank=1)
    await harness.log(6, "w", Histogram([1.0, 2.0, 4.0], bins=3), rank=1)
    await harness.log(6, "t", Table(["a"], [[1]]))
    answer = await harness.client.get(f"{JOBS}/{harness.job.id}/tensorboard")
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path / "runs")
    (folder,) = (tmp_path / "runs").glob("*/media/rank1")
    events = EventAccumulator(str(folder), size_guidance={"images": 0, "histograms": 0})
    events.Reload()
    assert events.Tags()["images"] == ["one", "two/0", "two/1"]
    (image,) = events.Images("one")
    assert (image.step, image.width, image.height) == (5, 9, 7)
    with PIL.Image.open(io.BytesIO(image.encoded_image_string)) as picture:
        assert (np.asarray(picture) == PICTURE).all()
    (histogram,) = events.Histograms("w")
    found = histogram.histogram_value
    assert (histogram.step, found.min, found.max, found.num, found.sum) == (6, 1.0, 4.0, 3.0, 7.0)
    assert (list(found.bucket_limit), list(found.bucket)) == ([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
    assert found.sum_squares == pytest.approx(21.0)
