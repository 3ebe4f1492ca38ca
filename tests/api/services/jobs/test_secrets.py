"""Secrets at the coordinator: set, listed without values, replaced, deleted, required by jobs, and given to the nodes that run them alone."""

from __future__ import annotations

import base64
import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from paceline.api.core.context import Services
from paceline.api.loops import housekeeping
from paceline.api.services.jobs import secrets
from paceline.cluster.protocol import SECRETS_PATH, JobSecrets
from paceline.cluster.states import JobState, RankState
from paceline.db import backup
from paceline.db.models.secrets import SecretRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import secrets as rows
from tests import factories
from tests.api.test_jobs import JOBS, SCRIPT
from tests.conftest import Connect

SECRETS = "/api/v1/secrets"
VALUE = "hf_Canary0123456789"


async def put(client: httpx.AsyncClient, name: str = "TOKEN", value: Any = VALUE, project: str = "vision") -> httpx.Response:
    return await client.put(f"{SECRETS}/{project}/{name}", json={"value": value})


def job(*names: str, project: str = "vision", **environment: Any) -> dict[str, Any]:
    return {"name": "uses", "project": project, **SCRIPT, "environment": {"secrets": list(names), **environment}}


async def member(services: Services, connect: Connect, name: str, role: str = "member") -> httpx.AsyncClient:
    async with services.write() as session:
        _, key = await factories.create_user(session, name=name, role=role)
    return connect(key)


async def test_a_secret_is_listed_by_name_and_replaced(client: httpx.AsyncClient) -> None:
    first = await put(client)
    assert (first.status_code, set(first.json())) == (200, {"project", "name", "created_by", "created_at", "updated_by", "updated_at"})
    await put(client, value="another-value")
    await put(client, "OTHER", project="text")
    assert [each["name"] for each in (await client.get(SECRETS)).json()] == ["OTHER", "TOKEN"]
    assert [each["name"] for each in (await client.get(SECRETS, params={"project": "vision"})).json()] == ["TOKEN"]
    assert (await client.delete(f"{SECRETS}/vision/TOKEN")).status_code == 204
    assert (await client.get(SECRETS, params={"project": "vision"})).json() == []
    assert (await client.delete(f"{SECRETS}/vision/TOKEN")).json()["detail"] == "there is no secret of project vision 'TOKEN'"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("s3cr:7", "the value has 6 characters; give at least 8"),
        ("s3cr:" + "x" * (32 << 10), "the limit is 32,768"),
        ("s3cr:\0xxxxxxx", "NUL"),
        (["s3cr:xxxxxx"], "is a text"),
        (735312345678, "is a text"),
    ],
)
async def test_a_value_that_cannot_be_is_refused_without_being_shown(client: httpx.AsyncClient, value: Any, words: str) -> None:
    answer = await put(client, value=value)
    assert answer.status_code == 422
    assert words in answer.text
    told = answer.text.replace(answer.json()["request_id"], "")  # which may have any digits
    assert "s3cr" not in told
    assert "7353" not in told


@pytest.mark.parametrize("name", ["1ST", "A-B", "A=B", "x" * 101])
async def test_a_name_that_no_variable_has_is_refused(client: httpx.AsyncClient, name: str) -> None:
    answer = await put(client, name)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert "1 to 100 letters, digits" in answer.text


@pytest.mark.parametrize("name", ["RANK", "MASTER_ADDR", "PACELINE_CACHE"])
async def test_a_name_that_no_job_may_have_is_refused_when_it_is_set(client: httpx.AsyncClient, name: str) -> None:
    """It was set, with the advice to name it in a job, which was then refused."""
    answer = await put(client, name)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert f"{name} is a variable that Paceline itself sets for each rank; take another name" in answer.json()["detail"]


async def test_members_use_all_and_replace_their_own_and_viewers_see_none(
    client: httpx.AsyncClient, services: Services, connect: Connect
) -> None:
    async with await member(services, connect, "mel") as mel, await member(services, connect, "max") as other:
        assert (await put(mel)).status_code == 200
        for answer in (await put(other, value="taken-over"), await other.delete(f"{SECRETS}/vision/TOKEN")):
            assert (answer.status_code, answer.json()["code"]) == (403, "not_the_owner")
        assert (await other.post(JOBS, json=job("TOKEN"))).status_code == 201
        assert (await other.post(f"{SECRETS}/rotate", json={})).status_code == 403
    assert (await put(client, value="by-an-admin")).status_code == 200
    async with await member(services, connect, "vera", "viewer") as viewer:
        assert [(await viewer.get(SECRETS)).status_code, (await put(viewer)).status_code] == [403, 403]


async def test_a_job_that_names_what_is_not_there_is_refused_with_the_way_out(client: httpx.AsyncClient) -> None:
    await put(client, project="text")
    answer = await client.post(JOBS, json=job("TOKEN", "OTHER"))
    assert (answer.status_code, answer.json()["code"]) == (422, "no_secret")
    assert "project vision has no TOKEN, OTHER (it has none)" in answer.json()["detail"]
    assert "paceline secret set TOKEN --project vision" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"secrets": ["RANK"]}, "Paceline itself sets"),
        ({"secrets": ["PACELINE_CACHE"]}, "Paceline itself sets"),
        ({"secrets": ["A", "A"]}, "A twice"),
        ({"secrets": ["A"], "variables": {"A": "1"}}, "both have A"),
        ({"secrets": ["A B"]}, "letters, digits"),
        ({"secrets": [f"N{number}" for number in range(51)]}, "50"),
    ],
)
async def test_names_that_cannot_be_are_refused(client: httpx.AsyncClient, environment: dict[str, Any], words: str) -> None:
    answer = await client.post(JOBS, json=job() | {"environment": environment})
    assert answer.status_code == 422
    assert words in answer.text


async def test_a_spec_without_secrets_is_stored_as_it_was_before_them(client: httpx.AsyncClient) -> None:
    stored = (await client.post(JOBS, json={"name": "plain", **SCRIPT})).json()
    assert "secrets" not in stored["spec"]["environment"]


async def asked(connect: Connect, key: str, job_id: str) -> httpx.Response:
    async with connect(key) as agent:
        return await agent.get(f"{SECRETS_PATH}/{job_id}")


async def test_values_go_to_the_nodes_that_run_the_job_and_nowhere_else(
    client: httpx.AsyncClient, services: Services, connect: Connect, admin_key: str
) -> None:
    await put(client)
    await put(client, "UNNAMED", "never-asked-for")
    async with services.write() as session:
        node, key = await factories.create_node(session)
        _, stranger = await factories.create_node(session, name="other")
        running = await factories.create_running_job(session, node, spec=factories.job_spec(**job("TOKEN")))
    answer = await asked(connect, key, running.id)
    found = msgspec.json.decode(answer.content, type=JobSecrets)
    assert (found.values, found.former, found.missing) == ({"TOKEN": VALUE}, (), ())
    assert answer.headers["cache-control"] == "no-store"
    assert VALUE not in repr(found)
    assert (await asked(connect, stranger, running.id)).status_code == 404
    assert (await asked(connect, admin_key, running.id)).status_code == 401
    await put(client, value="a-newer-value")
    found = msgspec.json.decode((await asked(connect, key, running.id)).content, type=JobSecrets)
    assert (found.values, found.former) == ({"TOKEN": "a-newer-value"}, (VALUE,))
    await client.delete(f"{SECRETS}/vision/TOKEN")
    found = msgspec.json.decode((await asked(connect, key, running.id)).content, type=JobSecrets)
    assert (found.values, found.former, found.missing) == ({}, (VALUE, "a-newer-value"), ("TOKEN",))


async def test_a_node_that_still_has_files_of_an_ended_job_is_told_what_to_look_for_in_them(
    client: httpx.AsyncClient, services: Services, connect: Connect
) -> None:
    await put(client)
    async with services.write() as session:
        node, key = await factories.create_node(session)
        ended = await factories.create_running_job(session, node, spec=factories.job_spec(**job("TOKEN")))
        for rank in (await job_rows.ranks(session, [(ended.id, 1)]))[ended.id, 1]:
            rank.drained, rank.state = True, RankState.EXITED
        (row,) = await rows.of_names(session, "vision", ["TOKEN"])
        row.updated_at = ended.created_at
    found = msgspec.json.decode((await asked(connect, key, ended.id)).content, type=JobSecrets)
    assert found.values == {"TOKEN": VALUE}
    async with services.write() as session:
        (row,) = await rows.of_names(session, "vision", ["TOKEN"])
        row.updated_at = ended.created_at + timedelta(seconds=1)
    assert (await asked(connect, key, ended.id)).status_code == 404, "the value that the job has had is not known any more"


async def test_a_node_is_told_which_runs_of_a_resumed_job_had_values_that_are_deleted(
    client: httpx.AsyncClient, services: Services, connect: Connect
) -> None:
    """What the first run has left was sent without a look for the value that it had."""
    await put(client)
    async with services.write() as session:
        node, key = await factories.create_node(session)
        running = await factories.create_running_job(session, node, spec=factories.job_spec(**job("TOKEN")))
        (row,) = await rows.of_names(session, "vision", ["TOKEN"])
        began = (await job_rows.generation(session, running.id, 1)).started_at  # type: ignore[union-attr]
        row.updated_at = began
    found = msgspec.json.decode((await asked(connect, key, running.id)).content, type=JobSecrets)
    assert found.since == 1
    async with services.write() as session:
        (row,) = await rows.of_names(session, "vision", ["TOKEN"])
        row.updated_at = began + timedelta(seconds=1)
    found = msgspec.json.decode((await asked(connect, key, running.id)).content, type=JobSecrets)
    assert found.since == 2


async def test_a_former_value_is_kept_as_long_as_ranks_may_print_it(client: httpx.AsyncClient, services: Services) -> None:
    await put(client)
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        running = await factories.create_running_job(session, node, spec=factories.job_spec(**job("TOKEN")))
    await put(client, value="a-newer-value")
    later = services.now() + timedelta(hours=1)
    await secrets.forget_retired(services, later)
    async with services.write() as session:
        assert len(await rows.retired(session)) == 1
        for rank in (await job_rows.ranks(session, [(running.id, 1)]))[running.id, 1]:
            rank.drained, rank.state = True, RankState.EXITED
    await housekeeping.step_once(services, later)
    async with services.control.read() as session:
        assert [row.name for row in await rows.retired(session)] == []
        assert [row.name for row in await rows.of_project(session, "vision")] == ["TOKEN"]


async def move(client: httpx.AsyncClient, job_id: str, project: str) -> httpx.Response:
    return await client.patch(f"{JOBS}/{job_id}", json={"project": project})


async def test_a_job_stays_in_the_project_whose_secrets_its_ranks_have(
    client: httpx.AsyncClient, services: Services, connect: Connect
) -> None:
    """Moved, it would be given the new project's values, and what ranks print of the old ones would not be masked."""
    await put(client)
    await put(client, value="of-another-project", project="archive")
    async with services.write() as session:
        node, key = await factories.create_node(session)
        running = await factories.create_running_job(session, node, spec=factories.job_spec(**job("TOKEN")))
    refused = await move(client, running.id, "archive")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert "have secrets of project vision (TOKEN)" in refused.json()["detail"]
    assert "pause or cancel the job" in refused.json()["detail"]
    assert msgspec.json.decode((await asked(connect, key, running.id)).content, type=JobSecrets).values == {"TOKEN": VALUE}
    async with services.write() as session:
        for rank in (await job_rows.ranks(session, [(running.id, 1)]))[running.id, 1]:
            rank.drained, rank.state = True, RankState.EXITED
    assert (await move(client, running.id, "archive")).json()["project"] == "archive"


async def test_files_of_an_ended_job_that_was_moved_are_masked_by_the_values_that_its_ranks_had(
    client: httpx.AsyncClient, services: Services, connect: Connect
) -> None:
    """The other project's value of that name left the real one readable in what its node had still to send."""
    await put(client)
    await put(client, value="of-another-project", project="archive")
    async with services.write() as session:
        node, key = await factories.create_node(session)
        ended = await factories.create_running_job(session, node, spec=factories.job_spec(**job("TOKEN")))
        for rank in (await job_rows.ranks(session, [(ended.id, 1)]))[ended.id, 1]:
            rank.drained, rank.state = True, RankState.EXITED
        ended.state, ended.ended_at = JobState.COMPLETED, services.now()
        for project in ("vision", "archive"):
            (row,) = await rows.of_names(session, project, ["TOKEN"])
            row.updated_at = ended.created_at
    for project in ("archive", "without-secrets"):
        assert (await move(client, ended.id, project)).json()["project"] == project
        assert msgspec.json.decode((await asked(connect, key, ended.id)).content, type=JobSecrets).values == {"TOKEN": VALUE}


async def test_a_job_is_not_moved_where_it_could_not_start(client: httpx.AsyncClient) -> None:
    await put(client)
    waiting = (await client.post(JOBS, json=job("TOKEN"))).json()
    refused = await move(client, waiting["id"], "archive")
    assert (refused.status_code, refused.json()["code"]) == (422, "no_secret")
    await put(client, project="archive")
    assert (await move(client, waiting["id"], "archive")).json()["project"] == "archive"


async def test_who_did_what_is_in_the_audit(client: httpx.AsyncClient) -> None:
    await put(client)
    await put(client, value="a-newer-value")
    await client.delete(f"{SECRETS}/vision/TOKEN")
    await client.post(f"{SECRETS}/rotate", json={})
    entries = (await client.get("/api/v1/audit")).json()["items"]
    assert [each["action"] for each in entries][:4] == ["secret.rotated", "secret.deleted", "secret.set", "secret.set"]
    assert entries[2]["message"].endswith("replaced the secret TOKEN of project vision")


async def test_a_moved_value_does_not_open(client: httpx.AsyncClient, services: Services, connect: Connect) -> None:
    await put(client)
    await put(client, "PUBLIC", "shown-to-everybody")
    async with services.write() as session:
        node, key = await factories.create_node(session)
        running = await factories.create_running_job(session, node, spec=factories.job_spec(**job("PUBLIC")))
        by_name: dict[str, SecretRow] = {row.name: row for row in await rows.of_project(session, "vision")}
        by_name["PUBLIC"].sealed = by_name["TOKEN"].sealed
    answer = await asked(connect, key, running.id)
    assert (answer.status_code, answer.json()["code"]) == (503, "secret_key_missing")


async def test_twenty_canaries_are_in_no_file_no_answer_and_no_backup(
    client: httpx.AsyncClient, services: Services, connect: Connect, tmp_path: Path
) -> None:
    canaries = {f"CANARY_{number}": f"canary-{number}-{os.urandom(8).hex()}" for number in range(20)}
    answers = [(await put(client, name, value)).text for name, value in canaries.items()]
    async with services.write() as session:
        node, key = await factories.create_node(session)
        running = await factories.create_running_job(session, node, spec=factories.job_spec(**job(*canaries)))
    assert msgspec.json.decode((await asked(connect, key, running.id)).content, type=JobSecrets).values == canaries
    for path in (SECRETS, f"{JOBS}/{running.id}", JOBS, "/api/v1/events", "/api/v1/audit", f"{JOBS}/{running.id}/plan"):
        answers.append((await client.get(path)).text)
    data = services.settings.data
    if services.settings.database_url is None:
        backup.back_up(data, tmp_path / "backup")
        with closing(sqlite3.connect(data / "paceline.db")) as database:
            answers.append("\n".join(database.iterdump()))
    files = b"".join(path.read_bytes() for folder in (data, tmp_path) for path in folder.rglob("*") if path.is_file())
    for value in canaries.values():
        for form in (value, value.removeprefix("canary-"), base64.b64encode(value.encode()).decode()):
            assert form.encode() not in files
            assert form not in "".join(answers)
    assert not (tmp_path / "backup" / "secrets.key").exists()


async def test_a_submission_warns_of_a_secret_among_its_variables(client: httpx.AsyncClient) -> None:
    open_to_all = {"name": "open"} | SCRIPT | {"environment": {"variables": {"HF_TOKEN": "hf_1", "MAX_TOKENS": "10"}}}
    answer = await client.post(JOBS, json=open_to_all)
    assert answer.status_code == 201, answer.text
    warning, about_script = answer.json()["warnings"]
    assert "environment.variables has HF_TOKEN: everybody who sees the job can read" in warning
    assert "`paceline secret set HF_TOKEN`" in warning
    assert (await client.post(JOBS, json={"name": "closed"} | SCRIPT)).json()["warnings"] == [about_script]
