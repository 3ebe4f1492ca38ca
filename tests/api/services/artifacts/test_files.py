"""From $PACELINE_ARTIFACTS to the coordinator: the agent's own uploader against the real app."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select, update

from paceline.cluster.agent.upload import files as agent_files
from paceline.cluster.agent.upload.files import FileUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.agent.upload.transfer import CoordinatorAwayError
from paceline.db.models.artifacts import ArtifactChunkRow, ArtifactRow
from paceline.db.models.jobs import GenerationRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.storage import DataRemovalRow
from paceline.db.session import Database
from paceline.monitoring import artifact_files as wire
from paceline.monitoring.artifacts import CHUNK_BYTES
from tests.api.services.artifacts.conftest import FilesHarness
from tests.factories import START

TIMEOUT_SECONDS = 20.0
HOUR_NS = 3600 * 10**9


async def chunks(left: FilesHarness) -> int:
    async with left.services.metrics.read() as points:
        return await points.scalar(select(func.count()).select_from(ArtifactChunkRow)) or 0


async def rows(left: FilesHarness) -> int:
    async with left.services.control.read() as session:
        return await session.scalar(select(func.count()).select_from(ArtifactRow)) or 0


async def test_files_of_any_size_and_their_folders_arrive_whole(left: FilesHarness) -> None:
    contents = {
        "model.safetensors": os.urandom(2 * CHUNK_BYTES + 17),
        "eval/deep/scores.csv": b"a,b\n1,2\n",
        "empty": b"",
        "größe ✓.txt": "schön".encode(),
    }
    for name, content in contents.items():
        left.leave(name, content)
    left.leave("model.safetensors", b"of another rank", rank=1)
    await left.upload()
    for name, content in contents.items():
        answer = await left.content(f"rank0/{name}")
        assert (answer.status_code, answer.content) == (200, content)
    assert (await left.content("rank1/model.safetensors")).content == b"of another rank"
    page = await left.page()
    assert [(each["name"], each["files"]) for each in page["folders"]] == [("rank0", 4), ("rank1", 1)]
    assert (page["files"], page["bytes"]) == (5, sum(map(len, contents.values())) + 15)


async def test_files_are_kept_once_their_contents_survive_a_power_cut(left: FilesHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their nodes remove them a minute after the end of the job."""
    kept: list[int] = []

    async def look(_: Database) -> None:
        async with left.services.control.read() as session:
            known = (await session.scalars(select(ArtifactRow))).all()
            kept.append(sum(row.stored_at is not None for row in known))

    monkeypatch.setattr(Database, "make_durable", look)
    left.leave("small", b"x")
    await left.upload()
    left.leave("large", os.urandom(CHUNK_BYTES + 1))
    await left.upload()
    assert kept == [0, 1]


async def test_a_file_is_sent_once_two_looks_find_it_unchanged(left: FilesHarness) -> None:
    file, uploader = left.leave("growing.log", b"one"), left.uploader()
    await uploader.step_once()
    file.write_bytes(b"one two")
    await uploader.step_once()
    assert await left.paths() == []
    await uploader.step_once()
    assert (await left.content("rank0/growing.log")).content == b"one two"


async def test_what_is_written_last_is_sent_though_the_ranks_are_forgotten_by_then(left: FilesHarness) -> None:
    with_ranks = {left.job.id}
    uploader = FileUploader(left.agent, JobFolders(left.data / "jobs", lambda: with_ranks))
    left.leave("last.txt", b"last")
    await uploader.step_once()
    with_ranks.clear()
    await uploader.step_once()
    assert (await left.content("rank0/last.txt")).content == b"last"


async def test_the_newest_version_of_a_path_takes_the_place_of_the_older_one(left: FilesHarness) -> None:
    uploader = left.uploader()
    for content in (b"first", os.urandom(CHUNK_BYTES + 1), b"third"):
        left.leave("model.pt", content)
        await uploader.finish()
        assert (await left.content("rank0/model.pt")).content == content
        assert await left.paths() == ["rank0/model.pt"]
    assert (await chunks(left), await rows(left)) == (1, 1)


async def test_what_the_next_agent_sends_again_is_stored_once(left: FilesHarness) -> None:
    """Without the journal, as if the agent had been killed before it noted what it had sent."""
    left.leave("small", b"small")
    left.leave("large", os.urandom(CHUNK_BYTES + 1))
    for _ in range(2):
        await left.upload()
        left.folder().with_name("g1.rank0.sent").unlink()
    assert (await chunks(left), await rows(left)) == (3, 2)


async def test_an_upload_that_broke_off_goes_on_at_its_chunk(left: FilesHarness) -> None:
    content = os.urandom(4 * CHUNK_BYTES)
    left.leave("large", content)
    puts: list[str] = []

    async def fail_after_two(request: httpx.Request) -> None:
        if request.method == "PUT":
            puts.append(request.url.path.rpartition("/")[2])
            if len(puts) == 3:
                raise httpx.ConnectError("the coordinator was killed")

    left.agent.event_hooks["request"].append(fail_after_two)
    with pytest.raises(CoordinatorAwayError):
        await left.upload()
    assert (await left.page())["arriving"] == 1
    assert (await left.content("rank0/large")).status_code == 404
    await left.upload()
    assert puts == ["0", "1", "2", "2", "3"]
    assert (await left.content("rank0/large")).content == content


async def test_a_leaving_agent_waits_for_a_large_file_that_is_on_its_way(left: FilesHarness) -> None:
    content, uploader = os.urandom(CHUNK_BYTES + 1), left.uploader()
    left.leave("large", content)
    on_its_way, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold(request: httpx.Request) -> None:
        if request.method == "PUT":
            on_its_way.set()
            await may_go_on.wait()

    left.agent.event_hooks["request"].append(hold)
    running = asyncio.create_task(uploader.run())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await on_its_way.wait()
        asyncio.get_running_loop().call_later(0.1, may_go_on.set)
        await uploader.finish()
    running.cancel()
    assert (await left.content("rank0/large")).content == content


async def test_a_file_that_changes_while_it_is_sent_is_sent_as_it_is_then(left: FilesHarness) -> None:
    file, new = left.leave("large", bytes(3 * CHUNK_BYTES)), os.urandom(2 * CHUNK_BYTES)
    uploader = left.uploader()

    async def change(request: httpx.Request) -> None:
        if request.url.path.endswith("/1") and file.read_bytes() != new:
            file.write_bytes(new)

    left.agent.event_hooks["request"].append(change)
    await uploader.finish()
    assert await left.paths() == []
    await uploader.finish()
    assert (await left.content("rank0/large")).content == new
    assert await rows(left) == 1


async def test_a_file_that_is_written_through_a_memory_map_is_not_kept_half_old_half_new(
    left: FilesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    left.leave("large", os.urandom(2 * CHUNK_BYTES))
    monkeypatch.setattr(agent_files, "sha256_of", lambda ready: "0" * 64)
    await left.upload()
    assert (await left.paths(), await rows(left)) == ([], 0)
    monkeypatch.undo()
    await left.upload()
    assert await left.paths() == ["rank0/large"]


async def test_links_pipes_and_names_that_lead_elsewhere_are_left_alone(left: FilesHarness, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    folder = left.folder()
    (folder / "link").symlink_to(secret / "key")
    (folder / "folder").symlink_to(secret)
    (folder / "circle").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    left.leave(".paceline-unfinished", b"half")
    left.leave("line\nbreak\u202etxt", b"fine")
    os.close(os.open(os.fsencode(folder) + b"/\xff\xfe", os.O_CREAT))
    left.leave("..hidden", b"no dots alone")
    await left.upload()
    assert await left.paths() == ["rank0/%FF%FE", "rank0/..hidden", "rank0/line%0Abreak%E2%80%AEtxt"]


async def test_a_sparse_bomb_is_refused_unread_with_both_numbers_and_holds_up_nothing(left: FilesHarness) -> None:
    os.truncate(left.leave("bomb", b""), 1 << 40)
    left.leave("model.pt", os.urandom(CHUNK_BYTES + 5))
    left.leave("notes.txt", b"kept")
    await left.upload()
    assert await left.paths() == ["rank0/model.pt", "rank0/notes.txt"]
    (event,) = await left.events("job.artifact_refused")
    assert "rank0/bomb is not kept: it has 1,099,511,627,776 bytes; the limit of a file is 4,294,967,296" in event["message"]
    assert (await left.page())["not_kept"] == [event["message"].removesuffix(". Further files beyond this limit are not told")]


@pytest.mark.parametrize(
    ("limit", "value", "kept", "words"),
    [
        ("MAX_JOB_FILES", 3, 3, "the job has 3 files, which is the limit"),
        ("MAX_JOB_FILE_BYTES", 25, 2, "with it the job would have 30 bytes; the limit is 25"),
        ("MAX_FILE_BYTES", 9, 0, "it has 10 bytes; the limit of a file is 9"),
    ],
)
async def test_each_limit_is_told_once_however_many_files_pass_it(
    left: FilesHarness, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, kept: int, words: str
) -> None:
    monkeypatch.setattr(wire, limit, value)
    for number in range(50):
        left.leave(f"{number:03}", bytes(10))
    for _ in range(2):
        await left.upload()
    assert len(await left.paths()) == kept
    (event,) = await left.events("job.artifact_refused")
    assert words in event["message"]


async def test_a_file_that_grows_within_the_limit_of_the_job_is_not_counted_twice(
    left: FilesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_JOB_FILE_BYTES", 100)
    monkeypatch.setattr(wire, "MAX_JOB_FILES", 1)
    uploader = left.uploader()
    for size in (60, 70):
        left.leave("model.pt", bytes(size))
        await uploader.finish()
    assert len((await left.content("rank0/model.pt")).content) == 70


async def test_paths_that_are_too_long_or_too_deep_are_refused(left: FilesHarness) -> None:
    left.leave("/".join(["deep"] * 33) + "/file", b"deep")
    left.leave("/".join(["l" * 200] * 6) + "/file", b"long")
    left.leave("fine", b"fine")
    await left.upload()
    assert [each["name"] for each in (await left.page("rank0"))["items"]] == ["fine"]
    assert len(await left.events("job.artifact_refused")) == 1


async def test_files_of_ranks_that_the_node_does_not_hold_and_of_deleted_jobs_are_dropped(left: FilesHarness) -> None:
    left.folder(rank=7)
    (left.folder(rank=7) / "foreign").write_bytes(b"x")
    await left.upload()
    assert (await left.page())["files"] == 0
    async with left.services.write() as session:
        session.add(DataRemovalRow(job_id=left.job.id, asked_by="ada", asked_at=START, checkpoints=False, bytes=0))
    left.leave("late", b"x")
    await left.upload()
    assert (await left.page())["files"] == 0


async def test_an_offer_that_no_agent_makes_is_refused(left: FilesHarness) -> None:
    def offer(**changes: object) -> dict[str, object]:
        file = {"path": "rank0/a", "bytes": 1, "sha256": "0" * 64, "changed_ns": 1} | changes
        return {"job_id": left.job.id, "generation": 1, "rank": 0, "files": [file]}

    for changes in ({"bytes": -1}, {"sha256": "../x"}, {"changed_ns": 1 << 63}, {"content": "AAAA"}):
        assert (await left.agent.post("/api/v1/agents/artifacts/files", json=offer(**changes))).status_code == 422
    for path in ("../etc/passwd", "/etc/passwd", "rank0//a", "rank0/./a", "rank0/a\nb", ""):
        answer = await left.agent.post("/api/v1/agents/artifacts/files", json=offer(path=path))
        assert (answer.status_code, answer.json()["files"][0]["refused"] is None) == (200, False)
    assert (await left.page())["files"] == 0


async def add_generation(left: FilesHarness, *, rank: int, number: int | None = None, born: tuple[int, int] | None = None) -> None:
    """Put a process into generation 2, in the place of generation 1's `rank` or, of that generation, as rank `number`."""
    async with left.services.write() as session:
        known = await session.get_one(GenerationRow, (left.job.id, 1))
        more = {column.key: getattr(known, column.key) for column in GenerationRow.__table__.columns if column.key != "generation"}
        await session.merge(GenerationRow(generation=2, **more))
        await session.flush()
        place = await session.get_one(RankRow, (left.job.id, 1, rank))
        values = {column.key: getattr(place, column.key) for column in RankRow.__table__.columns}
        first, first_rank = born or (None, None)
        changes = {"generation": 2, "rank": rank if number is None else number, "born_generation": first, "born_rank": first_rank}
        session.add(RankRow(**(values | changes)))


async def test_a_later_version_from_another_node_is_not_replaced_by_an_earlier_one(left: FilesHarness) -> None:
    """Two processes that started as rank 0, in generations 1 and 2, leave the same path; the older one's node was away."""
    older = left.folder(generation=1) / "model.pt"
    older.write_bytes(b"older")
    newer = left.folder(generation=2) / "model.pt"
    newer.write_bytes(b"newer")
    os.utime(older, ns=(9_000_000_000_000_000_000,) * 2)  # a program may set it; it does not count
    os.utime(newer, ns=(1,) * 2)
    await add_generation(left, rank=0)
    uploader = FileUploader(left.agent, JobFolders(left.data / "jobs"))
    await uploader.finish()
    assert (await left.content("rank0/model.pt")).content == b"newer"


@pytest.mark.parametrize("size", [5, CHUNK_BYTES + 1])
async def test_the_file_of_a_restarted_rank_wins_where_the_clock_of_its_former_node_was_ahead(left: FilesHarness, size: int) -> None:
    """It was dropped, and deleted from its node unsent: the job's file was the one from before the crash."""
    await add_generation(left, rank=0)
    before = left.leave("model.pt", os.urandom(size))
    await left.upload()
    async with left.services.write() as session:
        await session.execute(update(ArtifactRow).values(changed_ns=ArtifactRow.changed_ns + HOUR_NS))
    before.unlink()
    after = left.folder(generation=2) / "model.pt"
    after.write_bytes(b"after" + bytes(size))
    await left.upload()
    assert (await left.content("rank0/model.pt")).content == after.read_bytes()


async def test_between_processes_that_train_together_time_decides_by_the_coordinators_clock(left: FilesHarness) -> None:
    """A process that was started as rank 1 goes on as rank 0 beside one that is started as rank 1 now; the older one's node is an hour behind."""
    await add_generation(left, rank=1, born=(1, 1), number=0)
    await add_generation(left, rank=1)
    newcomer = left.folder(rank=1, generation=2) / "log.csv"
    newcomer.write_bytes(b"newcomer")
    await left.upload()
    async with left.services.write() as session:
        await session.execute(update(ArtifactRow).values(changed_ns=ArtifactRow.changed_ns + HOUR_NS))
        await session.execute(update(NodeRow).values(clock_skew=-7200.0))
    left.leave("log.csv", b"written after it", rank=1)
    await left.upload()
    assert (await left.content("rank1/log.csv")).content == b"written after it"


async def test_an_older_version_that_is_not_kept_stays_on_its_node_for_days(left: FilesHarness) -> None:
    await add_generation(left, rank=0)
    (left.folder(generation=2) / "model.pt").write_bytes(b"newer")
    await left.upload()
    left.leave("model.pt", b"older")
    uploader = left.uploader()
    await uploader.finish()
    assert (await left.content("rank0/model.pt")).content == b"newer"
    (older,) = [files for folder, files in uploader._known.items() if folder == left.folder()]
    assert older.refused == {"model.pt"}


async def test_the_folder_leaves_the_node_once_all_of_it_is_sent_and_no_rank_is_left(
    left: FilesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_files, "KEEP_EMPTY_SECONDS", 0.0)
    file = left.leave("a/b/c.txt", b"x")
    order = left.data / "jobs" / left.job.id / "g1" / "rank0" / "order.json"
    order.parent.mkdir(parents=True)
    order.write_text("{}")
    uploader = left.uploader()
    for _ in range(4):
        await uploader.step_once()
    assert file.exists()
    order.unlink()
    await uploader.step_once()
    assert not (left.data / "jobs" / left.job.id / "files").exists()
    assert (await left.content("rank0/a/b/c.txt")).content == b"x"
