"""The Python client of a coordinator: what the command line does, for notebooks and programs. Needs no torch.

with paceline.Client() as client:
    job = client.submit("examples/gpt_stdlib.yaml")
    for point in client.follow_metrics(job.id, "loss"):
        print(point.step, point.value)

`AsyncClient` has the same methods, to be awaited. Answers are the types of `cli/api_types.py`; whatever goes wrong is a `CliError`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from paceline.cli.answers import parsed
from paceline.cli.api_types import (
    Checkpoint,
    ClusterSummary,
    Event,
    GpuReading,
    GpuStatus,
    Job,
    JobMetrics,
    ListedCheckpoint,
    LogEntry,
    Node,
    Plan,
)
from paceline.cli.client import ANSWER_TIMEOUT_S, PAGE, RestClient
from paceline.cli.curves import MetricPoint, Point, follow_metrics, points_of
from paceline.cli.documents import parse_spec, read_spec
from paceline.cli.errors import (
    ApiProblemError,
    CliError,
    JobEndedError,
    OutcomeUnknownError,
    UnreachableError,
    UsageProblem,
    WaitTimedOutError,
)
from paceline.cli.follow import LogFilter, follow_log, newest_log, stored_log
from paceline.cli.job_facts import TERMINAL_STATES
from paceline.cli.job_folder import in_its_folder
from paceline.cli.readings_stream import NodeReading, follow_readings
from paceline.cli.settings import resolve
from paceline.cli.waiting import wait_for_state
from paceline.cluster.states import JobState
from paceline.experiment_client import ExperimentMethods
from paceline.job_client import JobMethods

__all__ = [
    "ApiProblemError",
    "AsyncClient",
    "CliError",
    "Client",
    "JobEndedError",
    "MetricPoint",
    "NodeReading",
    "OutcomeUnknownError",
    "UnreachableError",
    "UsageProblem",
    "WaitTimedOutError",
]

P = ParamSpec("P")
T = TypeVar("T")
#: A job spec: a mapping, YAML text, or the path of a file.
Spec = Mapping[str, Any] | str | Path


class Client(JobMethods, ExperimentMethods):
    """A connection to a coordinator.

    Where no `server` and `api_key` are given they are found as by the command line: PACELINE_SERVER and PACELINE_API_KEY, then what `paceline up` or
    `paceline login` has stored. Jobs, experiments and nodes are named by their id or name. Methods raise `ApiProblemError` where the coordinator refuses,
    `UnreachableError` where it does not answer, and `OutcomeUnknownError` where the answer to a change was lost. May be used by several threads.
    """

    def __init__(self, server: str | None = None, api_key: str | None = None, *, timeout: float = ANSWER_TIMEOUT_S) -> None:
        """Connect lazily; `timeout` is for one answer, in seconds. Raises UsageProblem for a key or an address that cannot be one."""
        self._rest = RestClient(resolve(server, api_key), timeout)

    def __enter__(self) -> Client:
        """Return the client itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection. The client cannot be used any more."""
        self._rest.__exit__(None, None, None)

    # --- jobs

    def plan(self, spec: Spec) -> Plan:
        """Return what the job would do: placement, batch arithmetic, memory. Nothing is submitted."""
        return parsed(self._rest.create("/training/plan", document_of(spec)), Plan)

    def submit(self, spec: Spec, *, plan_hash: str | None = None) -> Job:
        """Submit a job. Refuses with a problem if the plan with `plan_hash` no longer holds."""
        return parsed(self._rest.create("/training/jobs", document_of(spec), plan_hash=plan_hash), Job)

    def job(self, job: str) -> Job:
        """Return one job, with its ranks and generations."""
        return self._rest.job(self._rest.job_id(job))

    def pause(self, job: str) -> Job:
        """Have the job save a checkpoint and free its slots."""
        return self._put(job, "pause")

    def resume(self, job: str) -> Job:
        """Queue a paused job again."""
        return self._put(job, "resume")

    def resize(self, job: str, nodes: int | None = None, *, slots: int | None = None) -> Job:
        """Set how many nodes' worth of ranks the job should have, or with `slots` how many ranks: the way for jobs that ask for slots.

        Raises UsageProblem unless one of them is given.
        """
        if (nodes is None) == (slots is None):
            raise UsageProblem("resize takes nodes or slots, one of them", f"for example: resize({job!r}, slots=6)")
        return self._put(job, "resize", {"nodes": nodes} if slots is None else {"slots": slots})

    def cancel(self, job: str) -> Job:
        """Stop the job for good; its checkpoints stay."""
        return parsed(self._rest.delete(f"/training/jobs/{self._rest.job_id(job)}"), Job)

    def wait(self, job: str, state: str | None = None, *, timeout: float = 3600.0) -> Job:
        """Wait until the job is in `state`, or without one until it has ended, and return it.

        Raises JobEndedError where it has ended and cannot be in `state` any more, WaitTimedOutError after `timeout` seconds, and UsageProblem for what is
        no state of a job.
        """
        if state is not None and state not in set(JobState):
            raise UsageProblem(f"{state!r} is no state of a job", f"use {', '.join(JobState)}")
        wanted = {state} if state else set(TERMINAL_STATES)
        found = parsed(wait_for_state(self._rest, self._rest.job_id(job), wanted, timeout), Job)
        if found.state not in wanted:
            raise JobEndedError(f"{found.name} has ended ({found.state}) and can't be {state} any more")
        return found

    # --- what jobs tell

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        rank: str | None = None,
        level: str | None = None,
        grep: str | None = None,
        regex: bool = False,
        context: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        tail: int | None = None,
        after: int = 0,
    ) -> Iterator[LogEntry]:
        """Yield the lines of the job's log behind the position `after`, or with `tail` its newest lines, at most 2,000.

        `rank` and `level` may name several, as `0,3` and `warning,error`. `grep`: lines with this text, with `regex` those that fit this expression
        (RE2), with `context` so many lines of the same rank around each: `entry.context` tells them apart. `since`, `until`: when lines were
        printed, with a time zone. With `follow`, go on until the job and its log have ended; a lost connection costs no line and brings none twice.
        """
        if regex and grep is None:
            raise UsageProblem("regex=True needs the expression", "pass it as grep")
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and moment.tzinfo is None:
                raise UsageProblem(f"{name}={moment.isoformat()} has no time zone", "pass an aware datetime, such as datetime.now(UTC)")
        only = LogFilter(rank=rank, grep=grep, level=level, regex=regex, context=context, since=since, until=until)
        job_id = self._rest.job_id(job)
        if tail is not None:
            return newest_log(self._rest, job_id, after, only, tail, follow=follow)
        return follow_log(self._rest, job_id, after, only) if follow else stored_log(self._rest, job_id, after, only)

    def metrics(
        self, job: str, names: str | None = None, *, ranks: str = "0", first_step: int | None = None, last_step: int | None = None
    ) -> JobMetrics:
        """Return the job's curves, by metric, rank and generation: at most 2,000 buckets each."""
        path = f"/metrics/jobs/{self._rest.job_id(job)}"
        return parsed(self._rest.get(path, names=names, ranks=ranks, first_step=first_step, last_step=last_step), JobMetrics)

    def curve(self, job: str, name: str = "loss", *, rank: int = 0) -> list[Point]:
        """Return one curve as a list of (step, value), each step once, as it counts."""
        return points_of(self.metrics(job, name, ranks=str(rank)).curves)

    def follow_metrics(self, job: str, names: str | None = None, *, ranks: str = "0", first_step: int = 0) -> Iterator[MetricPoint]:
        """Yield the points of the job's curves as they come, each once, until the job has ended.

        A lost connection costs no point. Steps that a later generation does again come again where they differ.
        """
        return follow_metrics(self._rest, self._rest.job_id(job), names, ranks, first_step)

    def events(self, job: str | None = None, *, limit: int = PAGE) -> list[Event]:
        """Return the newest events of the job, or of everything, the oldest of them first; at most 200."""
        path = "/events" if job is None else f"/training/jobs/{self._rest.job_id(job)}/events"
        return [parsed(document, Event) for document in self._rest.get(path, tail=True, limit=limit)["items"]]

    # --- checkpoints

    def checkpoints(self, job: str) -> list[Checkpoint]:
        """Return the job's checkpoints, the newest first."""
        return [parsed(document, Checkpoint) for document in self._rest.pages(f"/checkpoints/jobs/{self._rest.job_id(job)}")]

    def all_checkpoints(self, *, limit: int | None = None) -> list[ListedCheckpoint]:
        """Return the checkpoints of all jobs, the newest first."""
        return [parsed(document, ListedCheckpoint) for document in self._rest.pages("/checkpoints", limit)]

    def restore(self, checkpoint: str, *, name: str | None = None, steps: int | None = None, in_place: bool = False) -> Job:
        """Submit a new job that continues from the checkpoint; with `in_place`, set the checkpoint's own job back to it."""
        body = {"name": name, "steps": steps, "in_place": in_place}
        return parsed(self._rest.create(f"{_path_of(checkpoint)}/restore", body), Job)

    def pin(self, checkpoint: str) -> Checkpoint:
        """Keep the checkpoint, whatever the retention says."""
        return parsed(self._rest.put(f"{_path_of(checkpoint)}/pin"), Checkpoint)

    def unpin(self, checkpoint: str) -> Checkpoint:
        """Leave the checkpoint to the retention again."""
        return parsed(self._rest.put(f"{_path_of(checkpoint)}/unpin"), Checkpoint)

    def delete_checkpoint(self, checkpoint: str, *, confirm: bool = False) -> Checkpoint:
        """Delete the checkpoint; one that a job depends on needs `confirm`."""
        return parsed(self._rest.delete(_path_of(checkpoint), confirm=confirm), Checkpoint)

    # --- the cluster

    def cluster(self) -> ClusterSummary:
        """Return the cluster in numbers."""
        return parsed(self._rest.get("/metrics/cluster/summary"), ClusterSummary)

    def nodes(self) -> list[Node]:
        """Return all nodes but those that are gone."""
        return [parsed(document, Node) for document in self._rest.pages("/cluster/nodes")]

    def gpus(self) -> list[GpuReading]:
        """Return the newest reading of every GPU."""
        return parsed(self._rest.get("/cluster/gpu-status"), GpuStatus).gpus

    def follow_readings(self, node: str | None = None) -> Generator[NodeReading]:
        """Yield the readings of a node, or of all nodes, as they come, until the caller stops. A lost connection costs none."""
        return follow_readings(self._rest, None if node is None else self._rest.node_id(node))

    def _put(self, job: str, verb: str, body: Any = None) -> Job:
        return parsed(self._rest.put(f"/training/jobs/{self._rest.job_id(job)}/{verb}", None, body), Job)


def document_of(spec: Spec) -> dict[str, Any]:
    """Return a job spec as the coordinator takes it.

    Text with a line break or a colon and a space is YAML, other text is the path of a file. Relative paths in a file are found from its folder, those in
    text and in a mapping from the working directory; requirements files are read. Raises UsageProblem where something cannot be read.
    """
    from paceline.cli.requirement_files import with_requirements  # pydantic, which most uses of a client do without

    if isinstance(spec, Mapping):
        return with_requirements(in_its_folder(dict(spec), "-"), "-")
    if not isinstance(spec, str | Path):
        raise UsageProblem(f"a job spec is a mapping, YAML text or the path of a file, and no {type(spec).__name__}")
    is_text = isinstance(spec, str) and ("\n" in spec or ": " in spec)
    file = "-" if is_text else str(spec)
    return with_requirements(in_its_folder(parse_spec(str(spec), "the spec") if is_text else read_spec(file, []), file), file)


def _path_of(checkpoint: str) -> str:
    return f"/checkpoints/{quote(checkpoint, safe='')}"


# --- the same, to be awaited

_END = object()


def _awaited(method: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Make a method of AsyncClient: the same call in a thread."""

    @functools.wraps(method)
    async def call(self: AsyncClient, /, *positional: P.args, **named: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._client, *positional, **named)

    return call


def _iterated(method: Callable[Concatenate[Client, P], Iterable[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    """Make an asynchronous iterator of AsyncClient, each item of which is waited for in a thread."""

    @functools.wraps(method)
    async def items(self: AsyncClient, /, *positional: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        iterator = iter(await asyncio.to_thread(method, self._client, *positional, **named))
        while (item := await asyncio.to_thread(next, iterator, _END)) is not _END:
            yield item  # type: ignore[misc]

    return items


class AsyncClient:
    """A `Client` whose methods are awaited, and whose iterators are asynchronous.

    Each call runs in a thread, so the event loop is never held. A call that is cancelled is answered in its thread all the same.
    """

    def __init__(self, server: str | None = None, api_key: str | None = None, *, timeout: float = ANSWER_TIMEOUT_S) -> None:
        """As `Client`."""
        self._client = Client(server, api_key, timeout=timeout)

    async def __aenter__(self) -> AsyncClient:
        """Return the client itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connection."""
        self._client.close()

    close = _awaited(Client.close)
    plan = _awaited(Client.plan)
    submit = _awaited(Client.submit)
    jobs = _awaited(Client.jobs)
    job = _awaited(Client.job)
    pause = _awaited(Client.pause)
    resume = _awaited(Client.resume)
    resize = _awaited(Client.resize)
    cancel = _awaited(Client.cancel)
    wait = _awaited(Client.wait)
    metrics = _awaited(Client.metrics)
    curve = _awaited(Client.curve)
    events = _awaited(Client.events)
    checkpoints = _awaited(Client.checkpoints)
    all_checkpoints = _awaited(Client.all_checkpoints)
    restore = _awaited(Client.restore)
    pin = _awaited(Client.pin)
    unpin = _awaited(Client.unpin)
    delete_checkpoint = _awaited(Client.delete_checkpoint)
    edit = _awaited(Client.edit)
    archive = _awaited(Client.archive)
    unarchive = _awaited(Client.unarchive)
    delete_data = _awaited(Client.delete_data)
    incidents = _awaited(Client.incidents)
    goodput = _awaited(Client.goodput)
    performance = _awaited(Client.performance)
    compare = _awaited(Client.compare)
    stacks = _awaited(Client.stacks)
    gradients = _awaited(Client.gradients)
    record_gradients = _awaited(Client.record_gradients)
    artifacts = _awaited(Client.artifacts)
    files = _awaited(Client.files)
    download = _awaited(Client.download)
    storage = _awaited(Client.storage)
    cluster = _awaited(Client.cluster)
    nodes = _awaited(Client.nodes)
    gpus = _awaited(Client.gpus)
    follow_readings = _iterated(Client.follow_readings)
    plan_experiment = _awaited(Client.plan_experiment)
    submit_experiment = _awaited(Client.submit_experiment)
    experiments = _awaited(Client.experiments)
    experiment = _awaited(Client.experiment)
    trials = _awaited(Client.trials)
    pause_experiment = _awaited(Client.pause_experiment)
    resume_experiment = _awaited(Client.resume_experiment)
    cancel_experiment = _awaited(Client.cancel_experiment)
    extend_trial = _awaited(Client.extend_trial)
    wait_for_experiment = _awaited(Client.wait_for_experiment)
    analyze = _awaited(Client.analyze)
    analysis = _awaited(Client.analysis)
    export_experiment = _awaited(Client.export_experiment)
    logs = _iterated(Client.logs)
    follow_metrics = _iterated(Client.follow_metrics)
