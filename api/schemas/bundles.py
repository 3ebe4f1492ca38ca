"""Bundles: the code of jobs, as a compressed archive that is known by its digest."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.bundles.archive import MOST_PACKED_BYTES, MOST_TAR_BYTES
from paceline.bundles.listing import MOST_FILES
from paceline.training.schema.code import Code


class BundleOffer(Schema):
    """Facts of an archive that is about to be sent."""

    bytes: int = Field(ge=1, le=MOST_PACKED_BYTES, description="of the archive: tar, compressed by zstd")
    unpacked_bytes: int = Field(ge=1, le=MOST_TAR_BYTES, description="of the tar archive")
    files: int = Field(ge=1, le=MOST_FILES)


class Bundle(Schema):
    digest: str = Field(description="SHA-256 of the tar archive, in hexadecimal digits")
    bytes: int = Field(description="of the archive: tar, compressed by zstd")
    unpacked_bytes: int
    files: int
    state: Literal["arriving", "ready"]
    next_chunk: int | None = Field(description="the number of the chunk of 1 MiB to send next; null: all of it is here")
    created_by: str
    created_at: Timestamp


class FolderBundle(Bundle):
    """A folder that was sent as it is, and packed by the coordinator."""

    left_out: list[str] = Field(
        description="what .gitignore, .pacelineignore and our own rules have left out, the first hundred; a folder ends in '/'"
    )
    left_out_count: int


class BundleChanges(Schema):
    """Files by which a bundle differs from another one: of each list the first two hundred."""

    since: str = Field(description="digest of the bundle that it is compared with")
    added: list[str]
    removed: list[str]
    changed: list[str] = Field(description="with other content, or executable in one of them only")
    count: int = Field(description="of all files that differ, also those that the lists leave out")


class EarlierCode(Schema):
    """Code that jobs ran: the newest of these jobs, and its `environment.code`, which another job may have as it stands."""

    code: Code
    bytes: int = Field(description="of the archive: tar, compressed by zstd")
    unpacked_bytes: int
    files: int
    job_id: str
    job_name: str
    created_by: str = Field(description="who submitted the job")
    created_at: Timestamp = Field(description="when the job was submitted")
