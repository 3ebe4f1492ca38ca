"""What ranks tell exactly once, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.schemas.checkpoints import RestoreRequest
from paceline.api.services.checkpoints import checkpoints
from paceline.api.services.ingest import rank_events
from paceline.api.services.ingest.history_room import HistoryRoom
from paceline.api.services.jobs import descriptions
from paceline.api.services.jobs.notices import Notices
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.scheduling.assignments import desired_of, restore_candidates
from paceline.cluster.states import CheckpointState, JobState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import jobs as job_rows
from paceline.monitoring.points import RankBatch, RankEvent
from paceline.objects.location import place_at
from paceline.training.saving.manifest import directory_name
from tests import factories

SAVED = {"step": 10, "bytes": 5, "manifest_sha256": "a", "metrics": {"eval_loss": "NaN"}}


@dataclass
class Story:
    services: Services
    node: NodeRow
    job: JobRow
    told: int = field(default=0)

    async def tell(self, kind: Any, data: dict[str, Any], *, generation: int = 2, rank: int = 0) -> None:
        self.told += 1
        event, room = RankEvent(seq=self.told, time=1_795_000_000.0, kind=kind, data=data), HistoryRoom(self.services.disk)
        async with self.services.write() as session:
            await rank_events.apply(room, session, self.node, RankBatch(job_id=self.job.id, generation=generation, rank=rank), event)

    def folder(self, generation: int = 2) -> str:
        return f"/c/{self.job.id}/step-10.g{generation}"

    async def save(self, *, generation: int = 2, **more: Any) -> None:
        """Rank 0 tells of the checkpoint of step 10."""
        await self.tell("checkpoint_committed", SAVED | {"directory": self.folder(generation)} | more, generation=generation)

    async def events(self) -> list[tuple[str, str]]:
        async with self.services.control.read() as session:
            return [(row.type, row.cause) for row in await event_rows.after(session, 0, limit=100)]

    async def checkpoint(self, generation: int = 2) -> CheckpointRow:
        async with self.services.control.read() as session:
            row = await checkpoint_rows.by_directory(session, self.folder(generation))
            assert row is not None
            return row


@pytest.fixture
async def story(services: Services) -> Story:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, generation=2)
    return Story(services, node, job)


async def test_a_checkpoint_is_recorded_and_shows_in_the_progress(story: Story) -> None:
    await story.save()
    row = await story.checkpoint()
    assert (row.state, row.step, row.metrics["eval_loss"]) == (CheckpointState.COMMITTED, 10, "NaN")
    assert await story.events() == [("checkpoint.committed", "rank 0 saved step 10")]
    async with story.services.control.read() as session:
        job = await session.get_one(JobRow, story.job.id)
    assert job.progress == {"last_checkpoint_step": 10}


async def test_what_a_save_cost_is_with_its_checkpoint_where_it_was_told(story: Story) -> None:
    await story.save(stall_seconds=0.01, write_seconds=0.4, slowdown=None)
    row = await story.checkpoint()
    assert (row.stall_seconds, row.write_seconds, row.slowdown) == (0.01, 0.4, None)


async def test_a_checkpoint_that_is_heard_of_too_late_is_kept(story: Story) -> None:
    """Its generation was fenced off while its news was on the way, and the job began again before it."""
    await story.save(generation=1)
    row = await story.checkpoint(1)
    assert row.state is CheckpointState.SUPERSEDED
    ((type, cause),) = await story.events()
    assert type == "checkpoint.superseded"
    assert "went on from step 0 before this was heard of: it is kept" in cause
    async with story.services.control.read() as session:
        assert await restore_candidates(session, await session.get_one(JobRow, story.job.id), 3) == [], "its job goes on as it is"
        spec = await checkpoints.restored_spec(session, row, RestoreRequest(name="again", steps=200))
    assert spec.name == "again"
    await story.tell("checkpoint_damaged", {"directory": story.folder(1), "reason": "hash of model.pt differs"})
    assert (await story.checkpoint(1)).state is CheckpointState.DAMAGED


@pytest.mark.parametrize(
    ("began", "state"),
    [((10,), CheckpointState.COMMITTED), ((20, 15), CheckpointState.COMMITTED), ((5, 20), CheckpointState.SUPERSEDED)],
    ids=["from its step", "from later ones", "at first from an earlier one"],
)
async def test_a_checkpoint_that_is_heard_of_too_late_is_no_debris(story: Story, began: tuple[int, ...], state: CheckpointState) -> None:
    """One of a step that its job has gone on from, or beyond, was deleted, which might have been the only one."""
    async with story.services.write() as session:
        job = await session.get_one(JobRow, story.job.id)
        job.generation = 1 + len(began)
        first = await session.get_one(GenerationRow, (story.job.id, 2))
        first.start_step = began[0]
        for number, step in enumerate(began[1:], start=3):
            session.add(
                GenerationRow(job_id=job.id, generation=number, world_size=1, started_at=factories.START, store_token="t", start_step=step)
            )
    await story.save(generation=1)
    assert (await story.checkpoint(1)).state is state
    async with story.services.control.read() as session:
        assert (await session.get_one(NodeRow, story.node.id)).desired_revision == 0, "its node is not told to delete it"


async def test_a_damaged_checkpoint_is_marked_with_the_reason(story: Story) -> None:
    await story.save()
    for _ in range(2):
        await story.tell("checkpoint_damaged", {"directory": story.folder(), "reason": "hash of model.pt differs"})
    row = await story.checkpoint()
    assert (row.state, row.damage) == (CheckpointState.DAMAGED, "hash of model.pt differs")


async def test_no_job_can_have_the_checkpoints_of_another_marked_as_damaged_or_shown_as_restored(story: Story) -> None:
    await story.save()
    async with story.services.write() as session:
        other = await factories.create_running_job(session, story.node)
    stranger = Story(story.services, story.node, other)
    await stranger.tell("checkpoint_damaged", {"directory": story.folder(), "reason": "so that its job fails"}, generation=1)
    await stranger.tell("checkpoint_restored", {"directory": story.folder(), "step": 10}, generation=1)
    assert (await story.checkpoint()).state is CheckpointState.COMMITTED
    async with story.services.control.read() as session:
        assert (await session.get_one(GenerationRow, (other.id, 1))).restored_checkpoint_id is None


async def test_a_checkpoint_that_a_job_was_started_from_is_damaged_where_its_ranks_say_so(story: Story) -> None:
    async with story.services.write() as session:
        first, chosen, later = (factories.checkpoint(story.job, story.node, step=step) for step in (10, 20, 30))
        session.add_all([first, chosen, later])
        await session.flush()
        job = await factories.create_running_job(session, story.node, restored_from=chosen.id)
    for row in (first, chosen, later):
        await Story(story.services, story.node, job).tell(
            "checkpoint_damaged", {"directory": row.directory, "reason": "hash"}, generation=1
        )
    async with story.services.control.read() as session:
        states = [(await session.get_one(CheckpointRow, row.id)).state for row in (first, chosen, later)]
    assert states == [CheckpointState.DAMAGED, CheckpointState.DAMAGED, CheckpointState.COMMITTED]


@pytest.mark.parametrize(
    ("root", "claim"),
    [
        (None, "/c/{other}/step-10.g1"),  # another job's: its own report would find the place taken
        (None, "/c//{other}/step-10.g1"),
        (None, "/c/{job}/../{other}/step-10.g1"),
        (None, "/c/{job}/step-10.g1/"),
        (None, "/c/{job}/./step-10.g1"),
        (None, "/c/{job}/step-11.g1"),
        (None, "c/{job}/step-10.g1"),
        (None, "s3://bucket/{job}/step-10.g1"),
        ("/srv/ckpt", "/srv/elsewhere/{job}/step-10.g1"),
        ("/srv/ckpt", "/srv/ckpt/{other}/step-10.g1"),
        ("s3://bucket/runs", "s3://bucket/runs/{other}/step-10.g1/"),
        ("s3://bucket/runs", "s3://bucket/runs/{job}/step-10.g1/"),
        ("s3://bucket/runs", "s3://bucket/runs//{job}/step-10.g1"),
    ],
)
async def test_a_checkpoint_that_a_job_cannot_have_saved_is_not_recorded(services: Services, root: str | None, claim: str) -> None:
    """Recorded, it would be its job's to delete."""
    spec = factories.job_spec(checkpoint={"directory": root})
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job, other = [await factories.create_running_job(session, node, spec=spec) for _ in range(2)]
    story, neighbour = Story(services, node, job), Story(services, node, other)
    directory = claim.format(job=job.id, other=other.id)
    await story.tell("checkpoint_committed", SAVED | {"directory": directory}, generation=1)
    ((type, cause),) = await story.events()
    assert (type, cause.startswith(f"checkpoint {directory} is not ")) == ("rank.event_not_believed", True)
    for each in (story, neighbour):
        honest = f"{root or '/c'}/{each.job.id}/step-10.g1"
        await each.tell("checkpoint_committed", SAVED | {"directory": honest}, generation=1)
        async with services.control.read() as session:
            (row,) = await checkpoint_rows.present_of_job(session, each.job.id)
        assert row.directory == honest


@pytest.mark.parametrize("root", ["/", "/srv/ckpt/", "/srv/../data", "file:///srv/ckpt", "gs://bucket/", "az://box/a/b/"])
async def test_a_checkpoint_is_recorded_wherever_the_spec_has_its_job_save(services: Services, root: str) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, spec=factories.job_spec(checkpoint={"directory": root}))
    async with services.control.read() as session:
        place = (await desired_of(session, [node]))[node.id].assignments[0].worlds[0].checkpoint_directory
    directory = str(place_at(place) / directory_name(10, 1))
    await Story(services, node, job).tell("checkpoint_committed", SAVED | {"directory": directory}, generation=1)
    async with services.control.read() as session:
        assert [row.directory for row in await checkpoint_rows.present_of_job(session, job.id)] == [directory]


async def test_a_restore_is_noted_with_its_generation(story: Story) -> None:
    await story.save()
    await story.tell("checkpoint_restored", {"directory": story.folder(), "step": 10})
    await story.tell("checkpoint_restored", {"directory": story.folder(), "step": 10}, rank=1)
    async with story.services.control.read() as session:
        generation = await session.get_one(GenerationRow, (story.job.id, 2))
    assert (generation.start_step, generation.restored_checkpoint_id) == (10, (await story.checkpoint()).id)
    assert [type for type, _ in await story.events()].count("checkpoint.restored") == 1


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("checkpoint_failed", {"step": 3, "reason": "disk full"}, ("checkpoint.failed", "disk full")),
        ("evaluated", {"step": 3, "metrics": {"eval_loss": 1.0}}, ("job.evaluated", "rank 0")),
        ("sample", {"step": 3, "text": "def f():"}, ("job.sample", "rank 0")),
    ],
)
async def test_the_rest_goes_into_the_history(story: Story, kind: str, data: dict[str, Any], expected: tuple[str, str]) -> None:
    await story.tell(kind, data)
    assert await story.events() == [expected]


async def test_an_unreadable_event_is_noted_and_holds_up_nothing(story: Story) -> None:
    await story.tell("checkpoint_committed", {"directory": story.folder()})
    ((type, cause),) = await story.events()
    assert type == "rank.event_unreadable"
    assert "step" in cause


FOUND = {"size": 4, "peak_bytes": 7 * 2**20, "limit_bytes": 9 * 2**20, "tried": {"1": 2**20, "4": 7 * 2**20}}


async def stored_micro_batch(story: Story) -> Any:
    async with story.services.control.read() as session:
        job = await job_rows.get(session, story.job.id)
        assert job is not None
        return job.spec.document["training"]["micro_batch_size"]


async def test_the_micro_batch_that_was_found_stands_in_the_spec_from_then_on(services: Services) -> None:
    length = {"steps": 100, "global_batch_size": 8, "micro_batch_size": "auto"}
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, spec=factories.job_spec(training=length))
    story = Story(services, node, job)
    await story.tell("micro_batch_found", FOUND, generation=1)
    assert await stored_micro_batch(story) == 4
    await story.tell("micro_batch_found", FOUND | {"size": 8}, generation=1)  # by a generation that had not heard of it
    assert await stored_micro_batch(story) == 4
    assert await story.events() == [("job.micro_batch", "training.micro_batch_size: auto")]


async def test_what_a_run_is_trained_with_goes_into_the_history_and_is_cut(story: Story) -> None:
    config = {"lr": 0.1, "name": "x" * 1_000, "none": None} | {f"entry_{number}": number for number in range(500)}
    await story.tell("run_configured", {"name": "night", "project": "digits", "config": config})
    await story.tell("run_configured", {"name": "", "project": "", "config": {"lr": 0.1, "seed": 3}})
    async with story.services.control.read() as session:
        first, second = [row for row in await event_rows.after(session, 0, limit=100) if row.type == "job.configured"]
    assert (second.cause, second.message) == ("rank 0", "trains with lr=0.1, seed=3")
    assert (first.cause, first.message[:30], len(first.message)) == ("run night of digits", "trains with lr=0.1, name=xxxxx", 513)
    assert len(first.data["config"]) == 200
    assert (first.data["config"]["lr"], first.data["config"]["name"], first.data["config"]["none"]) == (0.1, "x" * 200, None)


async def test_what_a_ranks_code_lost_is_told_and_its_texts_are_cut(story: Story) -> None:
    data = {"what": "metric names", "count": 7, "reason": "over 1000 distinct names", "example": "x" * 100_000}
    await story.tell("data_dropped", data, rank=3)
    assert await story.events() == [("rank.data_dropped", "over 1000 distinct names")]
    async with story.services.control.read() as session:
        (row,) = await event_rows.after(session, 0, limit=100)
    assert row.message.startswith("metric names of rank 3 are dropped, for example xxx")
    assert len(row.message) < 1_000


async def test_what_many_ranks_drop_is_one_event_of_each_kind(story: Story) -> None:
    """Each process of each rank told of it: hundreds of events of one job said the same."""
    data = {"what": "metric names", "count": 7, "reason": "over 1000 distinct names", "example": "x"}
    for generation, rank in ((1, 0), (1, 1), (2, 0), (2, 63)):
        await story.tell("data_dropped", data, generation=generation, rank=rank)
    assert await story.events() == [("rank.data_dropped", "over 1000 distinct names")]
    await story.tell("data_dropped", data | {"what": "events", "reason": "full"}, rank=5)
    assert [cause for _, cause in await story.events()] == ["over 1000 distinct names", "full"]


async def test_a_scripts_newest_file_is_in_its_progress_and_told_once(story: Story) -> None:
    data = {"path": "/srv/run/checkpoint-40", "bytes": 2048, "step": 40, "time": 1_795_000_000.0}
    for _ in range(2):
        await story.tell("file_saved", data)
    assert await story.events() == [("job.file_saved", "rank 0")]
    async with story.services.control.read() as session:
        job = await job_rows.get(session, story.job.id)
        assert job is not None
        saved = descriptions.summarize(job, Notices()).progress.saved_file
    assert saved is not None
    assert (saved.path, saved.bytes, saved.step) == ("/srv/run/checkpoint-40", 2048, 40)


CHOSEN = {
    "step": 25,
    "text": "top_k, by a hierarchy: a step takes 423 ms instead of 6.19 s" + "x" * 5_000,
    "links": "measured: 94.4 Mbit/s and 0.2 ms between machines",
    "why": "faster",
    "name": "top_k, by a hierarchy",
    "waited_seconds": 5.9,
    "options": [
        {"name": "exact, by the backend", "predicted_seconds": 6.19, "measured_seconds": 6.19, "taken": False},
        {"name": "top_k, by a hierarchy", "predicted_seconds": None, "measured_seconds": 0.42, "taken": True},
    ],
    "within": None,
    "between": {"latency_seconds": 2e-4, "bytes_per_second": 11.8e6},
}


async def test_how_gradients_are_summed_is_on_the_job_and_in_its_history(story: Story, client: httpx.AsyncClient) -> None:
    one = f"/api/v1/training/jobs/{story.job.id}"
    assert (await client.get(one)).json()["communication"] is None
    await story.tell("communication_chosen", CHOSEN)
    told = (await client.get(one)).json()["communication"]
    assert (told["step"], told["name"], told["between"]["bytes_per_second"]) == (25, "top_k, by a hierarchy", 11.8e6)
    assert [option["predicted_seconds"] for option in told["options"]] == [6.19, None]
    assert len(told["text"]) == 500
    (event,) = (await client.get(f"{one}/events")).json()["items"]
    assert event["type"] == "job.communication"
    assert event["message"].startswith("gradients are summed top_k, by a hierarchy: a step takes 423 ms instead of 6.19 s")
    await story.tell("communication_chosen", CHOSEN | {"name": "of a generation that is over"}, generation=story.job.generation - 1)
    assert (await client.get(one)).json()["communication"]["name"] == "top_k, by a hierarchy"


BAD = {"step": 61, "what": "not_finite", "act": "skip_update", "again": False, "loss": "NaN", "gradient_norm": "NaN", "limit": None}


async def test_a_bad_loss_is_an_event_with_its_samples_and_a_notice(story: Story, client: httpx.AsyncClient) -> None:
    await story.tell("bad_loss", BAD | {"micro_batches": [3], "sample_ids": list(range(16)), "samples": 16})
    (event,) = (await client.get(f"/api/v1/training/jobs/{story.job.id}/events")).json()["items"]
    assert (event["type"], event["message"]) == ("job.loss_not_finite", "the loss of step 61 is NaN: the update was skipped")
    assert (event["data"]["sample_ids"], event["data"]["loss"]) == (list(range(16)), "NaN")
    shown = (await client.get(f"/api/v1/training/jobs/{story.job.id}")).json()["progress"]["bad_loss"]
    assert shown == {
        "step": 61,
        "kind": "not_finite",
        "act": "skip_update",
        "what": "the loss of step 61 is NaN",
        "done": "the update was skipped",
        "sample_ids": list(range(8)),
        "samples": 16,
    }


async def test_late_events_from_before_a_job_was_set_back_are_history_alone(services: Services, client: httpx.AsyncClient) -> None:
    """The job that began anew at step 500 was shown at step 900, with the loss of step 920."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, generation=4, progress={"step": 1000})
        job.state = JobState.FAILED
        session.add(checkpoint := factories.checkpoint(job, node, step=500))
        await session.flush()
        await job_lifecycle.set_back(session, job, checkpoint, None, SYSTEM, services.now())
    story = Story(services, node, job)
    carried = {"step": 900, "transfers": 1, "fell_back": False, "entered_at": 1.0, "joined_at": 2.0, "agreed_at": 3.0, "first_step_at": 4.0}
    await story.tell("carried_on", carried, generation=4)
    await story.tell("bad_loss", BAD | {"step": 920}, generation=4)
    await story.tell("communication_chosen", CHOSEN, generation=4)
    found = (await client.get(f"/api/v1/training/jobs/{job.id}")).json()
    assert (found["progress"]["step"], found["progress"]["bad_loss"], found["communication"]) == (500, None, None)
    assert [type for type, _ in await story.events()] == ["job.set_back", "job.carried_on", "job.loss_not_finite"]


@pytest.mark.parametrize("wrong", [{"step": -1}, {"act": "shrug"}, {"sample_ids": [0] * 257}, {"loss": "much"}])
async def test_a_bad_loss_that_cannot_be_read_is_noted_as_such(story: Story, wrong: dict[str, Any]) -> None:
    await story.tell("bad_loss", BAD | wrong)
    assert [type for type, _ in await story.events()] == ["rank.event_unreadable"]
