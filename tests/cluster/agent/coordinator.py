"""A small coordinator for agents under test: speaks the real protocol over a real server, keeps what it is sent, can be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from paceline.cluster.agent.upload.transfer import PROBLEM_TYPE
from paceline.cluster.protocol import (
    ARTIFACT_FILES_PATH,
    CHANNEL_PATH,
    ENDED_JOBS_PATH,
    JOIN_PATH,
    SECRETS_PATH,
    UPLOAD_PATH,
    AgentHello,
    CheckpointToDelete,
    ConnectionRefused,
    Desired,
    DesiredAssignment,
    EndedJobs,
    EndedJobsQuestion,
    FromAgent,
    Heartbeat,
    JobSecrets,
    JoinReply,
    JoinRequest,
    Notice,
    Observed,
    ObservedRank,
    ToAgent,
    Welcome,
    encode_to_agent,
)
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.points import HighWater, Upload, UploadReply
from paceline.monitoring.readings import ReadingRecord
from tests.ports import free_port

TOKEN = "one-time"
CREDENTIAL = "lasting"
OBSERVE_TIMEOUT_SECONDS = 40.0


def pauses_for_an_hour(*_: float, **options: Any) -> Backoff:
    """In the place of `Backoff`: whatever is tried again by itself is not tried again within a test."""
    return Backoff(3600.0, 3600.0, fraction=lambda: 1.0, **options)


class Received:
    """What has arrived of one rank: every record once, in order, or the test fails."""

    def __init__(self) -> None:
        self.streams: dict[str, list[Any]] = {"metrics": [], "logs": [], "events": []}

    def take(self, stream: str, records: list[Any]) -> None:
        held = self.streams[stream]
        for record in records:
            if record.seq > len(held):
                assert record.seq == len(held) + 1, f"{stream}: hole before seq {record.seq}, {len(held)} are held"
                held.append(record)

    @property
    def text(self) -> list[str]:
        return [line.text for line in self.streams["logs"]]


class Coordinator:
    def __init__(self) -> None:
        self.desired = Desired(revision=1, assignments=())
        self.observed: Observed | None = None
        self.hellos: list[AgentHello] = []
        self.heartbeats: list[Heartbeat] = []
        self.notices: list[Notice] = []
        self.takes_notices = True  # False: as the version before them
        self.received: dict[tuple[str, int, int], Received] = {}
        self.refusal: ConnectionRefused | None = None
        self.accept_uploads = True
        self.refuse: Callable[[Upload, bytes], int | None] = lambda upload, body: None  # the status of a refusal
        self.secrets: dict[str, JobSecrets] = {}  # by job
        self.asked_for_secrets, self.gives_secrets = asyncio.Event(), asyncio.Event()
        self.gives_secrets.set()
        self.ended_jobs = set[str]()
        self.readings: list[ReadingRecord] = []
        self.reading_marks: dict[int, int] = {}
        self.takes_readings = True  # False: as the version before them
        self.tokens = {TOKEN}
        self.port = free_port()  # one that is still free when the coordinator comes back
        self.uploads = 0
        self._changed = asyncio.Condition()
        self._sockets: set[WebSocket] = set()
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- life

    async def start(self) -> None:
        """Again on the same port after `stop`."""
        routes = [
            Route(JOIN_PATH, self._join, methods=["POST"]),
            Route(UPLOAD_PATH, self._upload, methods=["POST"]),
            Route(SECRETS_PATH + "/{job}", self._job_secrets),
            Route(ENDED_JOBS_PATH, self._ended_jobs, methods=["POST"]),
            Route(ARTIFACT_FILES_PATH, self._artifact_files, methods=["POST"]),
            WebSocketRoute(CHANNEL_PATH, self._channel),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="critical", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._serving = asyncio.create_task(self._server._serve())
        async with asyncio.timeout(10):
            while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        assert self._server is not None
        assert self._serving is not None
        self._server.should_exit = True
        await self._serving

    # -- what it wants

    async def desire(self, *assignments: DesiredAssignment, delete: tuple[CheckpointToDelete, ...] = (), leave: bool = False) -> None:
        revision = self.desired.revision + 1
        self.desired = Desired(revision=revision, assignments=assignments, delete_checkpoints=delete, leave=leave)
        for socket in list(self._sockets):
            await _send(socket, self.desired)

    # -- what it sees

    async def until(self, reached: Callable[[Coordinator], Any], timeout: float = OBSERVE_TIMEOUT_SECONDS) -> None:
        """Wait until `reached(self)`; it is asked again whenever something arrives."""
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: reached(self))
        except TimeoutError:
            raise AssertionError(f"not reached after {timeout} s; observed: {self.observed}") from None

    def rank(self, job_id: str, rank: int = 0, generation: int = 1) -> ObservedRank | None:
        for assignment in self.observed.assignments if self.observed else ():
            if (assignment.job_id, assignment.generation) == (job_id, generation):
                return next((observed for observed in assignment.ranks if observed.rank == rank), None)
        return None

    def of(self, job_id: str, rank: int = 0, generation: int = 1) -> Received:
        return self.received.setdefault((job_id, generation, rank), Received())

    # -- the doors

    async def _join(self, request: Request) -> Response:
        join = msgspec.json.decode(await request.body(), type=JoinRequest)
        if join.token not in self.tokens:
            return Response(b'{"title": "refused", "detail": "join token already used"}', 401, media_type=PROBLEM_TYPE)
        self.tokens.remove(join.token)
        return Response(msgspec.json.encode(JoinReply(node_id="node-1", credential=CREDENTIAL)))

    async def _job_secrets(self, request: Request) -> Response:
        self.asked_for_secrets.set()
        await self.gives_secrets.wait()
        found = self.secrets.get(request.path_params["job"])
        return Response(status_code=404, media_type=PROBLEM_TYPE) if found is None else Response(msgspec.json.encode(found))

    async def _ended_jobs(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=EndedJobsQuestion).job_ids
        return Response(msgspec.json.encode(EndedJobs(job_ids=tuple(self.ended_jobs.intersection(asked)))))

    async def _artifact_files(self, request: Request) -> Response:
        return Response(b"the disk is low", 507)

    async def _upload(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {CREDENTIAL}" or not self.accept_uploads:
            return Response(status_code=503)
        body = await request.body()
        upload = msgspec.json.decode(body, type=Upload)
        if (status := self.refuse(upload, body)) is not None:
            return Response(b"no, not this", status)
        acknowledged = []
        for batch in upload.batches:
            received = self.of(batch.job_id, batch.rank, batch.generation)
            for stream in received.streams:
                received.take(stream, getattr(batch, stream))
            counts = {stream: len(records) for stream, records in received.streams.items()}
            acknowledged.append(HighWater(job_id=batch.job_id, generation=batch.generation, rank=batch.rank, **counts))
        self.uploads += 1
        held = self._take_readings(upload)
        await self._notify()
        return Response(msgspec.json.encode(UploadReply(acknowledged=acknowledged, readings=held)))

    def _take_readings(self, upload: Upload) -> int | None:
        if upload.readings is None or not self.takes_readings:
            return None
        spool = upload.readings.spool
        for record in upload.readings.records:
            if record.seq > self.reading_marks.get(spool, 0):
                self.reading_marks[spool] = record.seq
                self.readings.append(record)
        return self.reading_marks.get(spool, 0)

    async def _channel(self, socket: WebSocket) -> None:
        if socket.headers.get("authorization") != f"Bearer {CREDENTIAL}":
            await socket.close()
            return
        await socket.accept()
        try:
            await self._converse(socket)
        except WebSocketDisconnect:
            pass  # the agent left
        finally:
            self._sockets.discard(socket)

    async def _converse(self, socket: WebSocket) -> None:
        self.hellos.append(msgspec.json.decode(await socket.receive_text(), type=AgentHello))
        if self.refusal is not None:
            await _send(socket, self.refusal)
            return
        await _send(
            socket, Welcome(protocol=1, node_id="node-1", heartbeat_seconds=0.5, observe_seconds=0.5, takes_notices=self.takes_notices)
        )
        await _send(socket, self.desired)
        self._sockets.add(socket)
        while True:
            message = msgspec.json.decode(await socket.receive_text(), type=FromAgent)
            if isinstance(message, Observed):
                self.observed = message
            elif isinstance(message, Heartbeat):
                self.heartbeats.append(message)
            elif isinstance(message, Notice):
                self.notices.append(message)
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _send(socket: WebSocket, message: ToAgent) -> None:
    await socket.send_text(encode_to_agent(message))
