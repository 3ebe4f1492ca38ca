"""The agents' doors over HTTP: join, upload, artifacts; in msgspec because uploads are the hot path. Control goes by WebSocket.

Uploads are most of a coordinator's requests, and go by a route of Starlette's alone: what FastAPI works out for each request (its
declared parameters, dependencies and exit stacks) is the larger part of an upload's time, and an upload has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.routing import Route

from paceline.api.core.origin import same_origin
from paceline.api.deps import JoinedNode, ServicesDep, joined_node, services_of
from paceline.api.errors import ProblemError
from paceline.api.middleware.gate import UPLOAD
from paceline.api.middleware.rate_limit import peer_of
from paceline.api.routes.bundles import content_of
from paceline.api.services.artifacts import files, stored_artifacts
from paceline.api.services.bundles import bundles
from paceline.api.services.ingest import screening
from paceline.api.services.jobs import jobs, secrets
from paceline.api.services.nodes import joining
from paceline.cluster.protocol import (
    ARTIFACT_FILES_PATH,
    ARTIFACTS_PATH,
    BUNDLES_PATH,
    ENDED_JOBS_PATH,
    JOIN_PATH,
    SECRETS_PATH,
    UPLOAD_PATH,
    EndedJobs,
    EndedJobsQuestion,
    JoinRequest,
)
from paceline.monitoring.artifact_files import FilesOffer
from paceline.monitoring.artifacts import Offer
from paceline.tls.trust import AUTHORITY_PATH

router = APIRouter(include_in_schema=False)
_PREFIX = "/api/v1"
#: An upload counts for so many bytes at least.
LEAST_BYTES = 16 << 10
T = TypeVar("T")


async def parse(request: Request, kind: type[T]) -> T:
    with refusing_unreadable():
        return msgspec.json.decode(await request.body(), type=kind)


@contextmanager
def refusing_unreadable() -> Iterator[None]:
    """A context in which a body that cannot be decoded is a problem of whoever sent it."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise ProblemError("invalid_request", str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProblemError("malformed_body", f"the body is not JSON: {error}") from error


def answer(document: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status_code=status, media_type="application/json")


@router.post(JOIN_PATH.removeprefix(_PREFIX))
async def join(request: Request, services: ServicesDep) -> Response:
    """Join a machine. The caller is unknown: the database is not asked, and its one writer not held, before the whole body is here and
    valid."""
    if not same_origin(request):
        raise ProblemError("csrf", "machines join with `paceline worker`; a web page of another site cannot")
    limit, peer = request.app.state.join_limit, peer_of(request)
    limit.check(peer, services.now())
    wanted = joining.checked(await parse(request, JoinRequest))
    try:
        async with services.write() as session:
            joined = await joining.join(session, wanted, services.now())
    except ProblemError as problem:
        if problem.code == "invalid_join_token":
            limit.failed(peer, services.now())
        raise
    return answer(joined, 201)


@router.get(AUTHORITY_PATH.removeprefix(_PREFIX))
async def authority(services: ServicesDep) -> Response:
    """The certificate of our own authority, for whom has its fingerprint to compare it with. It is no secret: every handshake shows it."""
    certificate = joining.own_authority(services.settings)
    if certificate is None:
        raise ProblemError("not_found", "this coordinator has no authority of its own; agents believe those that their machines know")
    return Response(certificate, media_type="application/x-pem-file")


async def upload(request: Request) -> Response:
    """Store what an agent sends of its ranks. An upload waits for its turn before its body is read, so that what is held in memory is
    bounded."""
    node = await joined_node(request, services_of(request))
    async with request.app.state.upload_admission.turn(announced_bytes(request)):
        body, door = await request.body(), request.app.state.upload_door
        with door.vitals.counting_failures(), refusing_unreadable():
            upload = await screening.read_upload(body)
        return answer(await door.accept(node, upload, bytes=len(body)))


UPLOAD_ROUTE = Route(UPLOAD_PATH, upload, methods=["POST"])


def announced_bytes(request: Request) -> int:
    """The bytes that the body may have: its Content-Length, or the most that an upload may have; at least a small one's cost."""
    announced = request.headers.get("content-length", "")
    return max(LEAST_BYTES, int(announced)) if announced.isdecimal() and len(announced) < 10 else UPLOAD.bytes


@router.get(BUNDLES_PATH.removeprefix(_PREFIX) + "/{digest}")
async def bundle_content(digest: str, node: JoinedNode, services: ServicesDep) -> StreamingResponse:
    """Send the code of a job to a node that has ranks of it."""
    async with services.control.read() as session:
        return content_of(services, await bundles.find_for_node(session, node, digest))


@router.get(SECRETS_PATH.removeprefix(_PREFIX) + "/{job_id}")
async def job_secrets(job_id: str, node: JoinedNode, services: ServicesDep) -> Response:
    """Send the values of a job's secrets to a node that has ranks of it."""
    async with services.control.read() as session:
        found = answer(await secrets.for_node(session, services.vault, node, job_id))
    found.headers["Cache-Control"] = "no-store"
    return found


@router.post(ENDED_JOBS_PATH.removeprefix(_PREFIX))
async def ended_jobs(request: Request, node: JoinedNode, services: ServicesDep) -> Response:
    """Tell a node which jobs have ended for good, so that it may remove what their scripts have saved there."""
    question = await parse(request, EndedJobsQuestion)
    before = services.now() - timedelta(seconds=question.seconds_ago)
    async with services.control.read() as session:
        return answer(EndedJobs(job_ids=await jobs.ended_before(session, question.job_ids, before)))


@router.post(ARTIFACTS_PATH.removeprefix(_PREFIX))
async def offer_artifact(request: Request, node: JoinedNode, services: ServicesDep) -> Response:
    services.disk.require_room()
    return answer(await stored_artifacts.accept(services, node, await parse(request, Offer)))


@router.post(ARTIFACT_FILES_PATH.removeprefix(_PREFIX))
async def offer_files(request: Request, node: JoinedNode, services: ServicesDep) -> Response:
    services.disk.require_room()
    return answer(await files.accept(services, node, await parse(request, FilesOffer)))


@router.put(ARTIFACTS_PATH.removeprefix(_PREFIX) + "/{artifact_id}/{number}")
async def store_chunk(artifact_id: str, number: int, request: Request, node: JoinedNode, services: ServicesDep) -> Response:
    services.disk.require_room()
    return answer(await stored_artifacts.store_chunk(services, node, artifact_id, number, await request.body()))
