"""The contract of the job endpoints, on both databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.jobs import descriptions, jobs
from paceline.api.services.lifecycle import events, job_lifecycle
from paceline.cluster.policy.placement import PlacementReason
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import progress as progress_rows
from tests import factories
from tests.conftest import Connect

JOBS = "/api/v1/training/jobs"
News = Callable[[AsyncSession, JobRow], Awaitable[None]]
SCRIPT = {"model": None, "data": None, "training": None, "script": {"path": "train.py"}}


def document(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = factories.job_spec(**changes).model_dump(mode="json")
    return found


async def create(services: Services, **columns: Any) -> JobRow:
    async with services.write() as session:
        return await factories.create_job(session, **columns)


async def change(client: httpx.AsyncClient, method: str, job: JobRow, verb: str = "", *, revision: int | None = None) -> httpx.Response:
    return await client.request(method, f"{JOBS}/{job.id}{verb}", headers={"If-Match": f'"{revision or job.version}"'})


def revision_of(answer: httpx.Response) -> int:
    """What its ETag begins with."""
    return int(answer.headers["ETag"].strip('"').partition("-")[0])


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


# --- submit


async def test_submit_answers_with_the_job_and_where_it_is(client: httpx.AsyncClient) -> None:
    answer = await client.post(JOBS, json=document(labels={"team": "a"}))
    job = answer.json()
    assert (answer.status_code, job["state"], job["desired"], job["labels"]) == (201, "queued", "run", {"team": "a"})
    assert answer.headers["Location"] == f"{JOBS}/{job['id']}"
    assert revision_of(answer) == job["revision"]
    assert job["spec"]["optimizer"]["kind"] == "adamw", "defaults are filled in"
    assert (job["created_by"], job["model"], job["strategy"], job["world_size"]) == ("admin", "mlp", "single", 1)


async def test_axes_written_with_their_other_names_are_shown_with_the_standing_ones(client: httpx.AsyncClient) -> None:
    sharded = document(resources={"nodes": 2}, parallelism={"strategy": "fsdp"})
    mesh = {"strategy": "fsdp", "dp_replicate": 1, "dp_shard": 2}
    answer = await client.post(JOBS, json=sharded | {"parallelism": mesh})
    shown = answer.json()["spec"]["parallelism"]
    assert (answer.status_code, shown["replicate"], shown["shard"], "dp_shard" in shown) == (201, 1, 2, False)
    both = await client.post(JOBS, json=sharded | {"parallelism": mesh | {"shard": 2}})
    assert code(both) == (422, "invalid_spec")
    assert [each["pointer"] for each in both.json()["errors"]] == ["/parallelism"]


async def test_submit_takes_yaml(client: httpx.AsyncClient) -> None:
    text = "name: y\nmodel: {kind: mlp}\ndata: {kind: digits}\ntraining: {steps: 5, global_batch_size: 8}\n"
    answer = await client.post(JOBS, content=text, headers={"Content-Type": "application/yaml; charset=utf-8"})
    assert (answer.status_code, answer.json()["name"]) == (201, "y")


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ("{", "application/json", (400, "malformed_body")),
        ("a: [", "application/yaml", (400, "malformed_body")),
        ("name: a\nname: b\n", "application/yaml", (400, "malformed_body")),
        ("!!python/object:os.system {}", "application/yaml", (400, "malformed_body")),
        ("- a\n", "application/yaml", (422, "invalid_spec")),
        ("name: x\n", "application/yaml", (422, "invalid_spec")),
        ("name: x\n", "text/plain", (415, "unsupported_media_type")),
    ],
)
async def test_a_body_that_is_no_spec(client: httpx.AsyncClient, body: str, content_type: str, expected: tuple[int, str]) -> None:
    assert code(await client.post(JOBS, content=body, headers={"Content-Type": content_type})) == expected


async def test_a_mistake_in_yaml_is_told_in_plain_words_with_its_place(client: httpx.AsyncClient) -> None:
    answer = await client.post(JOBS, content="name: x\ntraining:\n\tsteps: 1\n", headers={"Content-Type": "application/yaml"})
    told = "line 3, column 1: a tab stands where the line is indented; YAML takes spaces only: replace it, best by two of them"
    assert answer.json()["detail"] == f"the body is not YAML: {told}"
    assert [(error["line"], error["message"]) for error in answer.json()["errors"]] == [(3, told)]


async def test_each_wrong_field_is_pointed_at(client: httpx.AsyncClient) -> None:
    wrong = document() | {"checkpoint": {"directory": "here"}, "model": {"kind": "mlp", "hidden": [0]}}
    answer = await client.post(JOBS, json=wrong)
    assert code(answer) == (422, "invalid_spec")
    errors = {error["pointer"]: error for error in answer.json()["errors"]}
    assert errors["/checkpoint"]["code"] == "inconsistent_spec"
    assert errors["/checkpoint"]["message"].startswith("checkpoint.directory=here is not an absolute path, nor one of s3://BUCKET/PREFIX")
    assert "/model/hidden/0" in errors


async def test_the_same_key_submits_once(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    first, second = [await client.post(JOBS, json=document(), headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["ETag"] == first.headers["ETag"]
    assert len((await client.get(JOBS)).json()["items"]) == 1
    assert code(await client.post(JOBS, json=document(name="other"), headers=headers)) == (422, "idempotency_key_reused")


async def test_a_plan_that_no_longer_holds_is_a_conflict(client: httpx.AsyncClient, services: Services) -> None:
    plan = (await client.post("/api/v1/training/plan", json=document())).json()
    async with services.write() as session:
        await factories.create_node(session)
    answer = await client.post(JOBS, params={"plan_hash": plan["plan_hash"]}, json=document())
    assert code(answer) == (409, "plan_changed")
    assert "placed on node-a" in answer.json()["detail"]
    again = (await client.post("/api/v1/training/plan", json=document())).json()
    assert (await client.post(JOBS, params={"plan_hash": again["plan_hash"]}, json=document())).status_code == 201


async def test_a_viewer_may_look_and_not_touch(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    job = await create(services)
    async with services.write() as session:
        _, key = await factories.create_user(session, name="vera", role="viewer")
    async with connect(key) as viewer:
        assert (await viewer.get(f"{JOBS}/{job.id}")).status_code == 200
        assert code(await viewer.post(JOBS, json=document())) == (403, "forbidden")
        assert code(await change(viewer, "DELETE", job)) == (403, "forbidden")
        assert code(await change(viewer, "PUT", job, "/pause")) == (403, "forbidden")


# --- list


async def names(client: httpx.AsyncClient, **params: Any) -> list[str]:
    answer = await client.get(JOBS, params=params)
    assert answer.status_code == 200, answer.text
    return [item["name"] for item in answer.json()["items"]]


@pytest.fixture
async def three(services: Services) -> None:
    for name, priority, project, team in (("b", 10, "vision", "x"), ("a", 90, "text", "y"), ("c", 50, "text", "x")):
        spec = factories.job_spec(name=name, priority=priority, project=project, labels={"team/name": team})
        await create(services, spec=spec, state=JobState.COMPLETED if name == "c" else JobState.QUEUED)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"sort": "name"}, ["a", "b", "c"]),
        ({"sort": "-name"}, ["c", "b", "a"]),
        ({"sort": "priority"}, ["b", "c", "a"]),
        ({"sort": "-priority"}, ["a", "c", "b"]),
        ({"sort": "created_at"}, ["b", "a", "c"]),
        ({}, ["c", "a", "b"]),
        ({"sort": "name", "status": "completed"}, ["c"]),
        ({"sort": "name", "status": "queued,completed"}, ["a", "b", "c"]),
        ({"sort": "name", "project": "text"}, ["a", "c"]),
        ({"sort": "name", "label.team/name": "x"}, ["b", "c"]),
        ({"q": "B"}, ["b"]),
        ({"q": "%"}, []),
    ],
)
async def test_sort_and_filter(client: httpx.AsyncClient, params: dict[str, str], expected: list[str]) -> None:
    assert await names(client, **params) == expected


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("sort", ["name", "-name", "priority", "-priority", "created_at", "-created_at"])
async def test_pages_hold_every_job_once(client: httpx.AsyncClient, sort: str) -> None:
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get(JOBS, params={"sort": sort, "limit": 1, **cursor})).json()
        seen += [item["name"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == await names(client, sort=sort)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"colour": "red"}, (400, "unknown_parameter")),
        ({"status": "sleeping"}, (400, "invalid_parameter")),
        ({"cursor": "nonsense"}, (400, "invalid_cursor")),
        ({"limit": "0"}, (422, "invalid_parameter")),
        ({"sort": "colour"}, (422, "invalid_parameter")),
    ],
)
async def test_bad_parameters(client: httpx.AsyncClient, params: dict[str, str], expected: tuple[int, str]) -> None:
    answer = await client.get(JOBS, params=params)
    assert answer.json()["code"] == expected[1]
    assert 400 <= answer.status_code < 500


# --- look


async def test_a_job_shows_its_ranks_and_generations(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
        row = await events.record(session, type="job.note", actor=SYSTEM, cause="test", message="hello", job_id=job.id)
    answer = await client.get(f"{JOBS}/{job.id}")
    found = answer.json()
    assert revision_of(answer) == 1
    assert [(rank["rank"], rank["node_name"], rank["state"], rank["pid"]) for rank in found["ranks"]] == [(0, "node-a", "running", 1000)]
    assert [generation["generation"] for generation in found["generations"]] == [1]
    assert found["as_of_seq"] == row.seq


async def test_each_rank_shows_its_place_in_the_mesh(client: httpx.AsyncClient, services: Services) -> None:
    spec = factories.job_spec(parallelism={"strategy": "fsdp", "replicate": 2}, resources={"nodes": 1, "slots_per_node": 4})
    async with services.write() as session:
        node, _ = await factories.create_node(session, slots=4)
        job = await factories.create_running_job(session, node, spec=spec)
    found = (await client.get(f"{JOBS}/{job.id}")).json()
    assert found["strategy"] == "fsdp, shard 2 x replicate 2"
    places = [(rank["place"]["replicate"], rank["place"]["shard"]) for rank in found["ranks"]]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]


async def test_a_job_that_you_have_is_not_sent_again(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services)
    same = {"If-None-Match": (await client.get(f"{JOBS}/{job.id}")).headers["ETag"]}
    answer = await client.get(f"{JOBS}/{job.id}", headers=same)
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", same["If-None-Match"])


async def why_it_waits(session: AsyncSession, job: JobRow) -> None:
    await job_lifecycle.set_pending(session, job, PlacementReason("slots_taken", "needs 2 nodes with 1 free slot each"), factories.START)


async def its_last_step(session: AsyncSession, job: JobRow) -> None:
    await progress_rows.save(session, {job.id: {"step": 700}})


async def how_a_rank_ended(session: AsyncSession, job: JobRow) -> None:
    (rank,) = (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]
    rank.state, rank.exit_code = RankState.EXITED, 3


@pytest.mark.parametrize("news", [why_it_waits, its_last_step, how_a_rank_ended])
async def test_what_moves_without_a_new_revision_is_sent(client: httpx.AsyncClient, services: Services, news: News) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    before = (await client.get(f"{JOBS}/{job.id}")).headers["ETag"]
    async with services.write() as session:
        await news(session, await jobs.find(session, job.id, lock=True))
    answer = await client.get(f"{JOBS}/{job.id}", headers={"If-None-Match": before})
    assert (answer.status_code, revision_of(answer)) == (200, 1)
    changed = await client.put(f"{JOBS}/{job.id}/pause", headers={"If-Match": before})
    assert (changed.status_code, revision_of(changed)) == (200, 2), "its state and its intent were as they had been seen"


async def test_an_unknown_job_is_not_found(client: httpx.AsyncClient) -> None:
    for method, path in (("GET", ""), ("PUT", "/pause"), ("PUT", "/resume"), ("DELETE", "")):
        answer = await client.request(method, f"{JOBS}/nothing{path}", headers={"If-Match": "*"})
        assert code(answer) == (404, "not_found")


async def test_the_schema_is_published(client: httpx.AsyncClient) -> None:
    schema = (await client.get("/api/v1/training/spec-schema")).json()
    assert schema["properties"]["name"]["pattern"]


# --- change


async def test_a_change_is_refused_where_it_names_another_revision(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services)
    assert code(await change(client, "PUT", job, "/pause", revision=7)) == (412, "precondition_failed")
    answer = await change(client, "PUT", job, "/pause")
    assert (answer.status_code, answer.json()["desired"], revision_of(answer)) == (200, "pause", 2)
    assert code(await change(client, "PUT", job, "/resume")) == (412, "precondition_failed")


@pytest.mark.parametrize(("method", "verb", "desired"), [("PUT", "/pause", "pause"), ("DELETE", "", "cancel")])
async def test_a_change_needs_neither_body_nor_revision(
    client: httpx.AsyncClient, services: Services, method: str, verb: str, desired: str
) -> None:
    job = await create(services)
    answer = await client.request(method, f"{JOBS}/{job.id}{verb}")
    assert (answer.status_code, answer.json()["desired"]) == (200, desired)


@pytest.mark.parametrize(
    ("columns", "method", "verb", "expected"),
    [
        ({"state": JobState.COMPLETED, "end_reason": EndReason.COMPLETED}, "DELETE", "", "job_finished"),
        ({"state": JobState.FAILED}, "PUT", "/pause", "job_finished"),
        ({"state": JobState.CANCELLED}, "PUT", "/resume", "job_finished"),
        ({"state": JobState.RUNNING}, "PUT", "/resume", "job_not_paused"),
        ({"state": JobState.PAUSED, "desired": Intent.PAUSE}, "PUT", "/pause", "job_already_paused"),
        ({"state": JobState.RUNNING, "desired": Intent.CANCEL}, "PUT", "/pause", "job_being_cancelled"),
        ({"state": JobState.STOPPING, "end_reason": EndReason.COMPLETED}, "PUT", "/pause", "job_not_running"),
        ({"state": JobState.RUNNING, "spec": factories.job_spec(**SCRIPT)}, "PUT", "/pause", "cannot_pause"),
    ],
)
async def test_what_cannot_be_done_says_why(
    client: httpx.AsyncClient, services: Services, columns: dict[str, Any], method: str, verb: str, expected: str
) -> None:
    job = await create(services, **columns)
    answer = await change(client, method, job, verb)
    assert code(answer) == (409, expected)
    assert job.name in answer.json()["detail"]


@pytest.mark.parametrize(
    "columns",
    [
        {"state": JobState.STOPPING, "end_reason": EndReason.PREEMPTED},
        {"state": JobState.STOPPING, "end_reason": EndReason.RESIZED},
        {"state": JobState.QUEUED, "spec": factories.job_spec(**SCRIPT)},
    ],
)
async def test_a_job_on_its_way_through_the_queue_can_be_held(
    client: httpx.AsyncClient, services: Services, columns: dict[str, Any]
) -> None:
    job = await create(services, **columns)
    answer = await change(client, "PUT", job, "/pause")
    assert (answer.status_code, answer.json()["desired"], answer.json()["can_pause"]) == (200, "pause", True)


async def test_what_an_ended_job_cannot_do_is_told_in_a_sentence(client: httpx.AsyncClient, services: Services) -> None:
    """It was `job gpt is completed at 2026-11-22T23:51:36+00:00 (completed); it cannot be resumed any more`."""
    ended = datetime(2026, 11, 22, 23, 51, 36, tzinfo=UTC)
    job = await create(services, state=JobState.COMPLETED, end_reason=EndReason.COMPLETED, ended_at=ended)
    answer = await change(client, "PUT", job, "/resume")
    assert answer.json()["detail"] == f"{job.name} can't be resumed: it completed at 2026-11-22 23:51:36 UTC"


async def test_cancelling_twice_is_harmless(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services, state=JobState.RUNNING)
    first = await change(client, "DELETE", job)
    second = await change(client, "DELETE", job, revision=first.json()["revision"])
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.json()["desired"] == "cancel"
    assert second.json()["revision"] == first.json()["revision"]


async def test_an_intent_is_in_the_history_with_who_and_why(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services, state=JobState.RUNNING)
    await change(client, "PUT", job, "/pause")
    (event,) = (await client.get(f"{JOBS}/{job.id}/events")).json()["items"]
    assert (event["type"], event["actor"]["kind"], event["actor"]["name"], event["data"]["desired"]) == (
        "job.intent",
        "user",
        "admin",
        "pause",
    )


async def test_refused_value_is_named(client: httpx.AsyncClient) -> None:
    wrong = document()
    wrong["training"]["steps"] = "soon"
    answer = await client.post(JOBS, json=wrong)
    assert code(answer) == (422, "invalid_spec")
    assert answer.json()["errors"][0]["pointer"] == "/training/steps"
    assert answer.json()["detail"].endswith("; got 'soon'")


async def test_a_job_that_has_recovered_for_weeks_is_shown_with_its_newest_generations(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "MOST_GENERATIONS", 3)
    job = await create(services, generation=5)
    async with services.write() as session:
        columns: dict[str, Any] = {"world_size": 1, "started_at": factories.START, "store_token": "t"}
        session.add_all(GenerationRow(job_id=job.id, generation=number, **columns) for number in range(1, 6))
    shown = (await client.get(f"{JOBS}/{job.id}")).json()["generations"]
    assert [each["generation"] for each in shown] == [3, 4, 5]
