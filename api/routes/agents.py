"""The agents' doors over HTTP: join, upload, artifacts; in msgspec because uploads are the hot path. Control goes by WebSocket."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from api.deps import JoinedNode, ServicesDep, WriteSession
from api.errors import ProblemError
from api.services import artifacts, joining
from cluster.protocol import ARTIFACTS_PATH, JOIN_PATH, UPLOAD_PATH, JoinRequest
from monitoring.artifacts import Offer
from monitoring.points import Upload

router = APIRouter(include_in_schema=False)
_PREFIX = "/api/v1"
T = TypeVar("T")


async def parse(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.ValidationError as error:
        raise ProblemError("invalid_request", str(error)) from error
    except msgspec.DecodeError as error:
        raise ProblemError("malformed_body", f"the body is not JSON: {error}") from error


def answer(document: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status_code=status, media_type="application/json")


@router.post(JOIN_PATH.removeprefix(_PREFIX))
async def join(request: Request, services: ServicesDep, session: WriteSession) -> Response:
    limit, peer = request.app.state.login_limit, request.client.host if request.client else ""
    limit.check(peer, services.now())
    wanted = await parse(request, JoinRequest)
    try:
        return answer(await joining.join(session, wanted, services.now()), 201)
    except ProblemError as problem:
        if problem.code == "invalid_join_token":
            limit.failed(peer, services.now())
        raise


@router.post(UPLOAD_PATH.removeprefix(_PREFIX))
async def upload(request: Request, node: JoinedNode) -> Response:
    return answer(await request.app.state.upload_door.accept(node, await parse(request, Upload)))


@router.post(ARTIFACTS_PATH.removeprefix(_PREFIX))
async def offer_artifact(request: Request, node: JoinedNode, services: ServicesDep) -> Response:
    return answer(await artifacts.accept(services, node, await parse(request, Offer)))


@router.put(ARTIFACTS_PATH.removeprefix(_PREFIX) + "/{artifact_id}/{number}")
async def store_chunk(artifact_id: str, number: int, request: Request, node: JoinedNode, services: ServicesDep) -> Response:
    return answer(await artifacts.store_chunk(services, node, artifact_id, number, await request.body()))
