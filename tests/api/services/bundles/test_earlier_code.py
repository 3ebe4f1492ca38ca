"""The list of the code that earlier jobs ran: each bundle once, by its newest job; on both databases."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.bundles.archive import pack
from paceline.bundles.listing import list_files
from paceline.db.models.jobs import JobRow
from paceline.training.spec.stored import StoredSpec
from tests.api.services.bundles.test_bundles import BUNDLES, Sent
from tests.api.test_jobs import JOBS, SCRIPT


@pytest.fixture
def send(client: httpx.AsyncClient, tmp_path: Path) -> Any:
    async def send(text: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "train.py").write_text(text)
        into = io.BytesIO()
        sent = Sent(client, pack(list_files(folder), into), into.getvalue())
        await sent.send_all()
        return sent.packed.digest

    return send


async def submit(client: httpx.AsyncClient, name: str, digest: str | None, **facts: Any) -> str:
    environment = {} if digest is None else {"code": {"bundle": digest, **facts}}
    answer = await client.post(JOBS, json={"name": name, **SCRIPT, "environment": environment})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def listed(client: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await client.get(BUNDLES, params=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_each_code_is_listed_once_with_its_newest_job(client: httpx.AsyncClient, send: Any) -> None:
    old, new = await send("1"), await send("2")
    await submit(client, "first", old)
    await submit(client, "second", new, folder="mine", commit="abc", branch="main", uncommitted=["train.py"])
    third = await submit(client, "third", old, folder="mine")
    await submit(client, "bare", None)
    items = (await listed(client))["items"]
    assert [(item["job_name"], item["code"]["bundle"]) for item in items] == [("third", old), ("second", new)]
    assert items[0]["job_id"] == third
    assert items[1]["code"] == {"bundle": new, "folder": "mine", "commit": "abc", "branch": "main", "uncommitted": ["train.py"]}
    assert (items[1]["files"], items[1]["bytes"] > 0) == (1, True)


async def test_a_page_goes_on_where_the_one_before_ended(client: httpx.AsyncClient, send: Any) -> None:
    digests = [await send(str(number)) for number in range(3)]
    for digest in [*digests, digests[0]]:
        await submit(client, "job", digest)
    first = await listed(client, limit=2)
    second = await listed(client, limit=2, cursor=first["next_cursor"])
    assert [item["code"]["bundle"] for item in first["items"] + second["items"]] == [digests[0], digests[2], digests[1]]
    assert second["next_cursor"] is None


async def test_a_name_or_an_id_finds_the_job_that_has_it(client: httpx.AsyncClient, send: Any) -> None:
    digest = await send("1")
    wanted = await submit(client, "wanted_100", digest)
    await submit(client, "other", digest)
    assert [item["job_name"] for item in (await listed(client))["items"]] == ["other"]
    for text in ("wanted", "WANTED", "d_100", wanted.lower()):
        assert [item["job_id"] for item in (await listed(client, q=text))["items"]] == [wanted], text
    assert (await listed(client, q="wanted_1000"))["items"] == []


async def test_archived_jobs_and_bundles_that_are_still_arriving_are_left_out(
    client: httpx.AsyncClient, send: Any, services: Services
) -> None:
    digest, arriving = await send("1"), await send("2")
    archived, second = await submit(client, "archived", digest), await submit(client, "arriving", arriving)
    async with services.write() as session:
        for job_id, column, value in ((archived, "archived_at", services.now()), (second, "bundle", "0" * 64)):
            row = await session.get(JobRow, job_id)
            assert row is not None
            setattr(row, column, value)
    assert (await listed(client))["items"] == []


async def test_a_spec_that_can_no_longer_be_read_keeps_its_code(client: httpx.AsyncClient, send: Any, services: Services) -> None:
    digest = await send("1")
    job_id = await submit(client, "old", digest, folder="mine")
    async with services.write() as session:
        row = await session.get(JobRow, job_id)
        assert row is not None
        row.spec = StoredSpec({**row.spec.document, "gone": 1})
    [item] = (await listed(client))["items"]
    assert (item["code"]["bundle"], item["code"]["folder"]) == (digest, None)
