"""What a rank leaves for download is sent from its own folder and removed there, whatever its user puts in the folder's place."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec
import pytest

from paceline.cluster.agent.upload.artifacts import ArtifactsFolder, ArtifactUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.agent.upload.transfer import CoordinatorAwayError
from paceline.cluster.protocol import ARTIFACTS_PATH
from paceline.monitoring.artifacts import NOTE_SUFFIX, RankArtifact, Received
from paceline.monitoring.files import UnfitFileError

#: Ranks of an agent that is root run as this user, and by --run-as alone their folder is another user's.
USER = "nobody"


def give_to_ranks(*paths: Path) -> None:
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, pwd.getpwnam(USER).pw_uid, -1, follow_symlinks=False)


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    """The folder of a rank, with a trace that is to be sent."""
    folder = tmp_path / "jobs" / "job" / "g1" / "rank0" / "artifacts"
    folder.mkdir(parents=True)
    artifact = RankArtifact(name="trace", kind="trace", bytes=5, sha256="0" * 64, first_step=1, last_step=1, time=0.0)
    (folder / "trace").write_bytes(b"trace")
    (folder / f"trace{NOTE_SUFFIX}").write_bytes(msgspec.json.encode(artifact))
    give_to_ranks(folder.parent, folder, *folder.iterdir())
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the agent's user, whose files have the names of the trace's."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("trace", f"trace{NOTE_SUFFIX}"):
        (folder / name).write_text("the agent's")
    return folder


def uploader(
    artifacts: Path, got: list[bytes], on_chunk: Callable[[], object] = lambda: None, folders: JobFolders | None = None, away: int = 0
) -> ArtifactUploader:
    """Uploads to a coordinator that wants two chunks. `on_chunk` is called before it answers one; `away`: how many offers it does not answer."""
    unanswered = iter(range(away))

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            if next(unanswered, None) is not None:
                return httpx.Response(503)
            return httpx.Response(200, content=msgspec.json.encode(Received(id="a", next_chunk=0)))
        got.append(request.content)
        on_chunk()
        assert request.url.path == f"{ARTIFACTS_PATH}/a/0"
        return httpx.Response(200, content=msgspec.json.encode(Received(id="a", next_chunk=1)))

    http = httpx.AsyncClient(base_url="http://c", transport=httpx.MockTransport(answer))
    return ArtifactUploader(http, folders or JobFolders(artifacts.parents[3]))


async def test_a_folder_that_is_replaced_by_a_link_while_its_trace_is_sent_leads_to_no_file_elsewhere(
    artifacts: Path, outside: Path
) -> None:
    aside = artifacts.with_name("aside")

    def replace() -> None:
        artifacts.rename(aside)
        artifacts.symlink_to(outside)

    got: list[bytes] = []
    await uploader(artifacts, got, replace).upload_all()
    assert got == [b"trace"]
    assert sorted(path.name for path in outside.iterdir()) == ["trace", f"trace{NOTE_SUFFIX}"]
    assert not list(aside.iterdir())


async def test_a_trace_that_was_not_taken_is_offered_again_after_its_rank_is_forgotten(artifacts: Path) -> None:
    with_ranks, got = {"job"}, list[bytes]()
    uploads = uploader(artifacts, got, folders=JobFolders(artifacts.parents[3], lambda: with_ranks), away=1)
    with pytest.raises(CoordinatorAwayError):
        await uploads.upload_all()
    with_ranks.clear()
    await uploads.upload_all()
    assert got == [b"trace"]
    assert not list(artifacts.iterdir())


async def test_a_folder_that_is_a_link_is_left_alone(artifacts: Path, outside: Path) -> None:
    artifacts.rename(artifacts.with_name("aside"))
    artifacts.symlink_to(outside)
    (outside / f"bad{NOTE_SUFFIX}").write_text("no note")
    give_to_ranks(artifacts, *outside.iterdir())
    before, got = sorted(outside.iterdir()), list[bytes]()
    await uploader(artifacts, got).upload_all()
    assert not got
    assert sorted(outside.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs ranks as another user")
def test_a_folder_of_another_user_than_the_ranks_is_no_folder_of_artifacts(artifacts: Path) -> None:
    os.chown(artifacts, 0, 0)
    with pytest.raises(UnfitFileError, match="no folder of user"):
        ArtifactsFolder(artifacts)


async def test_a_note_without_the_name_of_a_file_keeps_no_other_file_back(artifacts: Path) -> None:
    (artifacts / NOTE_SUFFIX).write_bytes((artifacts / f"trace{NOTE_SUFFIX}").read_bytes())
    give_to_ranks(artifacts / NOTE_SUFFIX)
    got: list[bytes] = []
    await uploader(artifacts, got).upload_all()
    assert got == [b"trace"]
    assert [path.name for path in artifacts.iterdir()] == [NOTE_SUFFIX]


async def test_notes_by_the_thousand_leave_the_agent_its_turns(artifacts: Path) -> None:
    """A script may leave files of any name there: each second the agent looked at all of them, and did nothing else meanwhile."""
    for path in (artifacts / "trace", artifacts / f"trace{NOTE_SUFFIX}"):
        path.unlink()
    for number in range(1_000):
        note = artifacts / f"bad{number}{NOTE_SUFFIX}"
        note.write_bytes(b"no note")
        give_to_ranks(note)
    left = list[int]()

    async def look() -> None:
        while True:
            await asyncio.sleep(0.001)
            left.append(len(list(artifacts.glob(f"*{NOTE_SUFFIX}"))))

    beside = asyncio.create_task(look())
    await uploader(artifacts, []).upload_all()
    beside.cancel()
    assert not list(artifacts.glob(f"*{NOTE_SUFFIX}"))
    assert any(0 < each < 1_000 for each in left)
