"""Downloads of files that go on where they broke off, and are compared with their SHA-256 before they get their name."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from paceline.cli.client import RestClient
from paceline.cli.errors import CliError, OutputError, UnreachableError
from paceline.monitoring.backoff import Backoff

#: Attempts in a row that bring nothing, before a download is given up for now.
ATTEMPTS = 6
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 8.0
READ_BYTES = 1 << 20


class DamagedDownloadError(CliError):
    """The downloaded file is not the one that the coordinator has stored."""


@dataclass(frozen=True)
class WantedFile:
    """A file to download: where its content is, what it must be, and its place under the output folder."""

    url: str
    parameters: dict[str, str]
    bytes: int
    sha256: str
    place: PurePosixPath

    def target(self, into: Path) -> Path:
        """The file under `into`. Raises OutputError for a place that leads out of it."""
        if self.place.is_absolute() or ".." in self.place.parts or not self.place.parts:
            raise OutputError(f"{self.place} leads out of {into}; it is not written", "download it by itself, under another name")
        return into / self.place

    def is_there(self, into: Path) -> bool:
        target = self.target(into)
        return target.is_file() and target.stat().st_size == self.bytes and sha256_of(target) == self.sha256

    def is_there_otherwise(self, into: Path) -> bool:
        """Whether another file has its place."""
        return self.target(into).exists() and not self.is_there(into)


def download(client: RestClient, wanted: WantedFile, into: Path, wait: Callable[[float], object] = threading.Event().wait) -> Path:
    """Download a file, unless it is there already. A part that an earlier attempt has left is continued; should the connection break, it
    is tried again, and the part is kept. Raises DamagedDownloadError, or what the request raises."""
    target = wanted.target(into)
    if wanted.is_there(into):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f"{target.name[:200]}.{wanted.sha256[:8]}.part"
    _complete(client, wanted, part, wait)
    if sha256_of(part) != wanted.sha256:
        part.unlink()
        raise DamagedDownloadError(f"{wanted.place} arrived damaged: its SHA-256 is not {wanted.sha256}", "try again")
    os.replace(part, target)
    return target


def _complete(client: RestClient, wanted: WantedFile, part: Path, wait: Callable[[float], object]) -> None:
    backoff, left = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS), ATTEMPTS
    part.touch()
    if part.stat().st_size > wanted.bytes:
        part.unlink()
        part.touch()
    while (before := part.stat().st_size) < wanted.bytes:
        broken: CliError = DamagedDownloadError(f"{wanted.place} ends early, before its {wanted.bytes:,} bytes", "try again")
        try:
            client.continue_download(wanted.url, part, f'"{wanted.sha256}"', wanted.parameters)
        except UnreachableError as error:
            broken = error
        if part.stat().st_size >= wanted.bytes:
            return
        if part.stat().st_size > before:  # a proxy may end each answer early
            left = ATTEMPTS
            continue
        left -= 1
        if left == 0:
            raise broken
        wait(backoff.next_seconds())


def same_content(one: Path, other: Path) -> bool:
    return one.stat().st_size == other.stat().st_size and sha256_of(one) == sha256_of(other)


def sha256_of(file: Path) -> str:
    digest = hashlib.sha256()
    for data in _pieces(file):
        digest.update(data)
    return digest.hexdigest()


def _pieces(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as content:
        while data := content.read(READ_BYTES):
            yield data
