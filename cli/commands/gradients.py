"""Gradients that the ranks of a job have recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Artifact, JobGradients, ParameterGradients, RankGradient, RequestedGradients, StepGradients
from paceline.cli.commands.artifacts import ANSWER_POLL_S, writable
from paceline.cli.completion import JobRef
from paceline.cli.errors import NoGradientsError, UsageProblem, WaitTimedOutError
from paceline.cli.render import formats
from paceline.cli.render.output import note, table
from paceline.cli.render.sparkline import sparkline
from paceline.cli.session import Session, with_session

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

HISTOGRAM_WIDTH = 20


@with_session
def gradients(
    session: Session,
    job: JobRef,
    step: Annotated[int | None, typer.Option(min=1, help="the parameters of this step; default: which steps there are")] = None,
    rank: Annotated[str | None, typer.Option(help="only these ranks, e.g. 0 or 0,3")] = None,
    into: Annotated[
        Path | None, typer.Option("--into", "-d", metavar="DIR", help="download the step's snapshots to this folder, for torch.load")
    ] = None,
    next_step: Annotated[
        bool, typer.Option("--next", help="have all ranks of the running job record their next step, and show it")
    ] = False,
    names: Annotated[str, typer.Option(help="with --next: only these parameters, e.g. 'blocks.0.*,*.bias'")] = "*",
    snapshots: Annotated[bool, typer.Option("--snapshots", help="with --next: also keep the gradients themselves")] = False,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="with --next: how long to wait (0: don't wait)")] = 120.0,
) -> None:
    """Show the gradients that a job's ranks have recorded: norms, zeros, and what is not finite. The spec asks for them under `gradients`, and
    --next while the job runs."""
    if not next_step and step is None and (rank is not None or into is not None):
        raise UsageProblem("--rank and --into are about one step", f"for example: paceline gradients {job} --step 100")
    if next_step and step is not None:
        raise UsageProblem("--step shows a step that is recorded, and --next records one", f"for example: paceline gradients {job} --next")
    if not next_step and (snapshots or names != "*"):
        raise UsageProblem(
            "--names and --snapshots are about a step to be recorded", f"for example: paceline gradients {job} --next --snapshots"
        )
    with session.client() as client:
        path = f"/training/jobs/{client.job_id(job)}/gradients"
        if next_step:
            asked = client.create(path, {"names": _patterns(names), "snapshots": snapshots})
            if wait == 0:
                session.emit(asked, lambda: "asked all ranks for the gradients of their next step")
                session.next_steps(f"paceline gradients {job}")
                return
            step = _wait_for_step(client, path, parsed(asked, RequestedGradients), wait)
        if step is None:
            document = client.get(path)
            session.emit(document, lambda: _steps_table(parsed(document, JobGradients)))
            if document["steps"]:
                session.next_steps(f"paceline gradients {job} --step {document['steps'][-1]['step']}")
            return
        document = client.get(f"{path}/{step}", rank=rank)
        found = parsed(document, StepGradients)
        if into is not None:
            files = _download(client, found, into)
            session.emit({"folder": str(into), "files": files}, lambda: "\n".join(files) or "the step has no snapshots")
            return
    session.emit(document, lambda: _step_text(found))
    if session.for_people and any(each.snapshot_id for each in found.ranks):
        note(f"download its snapshots: paceline gradients {job} --step {step} --into gradients")


def _patterns(text: str) -> list[str]:
    patterns = [part.strip() for part in text.split(",") if part.strip()]
    if not patterns:
        raise UsageProblem(f"--names {text!r} names no parameter", "write --names 'blocks.0.*', or leave it out for all")
    return patterns


def _wait_for_step(client: RestClient, path: str, asked: RequestedGradients, seconds: float) -> int:
    """Wait until every rank has answered and its files have arrived, and return the step. Raises NoGradientsError where no rank has recorded it."""
    deadline = time.monotonic() + seconds
    while True:
        found = parsed(client.get(path), JobGradients)
        if found.request is None or found.request.id != asked.id or found.request.state == "missed":
            raise NoGradientsError("the ranks went apart before they had recorded a step", "ask again when the job runs")
        step = found.request.step
        files = next((each for each in found.steps if each.step == step), None)
        if (
            found.request.state == "done"
            and step is not None
            and files is not None
            and not (files.arriving or _snapshots_arrive(client, asked))
        ):
            if not files.ready:
                failed = parsed(client.get(f"{path}/{step}"), StepGradients).ranks[0]
                raise NoGradientsError(f"no gradients of rank {failed.rank}: {failed.error}")
            return step
        if time.monotonic() > deadline:
            raise WaitTimedOutError(f"not every rank has answered within {seconds:g} s", "they are still asked: see 'paceline gradients'")
        threading.Event().wait(ANSWER_POLL_S)


def _snapshots_arrive(client: RestClient, asked: RequestedGradients) -> bool:
    """Whether any of the snapshots that were asked for is still on its way."""
    if not asked.snapshots:
        return False
    files = (parsed(each, Artifact) for each in client.pages(f"/training/jobs/{asked.job_id}/artifacts", kind="snapshot"))
    return any(each.state == "arriving" and each.request_id == asked.id for each in files)


def _download(client: RestClient, found: StepGradients, into: Path) -> list[str]:
    """Download the snapshot of each rank. Returns the paths of the files."""
    files = []
    with writable(into):
        for each in found.ranks:
            if each.snapshot_id is not None:
                file = into / f"step{found.step}-rank{each.rank}.pt"
                client.download(f"/training/jobs/{found.job_id}/artifacts/{each.snapshot_id}/content", file)
                files.append(str(file))
    return files


def _steps_table(found: JobGradients) -> str:
    rows = [[str(each.step), str(each.generation), str(each.ready), str(each.arriving), str(each.failed)] for each in found.steps]
    empty = "no gradients are recorded; ask for them in the spec of a job: gradients: {every: 100}"
    return table(["STEP", "GENERATION", "RANKS", "ARRIVING", "FAILED"], rows, empty=empty)


def _step_text(found: StepGradients) -> str:
    missing = [f"rank {each.rank}: {each.error or 'its record is still arriving'}" for each in found.ranks if each.state != "ready"]
    rows = [_row(each) for each in found.parameters]
    headers = ["PARAMETER", "NORM", "ZEROS", "NEGATIVE TO POSITIVE", "TROUBLE"]
    return "\n".join([*missing, table(headers, rows, empty="nothing is recorded of these ranks", drop=["NEGATIVE TO POSITIVE"])])


def _row(each: ParameterGradients) -> list[str]:
    name = f"{each.name} (shards)" if each.sharded else each.name
    return [name, _norms(each.ranks), _zeros(each.ranks), sparkline(each.histogram, HISTOGRAM_WIDTH), _trouble(each)]


def _norms(ranks: Sequence[RankGradient]) -> str:
    """The norm, or the least and the most of the ranks' norms."""
    known = [each.norm for each in ranks if each.norm is not None]
    return _range(known, formats.significant)


def _zeros(ranks: Sequence[RankGradient]) -> str:
    return _range([each.zeros / each.elements for each in ranks if each.elements], "{:.1%}".format)


def _range(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The least and the most of the values, once where they look the same."""
    return " to ".join(dict.fromkeys(map(form, (min(values), max(values))))) if values else formats.UNKNOWN


def _trouble(each: ParameterGradients) -> str:
    parts = []
    for rank in each.ranks:
        counts = [f"{count:,} {name}" for count, name in ((rank.nans, "NaN"), (rank.infs, "infinite")) if count]
        parts += [f"rank {rank.rank}: {', '.join(counts)}"] if counts else []
    dead = [str(rank.rank) for rank in each.ranks if rank.elements and rank.zeros == rank.elements]
    parts += [f"all zero on rank {', '.join(dead)}"] if dead else []
    parts += [f"not reached on rank {', '.join(map(str, each.unused))}"] if each.unused else []
    return "; ".join(parts)
