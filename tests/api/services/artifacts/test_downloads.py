"""What comes of the files of a job: folder by folder, a part, a zip; and what a browser may make of it."""

from __future__ import annotations

import io
import os
import zipfile
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy import update

from paceline.api.errors import ProblemError
from paceline.api.services.artifacts import downloads
from paceline.api.services.artifacts.downloads import ByteRange, range_of
from paceline.api.services.artifacts.folders import by_number, subfolders
from paceline.api.services.artifacts.media_types import media_type_of
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.repositories.artifact_files import FolderTotal
from paceline.monitoring.artifacts import CHUNK_BYTES
from tests import factories
from tests.api.services.artifacts.conftest import FilesHarness
from tests.conftest import Connect


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, (0, 10)),
        ("bytes=0-0", (0, 1)),
        ("bytes=3-", (3, 10)),
        ("bytes=-4", (6, 10)),
        ("bytes=-40", (0, 10)),
        ("bytes=8-99", (8, 10)),
        ("bytes=5-2", (0, 10)),
        ("bytes=-", (0, 10)),
        ("bytes=0-1,4-5", (0, 10)),
        ("lines=0-1", (0, 10)),
        ("bytes=1e3-", (0, 10)),
    ],
)
def test_a_part_is_what_the_header_says_or_all(header: str | None, expected: tuple[int, int]) -> None:
    assert range_of(header, 10) == ByteRange(*expected, 10)


@pytest.mark.parametrize(("header", "size"), [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=0-", 0), ("bytes=-0", 10)])
def test_a_part_behind_the_end_is_refused(header: str, size: int) -> None:
    with pytest.raises(ProblemError, match="range_not_satisfiable") as refused:
        range_of(header, size)
    assert refused.value.headers == {"Content-Range": f"bytes */{size}"}


async def test_parts_across_chunks_make_up_the_whole(left: FilesHarness) -> None:
    content = os.urandom(2 * CHUNK_BYTES + 100)
    left.leave("model.bin", content)
    await left.upload()
    whole = await left.content("rank0/model.bin")
    assert (whole.headers["accept-ranges"], whole.headers["content-length"]) == ("bytes", str(len(content)))
    for start, end in ((0, 9), (CHUNK_BYTES - 3, CHUNK_BYTES + 3), (10, 2 * CHUNK_BYTES + 50)):
        part = await left.content("rank0/model.bin", Range=f"bytes={start}-{end}")
        assert (part.status_code, part.headers["content-range"]) == (206, f"bytes {start}-{end}/{len(content)}")
        assert part.content == content[start : end + 1]
    other = await left.content("rank0/model.bin", **{"Range": "bytes=5-", "If-Range": '"of an older version"'})
    assert (other.status_code, other.content) == (200, content)
    same = await left.content("rank0/model.bin", **{"Range": "bytes=5-", "If-Range": whole.headers["etag"]})
    assert (same.status_code, same.content) == (206, content[5:])
    assert (await left.content("rank0/model.bin", Range=f"bytes={len(content)}-")).status_code == 416


async def test_nothing_that_a_job_leaves_runs_in_a_browser(left: FilesHarness) -> None:
    evil = b"<script>fetch('/api/v1/identity/keys')</script>"
    expected = {
        "page.html": "application/octet-stream",
        "image.svg": "application/octet-stream",
        "PAGE.XHTML": "application/octet-stream",
        "code.js": "application/octet-stream",
        "page.html.txt": "text/plain; charset=utf-8",
        "a.json": "application/json",
        "a.PNG": "image/png",
        'x"; filename=evil.html; ü.csv': "text/csv; charset=utf-8",
    }
    for name in expected:
        left.leave(name, evil)
    await left.upload()
    for name, media_type in expected.items():
        answer = await left.content(f"rank0/{name}")
        assert answer.headers["content-type"] == media_type
        assert answer.headers["content-disposition"].startswith("attachment; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"] == (
        "attachment; filename=\"x_; filename=evil.html; _.csv\"; filename*=UTF-8''x%22%3B%20filename%3Devil.html%3B%20%C3%BC.csv"
    )


def test_a_media_type_comes_from_the_last_extension_of_the_name() -> None:
    assert media_type_of("a.png/b") == "application/octet-stream"
    assert media_type_of("png") == "image/png", "harmless: it is served with nosniff, as an attachment"
    assert media_type_of("rank0/a.tar.gz") == "application/gzip"


async def test_a_folder_comes_as_a_zip_with_all_below_it(left: FilesHarness) -> None:
    contents = {f"eval/{number:03}.txt": bytes([number]) for number in range(205)} | {"eval/deep/x.bin": os.urandom(CHUNK_BYTES + 1)}
    for name, content in (contents | {"other.txt": b"elsewhere", "evaluation.txt": b"not in it", "Eval/x": b"another folder"}).items():
        left.leave(name, content)
    await left.upload()
    answer = await left.client.get(f"{left.url}/archive", params={"prefix": "/rank0/eval/"})
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == {f"rank0/{name}": content for name, content in contents.items()}
    assert "rank0-eval.zip" in answer.headers["content-disposition"]
    empty = await left.client.get(f"{left.url}/archive", params={"prefix": "rank0/nothing"})
    assert (empty.status_code, empty.json()["code"]) == (409, "nothing_recorded")


@pytest.mark.parametrize(("year", "told"), [(1970, 1980), (2026, 2026), (2150, 2107)])
async def test_a_zip_comes_whole_whatever_the_times_of_its_files(left: FilesHarness, year: int, told: int) -> None:
    """As a node's clock has set them."""
    left.leave("eval/x.txt", b"text")
    await left.upload()
    async with left.services.write() as session:
        await session.execute(update(ArtifactRow).values(changed_ns=int(datetime(year, 6, 1, tzinfo=UTC).timestamp()) * 10**9))
    answer = await left.client.get(f"{left.url}/archive", params={"prefix": "rank0/eval"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert [(each.filename, each.date_time[0]) for each in archive.infolist()] == [("rank0/eval/x.txt", told)]


async def test_a_zip_whose_file_is_deleted_meanwhile_breaks_off(left: FilesHarness) -> None:
    left.leave("large", os.urandom(3 * CHUNK_BYTES))
    await left.upload()
    pieces = downloads.archive(left.services, left.job.id, "")
    await anext(pieces)
    assert (await left.client.delete(left.url, params={"path": "rank0/large"})).status_code == 204
    with pytest.raises(downloads.ContentGoneError):
        async for _ in pieces:
            pass


async def test_a_folder_of_many_files_comes_in_pages(left: FilesHarness) -> None:
    for number in range(25):
        left.leave(f"many/{number:02}", b"x")
    await left.upload()
    names: list[str] = []
    page = await left.page("rank0/many", limit=10)
    while True:
        names += [item["name"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        page = await left.page("rank0/many", limit=10, cursor=page["next_cursor"])
    assert names == [f"{number:02}" for number in range(25)]
    assert await left.page("no/such/folder") | {"limits": None} == {
        "prefix": "no/such/folder", "files": 0, "bytes": 0, "folders": [], "items": [], "next_cursor": None, "arriving": 0, "not_kept": [],
        "limits": None,
    }  # fmt: skip


def test_folders_are_in_the_order_of_their_numbers_with_all_below_them() -> None:
    totals = [FolderTotal(f"rank{number}/a/b", 1, 10, 0) for number in (10, 2, 1)] + [
        FolderTotal("rank2", 1, 5, 0),
        FolderTotal("rank", 1, 1, 0),
    ]
    assert [(each.name, each.files, each.bytes) for each in subfolders("", totals)] == [
        ("rank", 1, 1),
        ("rank1", 1, 10),
        ("rank2", 2, 15),
        ("rank10", 1, 10),
    ]
    assert [each.path for each in subfolders("rank2", [*totals, FolderTotal("rank20/x", 1, 1, 0)])] == ["rank2/a"]
    assert by_number("²") == ("²", -1, "²")


async def test_a_folder_in_place_of_a_file_says_how_to_get_it(left: FilesHarness) -> None:
    left.leave("eval/a.csv", b"x")
    await left.upload()
    answer = await left.content("rank0/eval")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert answer.json()["detail"] == "'rank0/eval' is a folder; take it as an archive: files/archive?prefix=..."
    deletion = await left.client.delete(left.url, params={"path": "rank0/eval"})
    assert (deletion.status_code, deletion.json()["detail"]) == (400, "'rank0/eval' is a folder; delete its files one by one")
    assert (await left.content("rank0/eval/b.csv")).status_code == 404


async def test_a_viewer_reads_and_only_the_owner_or_an_admin_deletes(left: FilesHarness, connect: Connect) -> None:
    left.leave("a.txt", b"x")
    await left.upload()
    for role, allowed in (("viewer", False), ("member", False)):
        async with left.services.write() as session:
            _, key = await factories.create_user(session, name=role, role=role)
        async with connect(key) as other:
            assert (await other.get(left.url)).status_code == 200
            assert (await other.get(f"{left.url}/content", params={"path": "rank0/a.txt"})).content == b"x"
            refused = await other.delete(left.url, params={"path": "rank0/a.txt"})
            assert (refused.status_code == 204) is allowed
    assert (await httpx.AsyncClient(transport=left.client._transport, base_url="http://127.0.0.1:8000").get(left.url)).status_code == 401
    assert (await left.client.delete(left.url, params={"path": "rank0/a.txt"})).status_code == 204
    assert (await left.page())["files"] == 0
