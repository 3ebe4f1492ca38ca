"""Files of ranks that have a secret of their job in them, or in their names: they are not sent, and the job's output says so."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from paceline.cluster.agent.upload.masking import SecretMask
from paceline.training.rank_folder import RankFolder

READ_BYTES = 1 << 20
#: The mask for what a generation of a job has left; None: not known yet.
MaskOf = Callable[[str, int], SecretMask | None]

log = logging.getLogger(__name__)


def has_secret(content: BinaryIO, mask: SecretMask) -> bool:
    """Whether there is a secret in a file, read from its beginning."""
    before = b""
    while data := content.read(READ_BYTES):
        if mask.is_in(before + data):
            return True
        before = (before + data)[-mask.longest :]
    return False


def tell(folder: RankFolder, name: str, mask: SecretMask) -> None:
    """Say in a rank's output that a file of it is not kept."""
    text = f"{mask.text(name)} is not kept with the job: a secret of the job is in it; write it elsewhere, or leave the secret out"
    log.warning("%s: %s", folder.path, text)
    try:
        output = os.open(folder.output, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # the rank was forgotten, or has put something else in its place
        return
    try:
        os.write(output, f"WARNING {text}\n".encode())
    except OSError as error:
        log.warning("%s: %s", folder.output, error)
    finally:
        os.close(output)


def folder_of(jobs: Path, job: str, generation: int, rank: int) -> RankFolder:
    return RankFolder(jobs.parent, job, generation, rank)
