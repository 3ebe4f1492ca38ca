"""Who may destroy what of whose job, and what the history keeps of who came in."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.services.jobs.ownership import require_owner_or_admin
from paceline.api.settings import Settings
from paceline.cluster.states import JobState
from paceline.db.models.checkpoints import CheckpointRow
from tests import factories
from tests.conftest import Connect

JOBS, CHECKPOINTS = "/api/v1/training/jobs", "/api/v1/checkpoints"


@pytest.fixture
async def keys(services: Services) -> dict[str, str]:
    """API keys of two members and an admin, by name."""
    async with services.write() as session:
        people = {"ann": "member", "bob": "member", "root": "admin"}
        return {name: (await factories.create_user(session, name=name, role=role))[1] for name, role in people.items()}


async def submit(connect: Connect, key: str) -> str:
    async with connect(key) as client:
        answer = await client.post(JOBS, json=factories.job_spec().model_dump(mode="json"))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def left_by(services: Services, job_id: str) -> tuple[str, str]:
    """The ids of a pinned checkpoint and an artifact of the job."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        common: dict[str, Any] = {"job_id": job_id, "generation": 1, "created_at": factories.START}
        checkpoint = CheckpointRow(
            **common, step=1, node_id=node.id, directory="/c/step-1", bytes=1, manifest_sha256="0" * 64, metrics={}, pinned=True
        )
        session.add(checkpoint)
        await session.flush()
        return checkpoint.id, node.id


async def asks(connect: Connect, key: str, method: str, path: str, **more: Any) -> httpx.Response:
    async with connect(key) as client:
        return await client.request(method, path, **more)


async def test_a_member_destroys_nothing_of_another_members_job_and_is_told_whose_it_is(
    connect: Connect, services: Services, keys: dict[str, str]
) -> None:
    job = await submit(connect, keys["ann"])
    checkpoint, _ = await left_by(services, job)
    destructive = [
        ("DELETE", f"{JOBS}/{job}"),
        ("PUT", f"{CHECKPOINTS}/{checkpoint}/unpin"),
        ("DELETE", f"{CHECKPOINTS}/{checkpoint}?confirm=true"),
        ("DELETE", f"{JOBS}/{job}/artifacts/x"),
        ("DELETE", f"{JOBS}/{job}/data"),
    ]
    for method, path in destructive:
        refused = await asks(connect, keys["bob"], method, path, headers={"If-Match": "*"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_the_owner"), (path, refused.text)
        assert f"{job}) is ann's: only ann or an admin may" in refused.json()["detail"]
    seen = (await asks(connect, keys["bob"], "GET", f"{JOBS}/{job}")).json()
    assert (seen["state"], seen["desired"], seen["created_by"]) == ("queued", "run", "ann")
    assert (await asks(connect, keys["bob"], "PUT", f"{CHECKPOINTS}/{checkpoint}/pin")).status_code == 200  # destroys nothing
    assert (await asks(connect, keys["ann"], "PUT", f"{CHECKPOINTS}/{checkpoint}/unpin")).status_code == 200
    assert (await asks(connect, keys["root"], "DELETE", f"{CHECKPOINTS}/{checkpoint}?confirm=true")).status_code == 202
    etag = (await asks(connect, keys["ann"], "GET", f"{JOBS}/{job}")).headers["etag"]
    assert (await asks(connect, keys["ann"], "DELETE", f"{JOBS}/{job}", headers={"If-Match": etag})).status_code == 200


async def test_what_can_be_undone_is_every_members(connect: Connect, keys: dict[str, str]) -> None:
    job = await submit(connect, keys["ann"])
    for verb in ("pause", "resume"):
        etag = (await asks(connect, keys["bob"], "GET", f"{JOBS}/{job}")).headers["etag"]
        answer = await asks(connect, keys["bob"], "PUT", f"{JOBS}/{job}/{verb}", headers={"If-Match": etag})
        assert answer.status_code == 200, answer.text


async def test_a_team_may_share_everything(services: Services) -> None:
    async with services.write() as session:
        user, _ = await factories.create_user(session, name="ann", role="member")
        job = await factories.create_job(session, created_by="bob", created_by_id=factories.new_id())  # type: ignore[attr-defined]
    caller = identity.Caller(user_id=user.id, name="ann", role="member", kind="key", credential="")
    require_owner_or_admin(caller, job, Settings(members_may="all"), "cancel it")


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_me_says_what_members_may(connect: Connect, keys: dict[str, str]) -> None:
    assert (await asks(connect, keys["ann"], "GET", "/api/v1/auth/me")).json()["members_may"] == "own"


async def test_a_job_without_an_owner_is_the_admins(connect: Connect, services: Services, keys: dict[str, str]) -> None:
    async with services.write() as session:
        job = await factories.create_job(session, state=JobState.QUEUED)
    for name, status in (("bob", 403), ("root", 200)):
        etag = (await asks(connect, keys[name], "GET", f"{JOBS}/{job.id}")).headers["etag"]
        assert (await asks(connect, keys[name], "DELETE", f"{JOBS}/{job.id}", headers={"If-Match": etag})).status_code == status


async def test_links_and_sign_ins_stand_in_the_history_with_who_it_was(connect: Connect, services: Services, keys: dict[str, str]) -> None:
    async with connect(keys["root"]) as root:
        users = {user["name"]: user["id"] for user in (await root.get("/api/v1/users")).json()["items"]}
        url = (await root.post(f"/api/v1/users/{users['ann']}/login-link")).json()["url"]
        async with connect() as browser:
            assert (await browser.post("/api/v1/auth/login", json={"token": url.partition("token=")[2]})).status_code == 200
        answer = await root.get("/api/v1/events")
        told = {event["type"]: event for event in answer.json()["items"]}
    assert (told["auth.link_created"]["actor"]["name"], told["auth.link_created"]["data"]) == ("root", {"id": users["ann"]})
    assert "root made a login link for ann" in told["auth.link_created"]["message"]
    assert told["auth.signed_in"]["actor"]["name"] == "ann"
    assert url.partition("token=")[2] not in str(told)
