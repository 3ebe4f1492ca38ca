"""Bundles at the coordinator: sent in chunks, verified, given out, required by jobs, and deleted when none names them; on both databases."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from paceline.api.core.context import Services
from paceline.api.loops.storage import StorageKeeper
from paceline.api.services.bundles import bundles
from paceline.bundles.archive import CHUNK_BYTES, MOST_PACKED_BYTES, PackedBundle, pack
from paceline.bundles.listing import list_files
from paceline.cluster.protocol import BUNDLES_PATH
from paceline.db.models.bundles import BundleRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import bundles as rows
from paceline.db.session import Database
from tests import factories
from tests.api.test_experiments import EXPERIMENTS, JOB, post
from tests.api.test_jobs import JOBS, SCRIPT
from tests.conftest import Connect

BUNDLES = "/api/v1/training/bundles"


@dataclass
class Sent:
    """A packed folder, and the client that sends it."""

    client: httpx.AsyncClient
    packed: PackedBundle
    data: bytes

    @property
    def path(self) -> str:
        return f"{BUNDLES}/{self.packed.digest}"

    def chunk(self, number: int) -> bytes:
        return self.data[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]

    async def offer(self, **other: Any) -> httpx.Response:
        facts = {"bytes": self.packed.bytes, "unpacked_bytes": self.packed.unpacked_bytes, "files": self.packed.files}
        return await self.client.put(self.path, json=facts | other)

    async def send(self, number: int, data: bytes | None = None) -> httpx.Response:
        return await self.client.put(f"{self.path}/chunks/{number}", content=self.chunk(number) if data is None else data)

    async def send_all(self) -> None:
        assert (await self.offer()).json()["next_chunk"] == 0
        for number in range(-(-len(self.data) // CHUNK_BYTES)):
            answer = await self.send(number)
            assert answer.status_code == 200, answer.text
        assert answer.json()["state"] == "ready"


@pytest.fixture
def sent(client: httpx.AsyncClient, tmp_path: Path) -> Sent:
    """A bundle of three chunks: what cannot be compressed stays as long as it is."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)")
    (tmp_path / "code" / "noise.bin").write_bytes(random.Random(0).randbytes(2 * CHUNK_BYTES + 500))
    into = io.BytesIO()
    return Sent(client, pack(list_files(tmp_path / "code"), into), into.getvalue())


def tar_naming(*names: str) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    return plain.getvalue()


def spec_with(digest: str) -> dict[str, Any]:
    return {"name": "shipped", **SCRIPT, "environment": {"code": {"bundle": digest, "commit": "abc123", "uncommitted": ["train.py"]}}}


async def test_a_bundle_whose_contents_a_power_cut_has_taken_is_asked_for_again(sent: Sent, services: Services) -> None:
    """It stayed "ready": nothing was sent, and every job that named it failed, for ever."""
    await sent.send_all()
    async with services.metrics.write() as points:
        assert await rows.drop_last_chunks(points, sent.packed.digest, 2) == 2
    answer = (await sent.offer()).json()
    assert (answer["state"], answer["next_chunk"]) == ("arriving", 1)
    for number in (1, 2):
        answer = (await sent.send(number)).json()
    assert answer["state"] == (await sent.offer()).json()["state"] == "ready"
    assert (await sent.client.get(f"{sent.path}/content")).content == sent.data


async def test_a_bundle_is_ready_once_its_contents_survive_a_power_cut(
    sent: Sent, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []

    async def look(_: Database) -> None:
        async with services.control.read() as session:
            states.append("arriving" if (await bundles.find(session, sent.packed.digest)).stored_at is None else "ready")

    monkeypatch.setattr(Database, "make_durable", look)
    await sent.send_all()
    assert states == ["arriving"]


async def test_what_was_sent_comes_back(sent: Sent) -> None:
    await sent.send_all()
    back = await sent.client.get(f"{sent.path}/content", headers={"Accept-Encoding": "gzip"})
    assert (back.content, back.headers["content-type"], back.headers["content-length"]) == (
        sent.data,
        "application/zstd",
        str(len(sent.data)),
    )
    assert "content-encoding" not in back.headers
    document = (await sent.client.get(sent.path)).json()
    assert (document["files"], document["next_chunk"], document["unpacked_bytes"]) == (2, None, sent.packed.unpacked_bytes)


async def test_everything_is_harmless_a_second_time(sent: Sent) -> None:
    assert (await sent.offer()).json()["next_chunk"] == (await sent.offer()).json()["next_chunk"] == 0
    assert (await sent.send(2)).json()["next_chunk"] == 0  # not the next one
    assert (await sent.send(0)).json()["next_chunk"] == 1
    assert (await sent.send(0)).json()["next_chunk"] == 1
    assert (await sent.send(1, b"short")).json()["next_chunk"] == 1
    assert (await sent.offer()).json()["next_chunk"] == 1  # another client goes on where this one stopped
    await sent.send(1)
    assert (await sent.send(2)).json()["state"] == "ready"
    assert (await sent.send(2)).json()["state"] == (await sent.offer()).json()["state"] == "ready"


async def test_other_code_under_this_digest_is_refused_and_forgotten(sent: Sent) -> None:
    await sent.offer()
    await sent.send(0, b"x" + sent.chunk(0)[1:])
    await sent.send(1)
    answer = await sent.send(2)
    assert answer.json()["code"] == "invalid_request", answer.text
    assert f"is not the bundle {sent.packed.digest}" in answer.json()["detail"]
    assert (await sent.client.get(sent.path)).status_code == 404
    await sent.send_all()


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (b"no tar archive at all" * 100, "cannot be unpacked"),
        (tar_naming("../up.py"), "is no file or link below the folder"),
        (tar_naming("train.py", "train.py"), "has the place of another file"),
        (tar_naming("folder/" * 450 + "train.py"), "has 3,158 bytes; a path in a bundle may have 3,072: shorten the names of its folders"),
        (tar_naming("n" * 256), "no node could unpack the bundle"),
    ],
    ids=["words", "outside", "twice", "long path", "long name"],
)
async def test_what_no_node_could_unpack_is_refused_when_it_arrives(client: httpx.AsyncClient, plain: bytes, words: str) -> None:
    """It was stored: a job with it was started four times in vain, and asking what it changed was an error of the coordinator's."""
    packed = zstandard.compress(plain)
    sent = Sent(client, PackedBundle(hashlib.sha256(plain).hexdigest(), len(packed), len(plain), 1), packed)
    await sent.offer()
    answer = await sent.send(0)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text
    assert words in answer.json()["detail"]
    assert (await client.get(sent.path)).status_code == 404


@pytest.mark.parametrize("other", [{"bytes": MOST_PACKED_BYTES + 1}, {"bytes": 0}, {"files": 10**9}, {"unpacked_bytes": -1}, {"mode": 1}])
async def test_offers_out_of_range_are_refused(sent: Sent, other: dict[str, int]) -> None:
    assert (await sent.offer(**other)).status_code == 422


async def test_an_offer_of_another_size_says_what_to_do(sent: Sent) -> None:
    await sent.offer()
    answer = await sent.offer(bytes=1234)
    assert (answer.status_code, answer.json()["code"]) == (409, "already_exists")


async def test_the_same_folder_packed_by_another_zstd_takes_the_place_of_an_upload_that_broke_off(sent: Sent, services: Services) -> None:
    """It was refused for an hour or two, though nobody sent the first one any more."""

    async def wait_in_vain() -> None:
        async with services.write() as session:
            (await session.get_one(BundleRow, sent.packed.digest)).offered_at = services.now() - bundles.SENDING

    await sent.offer()
    await wait_in_vain()
    assert (await sent.send(0)).json()["next_chunk"] == 1
    assert (await sent.offer(bytes=1234)).status_code == 409, "somebody sends it"
    await wait_in_vain()
    answer = (await sent.offer(bytes=1234)).json()
    assert (answer["bytes"], answer["next_chunk"]) == (1234, 0)


async def test_only_digests_are_names(client: httpx.AsyncClient) -> None:
    for name in ("x", "F" * 64, "0" * 63, "..%2F" + "0" * 64):
        assert (await client.get(f"{BUNDLES}/{name}")).status_code in (400, 404)
    assert (await client.get(f"{BUNDLES}/{'0' * 64}")).status_code == 404
    assert (await client.put(f"{BUNDLES}/{'0' * 64}/chunks/0", content=b"x")).status_code == 404


async def test_viewers_look_and_send_nothing(sent: Sent, connect: Connect, services: Services) -> None:
    await sent.send_all()
    async with services.write() as session:
        _, key = await factories.create_user(session, name="vera", role="viewer")
    async with connect(key) as client:
        viewer = Sent(client, sent.packed, sent.data)
        assert (await client.get(f"{viewer.path}/content")).content == sent.data
        assert (await viewer.offer()).status_code == (await viewer.send(0)).status_code == 403


async def test_a_job_needs_its_bundle(sent: Sent) -> None:
    body = spec_with(sent.packed.digest)
    refused = await sent.client.post(JOBS, json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "no_bundle")
    assert "paceline submit --workdir" in refused.json()["detail"]
    await sent.offer()
    assert "has not arrived in full" in (await sent.client.post(JOBS, json=body)).json()["detail"]
    for number in range(3):
        await sent.send(number)
    job = (await sent.client.post(JOBS, json=body)).json()
    assert job["spec"]["environment"]["code"]["commit"] == "abc123"
    assert job["warnings"] == []


async def test_code_and_a_folder_on_the_nodes_are_one_too_many(client: httpx.AsyncClient) -> None:
    body = spec_with("0" * 64)
    body["environment"]["working_directory"] = "/work"
    answer = await client.post(JOBS, json=body)
    assert answer.status_code == 422
    assert "environment.working_directory=/work and environment.code are both given" in answer.text


async def test_bundles_that_no_job_names_are_deleted_after_a_day(sent: Sent, services: Services) -> None:
    await sent.send_all()
    job = (await sent.client.post(JOBS, json=spec_with(sent.packed.digest))).json()
    await bundles.drop_unused(services, services.now() + timedelta(days=30))
    assert (await sent.client.get(sent.path)).status_code == 200
    async with services.write() as session:
        row = await session.get(JobRow, job["id"])
        assert row is not None
        row.bundle = None  # as when the job's row is gone
    await bundles.drop_unused(services, services.now() + timedelta(hours=23))
    assert (await sent.client.get(sent.path)).status_code == 200
    await StorageKeeper(services, pass_seconds=60.0).step_once(services.now() + timedelta(days=2))
    assert (await sent.client.get(sent.path)).status_code == 404
    async with services.metrics.read() as points:
        assert await rows.chunks(points, sent.packed.digest) == 0


async def test_the_code_of_an_experiment_that_waits_for_days_is_kept_until_it_ends(sent: Sent, services: Services) -> None:
    """Its trials were refused, for the code was gone before the first of them could start."""
    await sent.send_all()
    experiment = await post(sent.client, job=JOB | {"environment": {"code": {"bundle": sent.packed.digest}}})
    await bundles.drop_unused(services, services.now() + timedelta(days=7))
    assert (await sent.client.get(sent.path)).json()["state"] == "ready"
    assert (await sent.client.delete(f"{EXPERIMENTS}/{experiment['id']}")).json()["state"] == "cancelled"
    await bundles.drop_unused(services, services.now() + timedelta(days=7))
    assert (await sent.client.get(sent.path)).status_code == 404


async def test_one_that_never_arrived_goes_within_hours(sent: Sent, services: Services) -> None:
    await sent.offer()
    await sent.send(0)
    await bundles.drop_unused(services, services.now() + timedelta(minutes=50))
    assert (await sent.client.get(sent.path)).json()["next_chunk"] == 1
    await bundles.drop_unused(services, services.now() + timedelta(hours=2))
    assert (await sent.client.get(sent.path)).status_code == 404


async def test_one_pass_deletes_all_bundles_that_nothing_names(services: Services) -> None:
    """It was 20 an hour."""
    count, now = 2 * bundles.MOST_AT_ONCE + 1, services.now()
    facts: dict[str, Any] = {"bytes": 1, "unpacked_bytes": 1, "files": 1, "created_by": "ada", "created_at": now, "offered_at": now}
    async with services.write() as session:
        for number in range(count):
            await rows.add(session, BundleRow(digest=f"{number:064}", stored_at=now, **facts))
    await StorageKeeper(services, pass_seconds=60.0).step_once(now + timedelta(days=2))
    async with services.control.read() as session:
        assert not await rows.unused(session, now + timedelta(days=2), now, count)


@pytest.mark.parametrize("moment", ["unused", "drop_last_chunks"])
async def test_one_that_is_offered_again_while_others_are_deleted_can_be_named(
    sent: Sent, services: Services, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its client is told what to send, if anything, and submits the job a moment later."""
    await sent.send_all()
    async with services.write() as session:
        (await session.get_one(BundleRow, sent.packed.digest)).offered_at = services.now() - timedelta(days=2)
    original, answers = getattr(rows, moment), list[httpx.Response]()

    async def offered_meanwhile(*arguments: Any) -> Any:
        found = await original(*arguments)
        monkeypatch.setattr(rows, moment, original)
        await arguments[0].commit()  # the offer's transaction is the next
        answers.append(await sent.offer())
        return found

    monkeypatch.setattr(rows, moment, offered_meanwhile)
    await bundles.drop_unused(services, services.now())
    while (wanted := answers[-1].json()["next_chunk"]) is not None:
        answers.append(await sent.send(wanted))
    assert (await sent.client.post(JOBS, json=spec_with(sent.packed.digest))).status_code == 201
    assert (await sent.client.get(f"{sent.path}/content")).content == sent.data


async def test_nodes_with_ranks_of_its_jobs_get_it_with_their_credential_alone(sent: Sent, connect: Connect, services: Services) -> None:
    """Any node's credential got any job's code: docs/deploy says that it reads that of the jobs which run there."""
    await sent.send_all()
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        idle, of_idle = await factories.create_node(session, name="idle")
        await factories.create_running_job(session, node, bundle=sent.packed.digest)
        await factories.create_running_job(session, idle)
    async with connect(credential) as agent:
        assert (await agent.get(f"{BUNDLES_PATH}/{sent.packed.digest}")).content == sent.data
        assert (await agent.get(f"{BUNDLES_PATH}/{'0' * 64}")).status_code == 404
    async with connect(of_idle) as agent:
        assert (await agent.get(f"{BUNDLES_PATH}/{sent.packed.digest}")).status_code == 404
    assert (await sent.client.get(f"{BUNDLES_PATH}/{sent.packed.digest}")).status_code == 401


async def test_two_bundles_are_told_apart_by_their_files(sent: Sent, tmp_path: Path) -> None:
    """A comparison of two jobs showed two digests."""
    await sent.send_all()
    (tmp_path / "code" / "train.py").write_text("print(2)")
    (tmp_path / "code" / "noise.bin").rename(tmp_path / "code" / "data.bin")
    into = io.BytesIO()
    other = Sent(sent.client, pack(list_files(tmp_path / "code"), into), into.getvalue())
    await other.send_all()
    answer = await sent.client.get(f"{other.path}/changes", params={"since": sent.packed.digest})
    told = {"since": sent.packed.digest, "added": ["data.bin"], "removed": ["noise.bin"], "changed": ["train.py"], "count": 3}
    assert answer.json() == told
    same = (await sent.client.get(f"{sent.path}/changes", params={"since": sent.packed.digest})).json()
    assert (same["added"], same["removed"], same["changed"], same["count"]) == ([], [], [], 0)
    assert (await sent.client.get(f"{sent.path}/changes", params={"since": "0" * 64})).status_code == 404


def tar_of(files: dict[str, bytes]) -> bytes:
    """A plain tar archive, as a browser makes it: no folders, no owners."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


async def test_a_folder_from_a_browser_is_the_bundle_that_the_command_line_makes(client: httpx.AsyncClient, tmp_path: Path) -> None:
    files = {"train.py": b"print(1)\n", "package/ünï.py": b"x = 1\n" * 300_000, "data.bin": b"0" * 9, ".gitignore": b"*.bin\n"}
    folder = tmp_path / "mine"
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)
    answer = await client.post(BUNDLES, content=tar_of(files), params={"folder": "mine"}, headers={"Content-Type": "application/x-tar"})
    assert answer.status_code == 201, answer.text
    sent = answer.json()
    assert sent["digest"] == pack(list_files(folder), io.BytesIO()).digest
    assert (sent["state"], sent["files"], sent["left_out"], sent["left_out_count"]) == ("ready", 3, ["data.bin"], 1)
    again = await client.post(BUNDLES, content=tar_of(files), params={"folder": "mine"})
    assert again.json()["digest"] == sent["digest"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"../outside.py": b"x"}, "outside"),
        ({"/etc/passwd": b"x"}, "no file or link below the folder"),
        ({"a.pyc": b"x"}, "the folder mine cannot be sent: mine has no files for a bundle; a.pyc are left out"),
        ({}, "has no files"),
        ({"n" * 256: b"x"}, "the folder mine cannot be sent: 'nnn"),
        ({"folder/" * 450 + "x.py": b"x"}, "a path in a bundle may have 3,072"),
    ],
)
async def test_a_folder_that_cannot_be_a_bundle_is_refused_with_the_reason(
    client: httpx.AsyncClient, files: dict[str, bytes], told: str
) -> None:
    answer = await client.post(BUNDLES, content=tar_of(files), params={"folder": "mine"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert told in answer.json()["detail"]


async def test_what_is_no_archive_is_no_folder(client: httpx.AsyncClient) -> None:
    answer = await client.post(BUNDLES, content=b"PK\x03\x04" * 1000, params={"folder": "mine"})
    assert answer.status_code == 422
    assert "cannot be unpacked" in answer.json()["detail"]
