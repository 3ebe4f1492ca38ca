"""What a job leaves to be downloaded: TensorBoard event files."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.jobs import JobRef
from cli.errors import OutputError
from cli.session import Session, with_session

Into = Annotated[Path, typer.Option("--into", "-d", metavar="DIR", help="folder to write to; made if it is not there")]


@with_session
def tensorboard(session: Session, job: JobRef, into: Into = Path("runs")) -> None:
    """Download a job's curves as TensorBoard event files, each step once; again later, to bring them up to date."""
    with session.client() as client, _writable(into), tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "event-files.zip")
        client.download(f"/training/jobs/{client.job_id(job)}/tensorboard", archive)
        files = _extract(archive, into)
    document = {"folder": str(into), "files": [str(file) for file in files]}
    session.emit(document, lambda: "\n".join(str(file) for file in files))
    session.next_steps(f"tensorboard --logdir {into}")


def _extract(archive: Path, into: Path) -> list[Path]:
    with zipfile.ZipFile(archive) as files:
        return [Path(files.extract(name, into)) for name in files.namelist()]


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror}", "name another folder with --into DIR") from error
