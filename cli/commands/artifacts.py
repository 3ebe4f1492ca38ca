"""The files that a job leaves for download: TensorBoard event files, and traces, which can be requested."""

from __future__ import annotations

import functools
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Artifact, ProfileRequest
from paceline.cli.completion import JobRef
from paceline.cli.errors import ApiProblemError, NoTraceError, OutputError, UsageProblem, WaitTimedOutError
from paceline.cli.event_folder import EventFolder
from paceline.cli.exits import ExitCode
from paceline.cli.job_facts import has_ended
from paceline.cli.render import formats
from paceline.cli.render.output import note, table
from paceline.cli.session import Session, with_session
from paceline.cli.waiting import patient
from paceline.monitoring.words import plural

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

Into = Annotated[Path, typer.Option("--into", "-d", metavar="DIR", help="output folder (created if missing)")]
ANSWER_POLL_S = 0.5
VIEWER = "open them in https://ui.perfetto.dev or chrome://tracing"


@with_session
def tensorboard(
    session: Session,
    job: JobRef,
    into: Into = Path("runs"),
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="keep the files up to date until the job ends or you press Ctrl-C")
    ] = False,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="how often, with --follow")] = 5.0,
) -> None:
    """Download a job's curves as TensorBoard event files. Repeat it, or add --follow, to bring them up to date."""
    with session.client() as client, writable(into), tempfile.TemporaryDirectory() as scratch:
        grown = EventFolder(into)
        job_id, archive = client.job_id(job), Path(scratch, "event-files.zip")
        if follow:
            if session.for_people:
                note(f"run beside this: tensorboard --logdir {into}")
            try:
                _follow(client, job_id, archive, grown, every)
            except KeyboardInterrupt:
                note("", f"detached; the job goes on. next: paceline tensorboard {job} --into {into} --follow")
                raise typer.Exit(ExitCode.INTERRUPTED) from None
        else:
            client.download(f"/training/jobs/{job_id}/tensorboard", archive)
            grown.write(archive)
    files = [str(file) for file in grown.last_steps]
    session.emit({"folder": str(into), "files": files}, lambda: "\n".join(files))
    session.next_steps(f"tensorboard --logdir {into}")


def _follow(client: RestClient, job_id: str, archive: Path, grown: EventFolder, seconds: float) -> None:
    """Bring the files up to date again and again until the job has ended. They are made anew where the job has changed its ranks, since it
    may have gone back to an older step."""
    path, generation = f"/training/jobs/{job_id}/tensorboard", None
    while True:
        job = patient(lambda: client.job(job_id))  # before the points: whatever it had reported when it ended is in them
        first = grown.next_step if job.generation == generation else 0
        try:
            patient(functools.partial(client.download, f"{path}?first_step={first}", archive))
            (grown.append if first else grown.write)(archive)
            generation = job.generation
        except ApiProblemError as error:
            if error.code != "nothing_recorded" or has_ended(job):
                raise
        if has_ended(job):
            return
        threading.Event().wait(seconds)


@with_session
def profile(
    session: Session,
    job: JobRef,
    steps: Annotated[int, typer.Option(min=1, max=20, help="how many steps")] = 3,
    ranks: Annotated[str, typer.Option(help="which ranks, e.g. 0,3")] = "0",
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="how long to wait for the traces (0: don't wait)")] = 120.0,
    into: Into = Path("traces"),
) -> None:
    """Trace the next steps of a running job with torch.profiler, and download the traces."""
    order = {"steps": steps, "ranks": _numbers(ranks)}
    with session.client() as client:
        job_id = client.job_id(job)
        document = client.create(f"/training/jobs/{job_id}/profile", order)
        if wait == 0:
            session.emit(document, lambda: f"asked rank {ranks} for a trace of {plural(steps, 'step')}")
            session.next_steps(f"paceline artifacts traces {job}")
            return
        found = _wait_for_traces(client, job_id, parsed(document, ProfileRequest), wait)
        _save(session, client, job_id, found, into)
    failed = [each for each in found if each.error]
    if failed:
        raise NoTraceError(f"no trace of rank {failed[0].rank}: {failed[0].error}")


@with_session
def traces(
    session: Session,
    job: JobRef,
    into: Annotated[Path | None, typer.Option("--into", "-d", metavar="DIR", help="download what is ready to this folder")] = None,
) -> None:
    """List the traces that a job has left, the newest first, and download them."""
    with session.client() as client:
        job_id = client.job_id(job)
        documents = client.pages(f"/training/jobs/{job_id}/artifacts", kind="trace")
        found = [parsed(document, Artifact) for document in documents]
        if into is not None:
            _save(session, client, job_id, found, into)
            return
    session.emit(documents, lambda: _table(found))
    if any(each.state == "ready" for each in found):
        session.next_steps(f"paceline artifacts traces {job} --into traces")


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise UsageProblem(f"--ranks {text!r} is no list of ranks", "write --ranks 0,1")
    return [int(part) for part in parts]


def _wait_for_traces(client: RestClient, job_id: str, request: ProfileRequest, seconds: float) -> list[Artifact]:
    """Wait until every rank has answered and its file has arrived."""
    deadline = time.monotonic() + seconds
    while True:
        mine = [each for each in _artifacts(client, job_id) if each.request_id == request.id]
        if {each.rank for each in mine if each.state != "arriving"} == set(request.ranks):
            return mine
        newest = parsed(client.get(f"/training/jobs/{job_id}/profile"), ProfileRequest)
        if newest.id != request.id or newest.state == "missed":
            raise NoTraceError("the ranks went apart before they had answered", "ask again when the job runs")
        if time.monotonic() > deadline:
            raise WaitTimedOutError(
                f"not every rank has answered within {seconds:g} s", "they are still asked: see 'paceline artifacts traces'"
            )
        threading.Event().wait(ANSWER_POLL_S)


def _artifacts(client: RestClient, job_id: str) -> list[Artifact]:
    return [parsed(document, Artifact) for document in client.pages(f"/training/jobs/{job_id}/artifacts", kind="trace")]


def _save(session: Session, client: RestClient, job_id: str, found: list[Artifact], into: Path) -> None:
    """Download the artifacts that are ready, and print their paths."""
    ready = [each for each in found if each.state == "ready"]
    with writable(into):
        for each in ready:
            client.download(f"/training/jobs/{job_id}/artifacts/{each.id}/content", into / _file_name(each))
    files = [str(into / _file_name(each)) for each in ready]
    session.emit({"folder": str(into), "files": files}, lambda: "\n".join(files) or "nothing is ready to be downloaded")
    if files and session.for_people:
        note(VIEWER)


def _table(found: list[Artifact]) -> str:
    rows = [
        [
            str(each.rank),
            str(each.generation),
            f"{each.first_step}-{each.last_step}",
            each.state,
            formats.quantity(each.bytes, "B"),
            formats.age(each.created_at),
            each.error or _file_name(each),
        ]
        for each in found
    ]
    return table(["RANK", "GENERATION", "STEPS", "STATE", "SIZE", "AGE", "FILE"], rows, empty="no traces yet; ask with 'paceline profile'")


def _file_name(each: Artifact) -> str:
    return f"g{each.generation}-rank{each.rank}-steps{each.first_step}-{each.last_step}.json.gz"


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror}", "name another folder with --into DIR") from error
