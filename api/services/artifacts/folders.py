"""The files that a job has left, folder by folder."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import paging
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.artifacts import FileLimits, FolderPage, LeftFile, LeftFolder
from paceline.api.services.artifacts.media_types import media_type_of
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.repositories import artifact_files
from paceline.db.repositories.artifact_files import FolderTotal
from paceline.monitoring import artifact_files as wire

LIMITS = FileLimits(file_bytes=wire.MAX_FILE_BYTES, job_bytes=wire.MAX_JOB_FILE_BYTES, job_files=wire.MAX_JOB_FILES)


async def page(session: AsyncSession, job_id: str, prefix: str, cursor: str | None, limit: int, *, recursive: bool = False) -> FolderPage:
    """One folder: its folders, and a page of its files, or of all files below it. A folder without files is an empty page."""
    folder = folder_of(prefix)
    totals = await artifact_files.folder_totals(session, job_id, folder)
    key = paging.decode(cursor, str)
    rows = await (artifact_files.below if recursive else artifact_files.in_folder)(
        session, job_id, folder, str(key[0]) if key else None, limit + 1
    )
    files = paging.page_of(rows, limit, describe, lambda row: (row.path or "",))
    return FolderPage(
        prefix=folder,
        files=sum(each.files for each in totals),
        bytes=sum(each.bytes for each in totals),
        folders=subfolders(folder, totals),
        items=files.items,
        next_cursor=files.next_cursor,
        arriving=await artifact_files.arriving(session, job_id),
        not_kept=[row.error or "" for row in await artifact_files.passed_limits(session, job_id)],
        limits=LIMITS,
    )


def folder_of(prefix: str) -> str:
    """The folder that a caller means; slashes at its ends are ignored."""
    return prefix.strip("/")


def subfolders(folder: str, totals: list[FolderTotal]) -> list[LeftFolder]:
    """The folders directly in `folder`, by name, each with all that is below it."""
    beginning = f"{folder}/" if folder else ""
    found: dict[str, LeftFolder] = {}
    for each in totals:
        if each.folder == folder or not each.folder.startswith(beginning):
            continue
        name = each.folder[len(beginning) :].partition("/")[0]
        changed = moment(each.changed_ns)
        known = found.get(name)
        found[name] = LeftFolder(
            path=beginning + name,
            name=name,
            files=each.files + (known.files if known else 0),
            bytes=each.bytes + (known.bytes if known else 0),
            changed_at=max(changed, known.changed_at) if known else changed,
        )
    return [found[name] for name in sorted(found, key=by_number)]


def by_number(name: str) -> tuple[str, int, str]:
    """The order of folders: rank10 behind rank9."""
    letters = name.rstrip("0123456789")
    digits = name[len(letters) :]
    return (letters, int(digits) if digits and digits.isascii() else -1, name)


def describe(row: ArtifactRow) -> LeftFile:
    assert row.path is not None
    assert row.stored_at is not None
    return LeftFile(
        id=row.id,
        path=row.path,
        name=row.path.rpartition("/")[2],
        rank=row.rank,
        generation=row.generation,
        bytes=row.bytes,
        sha256=row.sha256,
        media_type=media_type_of(row.path),
        changed_at=moment(row.changed_ns or 0),
        stored_at=row.stored_at,
    )


def moment(nanoseconds: int) -> datetime:
    """The moment of a time in nanoseconds; one that no calendar has is the calendar's beginning."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


async def find(session: AsyncSession, job_id: str, path: str, *, way_out: str) -> ArtifactRow:
    """The kept version of a file. Raises not_found, and invalid_parameter with the `way_out` where `path` is a folder."""
    row = await artifact_files.by_path(session, job_id, folder_of(path))
    if row is not None:
        return row
    if await artifact_files.below(session, job_id, folder_of(path), None, 1):
        raise ProblemError("invalid_parameter", f"{path!r} is a folder; {way_out}")
    raise not_found("file", path)
