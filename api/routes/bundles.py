"""Bundles: the code that jobs are submitted with, sent in chunks and downloaded as one archive."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import Member, ReadSession, ServicesDep
from paceline.api.schemas.bundles import Bundle, BundleChanges, BundleOffer, EarlierCode, FolderBundle
from paceline.api.schemas.common import Page
from paceline.api.services.bundles import bundles, earlier_code, folders
from paceline.db.models.bundles import BundleRow
from paceline.training.schema.code import MOST_PATH

router = APIRouter(prefix="/training/bundles", tags=["bundles"])
ZSTD, TAR = "application/zstd", "application/x-tar"
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the tar archive")]


@router.post(
    "",
    status_code=201,
    openapi_extra={"requestBody": {"required": True, "content": {TAR: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def send_folder(
    request: Request,
    caller: Member,
    services: ServicesDep,
    folder: Annotated[str, Query(min_length=1, max_length=MOST_PATH, description="name of the folder, for people")],
) -> FolderBundle:
    """Send a folder as a plain tar archive, whose names are relative to it. What is never code and what its .gitignore and .pacelineignore leave out
    is left out of the bundle; harmless again."""
    services.disk.require_room()
    return await folders.store(services, folder, request.stream(), caller.name)


@router.get("", response_model=Page[EarlierCode])
async def list_code(
    session: ReadSession,
    q: Annotated[str | None, Query(max_length=200, description="a part of a job's name, or the beginning of its id")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    fields: Fields = None,
) -> Page[EarlierCode] | JSONResponse:
    """List the code of earlier jobs: each bundle once, with the newest job that names it. Archived jobs are left out."""
    return paging.only(await earlier_code.page(session, q, cursor, limit), EarlierCode, fields)


@router.put("/{digest}")
async def offer_bundle(digest: Digest, body: BundleOffer, caller: Member, services: ServicesDep) -> Bundle:
    """Offer a bundle before it is sent. The answer tells the chunk to send next, or that it is here already. Harmless again."""
    services.disk.require_room()
    return await bundles.offer(services, digest, body, caller.name)


@router.put("/{digest}/chunks/{number}")
async def store_bundle_chunk(digest: Digest, number: int, request: Request, caller: Member, services: ServicesDep) -> Bundle:
    """Send one chunk of the archive, 1 MiB but for the last one, as the bytes of the body. The last one completes the bundle."""
    services.disk.require_room()
    return await bundles.store_chunk(services, digest, number, await request.body())


@router.get("/{digest}")
async def get_bundle(digest: Digest, services: ServicesDep, session: ReadSession) -> Bundle:
    """Look at a bundle."""
    return await bundles.describe(services, await bundles.find(session, digest))


@router.get("/{digest}/content", response_class=StreamingResponse, responses={200: {"content": {ZSTD: {}}}})
async def bundle_content(digest: Digest, services: ServicesDep, session: ReadSession) -> StreamingResponse:
    """Download the archive: tar, compressed by zstd."""
    return content_of(services, await bundles.find_ready(session, digest))


@router.get("/{digest}/changes")
async def bundle_changes(
    digest: Digest,
    services: ServicesDep,
    session: ReadSession,
    since: Annotated[str, Query(pattern=r"^[0-9a-f]{64}$", description="digest of the bundle to compare it with")],
) -> BundleChanges:
    """Say which files differ between two bundles."""
    return await bundles.changes(services, since, digest)


def content_of(services: ServicesDep, row: BundleRow) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{row.digest[:12]}.tar.zst"', "Content-Length": str(row.bytes)}
    return StreamingResponse(bundles.contents(services, row.digest), media_type=ZSTD, headers=headers)
