"""The registry of models: register, list, move aliases, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import Member, ReadSession, ServicesDep, WriteSession
from paceline.api.schemas.common import Page
from paceline.api.schemas.registry import AliasName, ModelName, MoveAlias, RegisteredModel, RegisterVersion
from paceline.api.services.artifacts import registry, stored_artifacts
from paceline.api.services.jobs import ownership
from paceline.api.services.jobs.idempotency import Once
from paceline.db.repositories import registry as rows

router = APIRouter(prefix="/models", tags=["models"])
Name = Annotated[ModelName, Path()]
Alias = Annotated[AliasName, Path()]
Number = Annotated[int, Path(ge=1, lt=1 << 31)]


@router.get("", response_model=Page[RegisteredModel])
async def list_models(
    session: ReadSession, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[RegisteredModel] | JSONResponse:
    """All models by name, each with its versions."""
    key = paging.decode(cursor, str)
    found = await rows.page(session, str(key[0]) if key else None, limit + 1)
    described = {each.name: each for each in await registry.describe(session, found[:limit])}
    page = paging.page_of(found, limit, lambda row: described[row.name], lambda row: (row.name,))
    return paging.only(page, RegisteredModel, fields)


@router.get("/{name}")
async def get_model(name: Name, session: ReadSession) -> RegisteredModel:
    return (await registry.describe(session, [await registry.find(session, name)]))[0]


@router.post("", status_code=201)
async def register_version(
    body: RegisterVersion, caller: Member, services: ServicesDep, once: Once, session: WriteSession
) -> RegisteredModel:
    """Register a checkpoint, or a file that a job has left, as the next version of a model. It is kept as long as the version exists."""

    async def create() -> RegisteredModel:
        return await registry.register(session, body, caller.user_id, caller.actor, services.now())

    return await once.run(session, body, RegisteredModel, create)


@router.put("/{name}/aliases/{alias}")
async def move_model_alias(
    name: Name, alias: Alias, body: MoveAlias, caller: Member, services: ServicesDep, session: WriteSession
) -> RegisteredModel:
    """Point an alias, such as `production`, to a version."""
    model = await registry.find(session, name, lock=True)
    version = await registry.find_version(session, model, body.version)
    await registry.move_alias(session, model, alias, version, caller.actor, services.now())
    return (await registry.describe(session, [model]))[0]


@router.delete("/{name}/aliases/{alias}")
async def delete_model_alias(name: Name, alias: Alias, caller: Member, services: ServicesDep, session: WriteSession) -> RegisteredModel:
    """Remove an alias; the version stays."""
    model = await registry.find(session, name, lock=True)
    await registry.drop_alias(session, model, alias, caller.actor, services.now())
    await session.flush()
    return (await registry.describe(session, [model]))[0]


@router.delete("/{name}/versions/{number}", status_code=204)
async def delete_model_version(name: Name, number: Number, caller: Member, services: ServicesDep) -> None:
    """Delete a version, by whoever registered it or an admin. Its checkpoint is left to retention again; its number is not used again."""
    async with services.write() as session:
        model = await registry.find(session, name, lock=True)
        version = await registry.find_version(session, model, number)
        ownership.require_registrant_or_admin(caller, f"{model.name}:{number}", version, services.settings)
        useless = await registry.delete(session, model, version, caller.actor, services.now())
    for artifact_id in useless:
        await stored_artifacts.drop_contents(services, artifact_id)
