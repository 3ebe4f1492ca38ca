"""Files that a rank leaves to be downloaded: what is said of each, from the rank through its agent to the coordinator.

A rank writes the file, then durably a note beside it; the agent offers what has a note, sends the file in chunks, and removes both
when the coordinator has it all. A note without a file says why there is none. Whatever is sent twice is stored once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from paceline.monitoring.files import write_durably
from paceline.monitoring.media import MediaLabel

#: The most of one file, compressed as it travels and is stored.
MAX_ARTIFACT_BYTES = 64 << 20
#: The body of one request to the coordinator, which takes no larger one.
CHUNK_BYTES = 1 << 20
NOTE_SUFFIX = ".note"

#: trace: of torch.profiler; gradients: `RecordedGradients`; snapshot: gradients themselves, by torch.save; media: `monitoring.media`.
ArtifactKind = Literal["trace", "gradients", "snapshot", "media"]


class RankArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file about the steps `first_step` to `last_step`, both included. `error`: why there is no file; its size is 0 then."""

    name: str  # of the file; one rank in one generation uses each once
    kind: ArtifactKind
    first_step: int
    last_step: int
    time: float  # seconds since the epoch
    request: str | None = None  # id of the request for it while the job runs; None: the job's spec asked for it
    bytes: int = 0
    sha256: str = ""
    error: str | None = None
    media: MediaLabel | None = None  # of the kind `media`

    @property
    def chunks(self) -> int:
        return -(-self.bytes // CHUNK_BYTES)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """POST ARTIFACTS_PATH. Harmless again."""

    job_id: str
    generation: int
    rank: int
    artifact: RankArtifact


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """State of an artifact at the coordinator: the next chunk that it wants. `next_chunk` is None once it wants no more."""

    id: str
    next_chunk: int | None


def note_of(file: Path) -> Path:
    return file.with_name(file.name + NOTE_SUFFIX)


def file_of(note: Path) -> Path:
    return note.with_name(note.name.removesuffix(NOTE_SUFFIX))


def leave_note(folder: Path, artifact: RankArtifact) -> None:
    """Write the note of a file that is in `folder` already, or of one that is not there and why."""
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(note_of(folder / artifact.name), msgspec.json.encode(artifact))


def sha256_of(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
