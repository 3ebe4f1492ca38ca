"""Checkpoints as downloads: whole and verified where the coordinator sees their folder, and a way out where it does not."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core.context import Services
from paceline.api.core.daemon_calls import DaemonCalls
from paceline.api.errors import ProblemError
from paceline.api.services.checkpoints import contents
from paceline.api.services.checkpoints.contents import DamagedWhileSentError, PackedFile
from paceline.db.models.checkpoints import CheckpointRow
from paceline.monitoring.file_hashes import File
from paceline.training.saving import manifest as manifests
from paceline.training.saving.manifest import Manifest
from tests import factories

ALL = "/api/v1/checkpoints"


def save(folder: Path, parts: dict[str, bytes], **changes: Any) -> str:
    """A committed checkpoint with these files; returns the SHA-256 of its manifest."""
    folder.mkdir(parents=True)
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    files = {name: File(bytes=len(content), sha256=hashlib.sha256(content).hexdigest()) for name, content in parts.items()}
    known: dict[str, Any] = {"job_id": "j", "step": 5, "generation": 1, "world_size": 1, "seed": 0, "spec_sha256": "", "created": 0.0}
    return manifests.write(folder, Manifest(**known, best=None, metrics={}, files=files | changes))


async def announced(services: Services, folder: Path, digest: str, **columns: Any) -> CheckpointRow:
    async with services.write() as session:
        node, _ = await factories.create_node(session, name=f"node-{folder.parent.name}")
        job = await factories.create_running_job(session, node)
        row = factories.checkpoint(job, node, step=5, directory=str(folder), manifest_sha256=digest, **columns)
        session.add(row)
        await session.flush()
        return row


CONTENTS = {"model.distcp": os.urandom((1 << 20) + 100), "empty": b"", ".metadata": b"meta"}


async def test_a_checkpoint_comes_as_a_tar_with_its_manifest_last(services: Services, client: httpx.AsyncClient, tmp_path: Path) -> None:
    folder = tmp_path / "step-5.g1"
    row = await announced(services, folder, save(folder, CONTENTS))
    listed = (await client.get(f"{ALL}/{row.id}/files")).json()
    assert (listed["readable"], [each["name"] for each in listed["files"]]) == (
        True,
        [".metadata", "empty", "model.distcp", "manifest.json"],
    )
    answer = await client.get(f"{ALL}/{row.id}/download")
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert "step5.tar" in answer.headers["content-disposition"]
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as packed:
        packed.extractall(tmp_path / "out", filter="data")
        assert packed.getnames()[-1] == "step-5.g1/manifest.json"
    unpacked = tmp_path / "out" / "step-5.g1"
    manifest = manifests.read(unpacked)
    manifests.verify(unpacked, manifest, manifest.files)
    assert (await client.head(f"{ALL}/{row.id}/download")).content == b""


async def test_a_folder_on_another_machine_is_refused_with_the_way_out(
    services: Services, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    row = await announced(services, tmp_path / "elsewhere" / "step-5.g1", "0" * 64)
    answer = await client.get(f"{ALL}/{row.id}/download", params={"format": "safetensors"})
    assert (answer.status_code, answer.json()["code"]) == (409, "checkpoint_not_here")
    assert f"paceline export {row.id} --into DIR on that node" in answer.json()["detail"]
    assert (await client.get(f"{ALL}/{row.id}/files")).json()["readable"] is False


async def test_nothing_is_read_but_the_checkpoint_that_was_announced(services: Services, client: httpx.AsyncClient, tmp_path: Path) -> None:
    """The name of the folder comes from a rank: it may say anything."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    replaced = tmp_path / "a" / "step-5.g1"
    save(replaced, CONTENTS)
    leads_out = tmp_path / "b" / "step-5.g1"
    outside = save(leads_out, CONTENTS, **{"../../secret": File(bytes=6, sha256=hashlib.sha256(b"secret").hexdigest())})
    plain = tmp_path / "c"
    plain.mkdir()
    (plain / "passwd").write_text("x")
    endless, piped, huge = (tmp_path / name / "step-5.g1" for name in "def")
    for folder in (endless, piped, huge):
        folder.mkdir(parents=True)
    (endless / "manifest.json").symlink_to("/dev/zero")
    os.mkfifo(piped / "manifest.json")
    (huge / "manifest.json").touch()
    os.truncate(huge / "manifest.json", 1 << 40)
    announcements = [(folder, "0" * 64) for folder in (replaced, plain, endless, piped, huge)]
    for folder, digest in (*announcements, (leads_out, outside)):
        row = await announced(services, folder, digest)
        answer = await client.get(f"{ALL}/{row.id}/download")
        assert (answer.status_code, answer.json()["code"]) == (409, "checkpoint_not_usable")


async def test_a_link_or_a_changed_file_breaks_the_download_off(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    file = tmp_path / "model"
    file.write_bytes(content)
    good = PackedFile(file, "model", len(content), hashlib.sha256(content).hexdigest())
    assert b"".join([piece async for piece in contents.content(good)]) == content
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedWhileSentError):
        assert len(b"".join([piece async for piece in contents.content(good)])) < len(content)
    file.write_bytes(content[:100])
    with pytest.raises(DamagedWhileSentError):
        [piece async for piece in contents.content(good)]
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        [piece async for piece in contents.content(good)]


async def test_a_folder_that_is_put_in_the_place_of_a_checkpoint_while_it_is_sent_is_not_read(
    services: Services, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    """The coordinator may read what the rank may not: a link to its data folder, put there after the manifest was read, sent its files."""
    private = tmp_path / "private"
    private.mkdir()
    (private / "secrets.key").write_bytes(b"secret" * 1000)
    folder = tmp_path / "step-5.g1"
    claimed = File(bytes=10**12, sha256="0" * 64)
    row = await announced(services, folder, save(folder, {"a": b"first"}, **{"secrets.key": claimed}))
    files = await contents.files_of(services, row, "node", {})
    first, second = files[0], files[1]
    assert [piece async for piece in contents.content(first)] == [b"first"]
    folder.rename(tmp_path / "moved")
    folder.symlink_to(private)
    assert [piece async for piece in contents.content(first)] == [b"first"]
    with pytest.raises(OSError, match="No such file"):
        await anext(contents.content(second))
    (tmp_path / "moved" / "secrets.key").write_bytes(b"secret" * 1000)
    with pytest.raises(DamagedWhileSentError):
        await anext(contents.content(second))


async def test_file_systems_that_hang_take_none_of_the_threads_that_the_coordinator_needs(services: Services, tmp_path: Path) -> None:
    folder = tmp_path / "step-5.g1"
    row, released = await announced(services, folder, save(folder, CONTENTS)), threading.Event()
    looks = DaemonCalls(1)
    object.__setattr__(services, "checkpoint_looks", looks)
    with pytest.raises(TimeoutError):
        await looks.run(lambda: released.wait(30), 0.01)
    with pytest.raises(ProblemError) as raised:
        await contents.files_of(services, row, "node", {})
    assert raised.value.code == "busy"
    released.set()


async def test_credentials_go_to_no_endpoint_that_only_a_job_names(
    services: Services, client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member's endpoint got the coordinator's tokens, and requests within its network."""
    connections = list[str]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-coordinator")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        policy = {"directory": "s3://bucket/runs", "options": {"endpoint": endpoint}}
        async with services.write() as session:
            node, _ = await factories.create_node(session)
            job = await factories.create_running_job(session, node, spec=factories.job_spec(checkpoint=policy))
            row = factories.checkpoint(job, node, step=5, directory="s3://bucket/runs/step-5.g1")
            session.add(row)
        listed = (await client.get(f"{ALL}/{row.id}/files")).json()
        assert (listed["readable"], connections) == (False, [])
        assert f"set PACELINE_STORE_ENDPOINTS={endpoint}, where it is started" in listed["reason"]
        for format in ("checkpoint", "safetensors"):
            refused = await client.get(f"{ALL}/{row.id}/download", params={"format": format})
            assert (refused.json()["code"], connections) == ("checkpoint_not_here", [])
        object.__setattr__(services, "settings", services.settings.model_copy(update={"store_endpoints": endpoint}))
        listed = (await client.get(f"{ALL}/{row.id}/files")).json()
        assert "PACELINE_STORE_ENDPOINTS" not in listed["reason"]
        assert connections


async def test_an_export_that_cannot_be_sent_leaves_nothing_behind(
    app: FastAPI, services: Services, client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights filled the temporary folder each time that other downloads took all turns between the export and its own."""
    folder, scratch = tmp_path / "step-5.g1", tmp_path / "scratch"
    row = await announced(services, folder, save(folder, CONTENTS))

    async def export(*_: object) -> tuple[Path, list[PackedFile]]:
        scratch.mkdir(exist_ok=True)
        (scratch / "model.safetensors").write_bytes(b"weights")
        return scratch, [PackedFile(scratch / "model.safetensors", "model.safetensors", 7, None)]

    monkeypatch.setattr(contents, "export", export)
    answer = await client.get(f"{ALL}/{row.id}/download", params={"format": "safetensors"})
    assert (answer.content, scratch.exists()) == (b"weights", False)

    async def export_and_lose_the_turn(*_: object) -> tuple[Path, list[PackedFile]]:
        app.state.downloads.limit, app.state.downloads.wait_seconds = 0, 0.05
        return await export()

    monkeypatch.setattr(contents, "export", export_and_lose_the_turn)
    answer = await client.get(f"{ALL}/{row.id}/download", params={"format": "safetensors"})
    assert (answer.json()["code"], scratch.exists()) == ("busy", False)
