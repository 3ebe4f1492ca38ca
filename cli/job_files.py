"""The files that a job has left in $PACELINE_ARTIFACTS: found by their path, and downloaded. For the command line and the Python client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from paceline.cli.answers import parsed
from paceline.cli.api_types import FolderPage, LeftFile
from paceline.cli.client import Document, RestClient
from paceline.cli.errors import NotThereError
from paceline.cli.file_downloads import WantedFile, download

PAGE = 1000
HOW_TO_LEAVE = "no files; what a rank writes to $PACELINE_ARTIFACTS, or passes to paceline.log_artifact(path), comes here"


@dataclass(frozen=True)
class DownloadedFile:
    path: Path
    bytes: int
    replaced: bool  # another file had its place


def folder(client: RestClient, job_id: str, prefix: str, *, recursive: bool) -> Document:
    """A folder with all its files, whatever the number of pages."""
    url = _url(job_id)
    document = client.get(url, prefix=prefix, recursive=recursive, limit=PAGE)
    cursor = document["next_cursor"]
    while cursor is not None:
        page = client.get(url, prefix=prefix, recursive=recursive, limit=PAGE, cursor=cursor)
        document["items"] += page["items"]
        cursor = page["next_cursor"]
    return document | {"next_cursor": None}


def files_at(client: RestClient, job_id: str, path: str) -> list[LeftFile]:
    """The files that a path means: those of a folder, or a file itself. Raises NotThereError where there are none."""
    name = path.strip("/")
    items = parsed(folder(client, job_id, name, recursive=True), FolderPage).items
    if not items and name:
        above = parsed(folder(client, job_id, name.rpartition("/")[0], recursive=False), FolderPage)
        items = [each for each in above.items if each.path == name]
    if not items:
        hint = f"'paceline artifacts {job_id}' lists what there is"
        raise NotThereError(f"there is no file {path!r}" if name else "the job has left no files", hint if name else HOW_TO_LEAVE)
    return items


def download_files(client: RestClient, job_id: str, path: str, into: Path) -> Iterator[DownloadedFile]:
    """Download the files that a path means, each verified, into places under `into` that begin with the last part of the path. What is there already
    is left, and a download that broke off goes on."""
    found = files_at(client, job_id, path)
    above = PurePosixPath(path.strip("/")).parent if path.strip("/") else PurePosixPath()
    for each in found:
        wanted = WantedFile(
            f"{_url(job_id)}/content", {"path": each.path}, each.bytes, each.sha256, PurePosixPath(each.path).relative_to(above)
        )
        replaced = wanted.is_there_otherwise(into)
        yield DownloadedFile(download(client, wanted, into), each.bytes, replaced)


def _url(job_id: str) -> str:
    return f"/training/jobs/{quote(job_id, safe='')}/files"
