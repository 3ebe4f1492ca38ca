"""The registry of models. A version holds what it is made of: its checkpoint is pinned, and its file is kept, for as long as it exists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor
from paceline.api.schemas.registry import ModelVersion, RegisteredModel, RegisterVersion
from paceline.api.services.artifacts import folders
from paceline.api.services.checkpoints import checkpoints
from paceline.api.services.lifecycle import checkpoint_lifecycle, events
from paceline.cluster.states import CheckpointState
from paceline.db.base import new_id
from paceline.db.models.registry import ModelAliasRow, ModelRow, ModelVersionRow
from paceline.db.repositories import aged
from paceline.db.repositories import artifacts as artifact_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import registry as rows
from paceline.db.repositories.artifact_files import KEPT_FOR_A_MODEL

USABLE = (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED)


async def describe(session: AsyncSession, models: Sequence[ModelRow]) -> list[RegisteredModel]:
    ids = [model.id for model in models]
    aliases: dict[str, list[str]] = {}
    for alias in await rows.aliases_of(session, ids):
        aliases.setdefault(alias.version_id, []).append(alias.alias)
    versions = await rows.versions_of(session, ids)
    return [
        RegisteredModel(
            name=model.name,
            versions=[
                _version(model.name, row, job_name, aliases.get(row.id, [])) for row, job_name in versions if row.model_id == model.id
            ],
            created_by=model.created_by,
            created_at=model.created_at,
        )
        for model in models
    ]


def _version(name: str, row: ModelVersionRow, job_name: str, aliases: list[str]) -> ModelVersion:
    if row.checkpoint_id is not None:
        download = f"/api/v1/checkpoints/{row.checkpoint_id}/download"
    else:
        download = f"/api/v1/training/jobs/{quote(row.job_id)}/artifacts/{row.artifact_id}/content"
    return ModelVersion(
        model=name,
        number=row.number,
        job_id=row.job_id,
        job_name=job_name,
        checkpoint_id=row.checkpoint_id,
        path=row.path,
        step=row.step,
        bytes=row.bytes,
        sha256=row.sha256,
        metrics={metric: float(value) for metric, value in row.metrics.items()},
        notes=row.notes,
        aliases=aliases,
        download=download,
        created_by=row.created_by,
        created_at=row.created_at,
    )


async def find(session: AsyncSession, name: str, *, lock: bool = False) -> ModelRow:
    model = await rows.by_name(session, name, lock=lock)
    if model is None:
        raise not_found("model", name)
    return model


async def find_version(session: AsyncSession, model: ModelRow, number: int) -> ModelVersionRow:
    version = await rows.version(session, model.id, number)
    if version is None:
        raise not_found("version of a model", f"{model.name}:{number}")
    return version


async def register(session: AsyncSession, wanted: RegisterVersion, owner_id: str, actor: Actor, now: datetime) -> RegisteredModel:
    """Add a version, and the model where there is none of this name. Raises not_found, checkpoint_not_usable or no_longer_kept for what it is made
    of."""
    source = await _source(session, wanted, actor, now)
    maker: dict[str, Any] = {"created_by": actor.name, "created_by_id": owner_id, "created_at": now}
    await rows.add_if_new(session, {"id": new_id(), "name": wanted.name, "last_number": 0, **maker})
    model = await find(session, wanted.name, lock=True)
    model.last_number += 1
    version = ModelVersionRow(model_id=model.id, number=model.last_number, notes=wanted.notes, **source, **maker)
    session.add(version)
    await session.flush()
    what = f"the checkpoint of step {version.step}" if version.checkpoint_id else f"the file {version.path}"
    await _record(session, "model.registered", model, version, actor, f"version {version.number} of model {model.name} is {what}", now)
    for alias in wanted.aliases:
        await move_alias(session, model, alias, version, actor, now)
    return (await describe(session, [model]))[0]


async def _source(session: AsyncSession, wanted: RegisterVersion, actor: Actor, now: datetime) -> dict[str, Any]:
    """Hold the checkpoint or the file. Returns the columns that say what a version is made of."""
    if wanted.checkpoint_id is not None:
        row = await checkpoints.find(session, wanted.checkpoint_id, lock=True)
        if row.state not in USABLE:
            raise ProblemError("checkpoint_not_usable", f"checkpoint {row.id} of step {row.step} is {row.state.value}; choose another one")
        others = await rows.versions_of_checkpoint(session, row.id)
        pinned_before = row.pinned and (not others or any(each.pinned_before for each in others))
        if not row.pinned:
            await checkpoint_lifecycle.pin(session, row, True, actor, now)
        about = {"checkpoint_id": row.id, "step": row.step, "sha256": row.manifest_sha256, "metrics": row.metrics}
        return {"job_id": row.job_id, "bytes": row.bytes, "pinned_before": pinned_before, **about}
    job = await job_rows.get_locked(session, str(wanted.job_id))
    if job is None:
        raise not_found("job", str(wanted.job_id))
    if await aged.removal(session, job.id) is not None:
        raise ProblemError("no_longer_kept", f"the data of job {job.name} is deleted on request, and {wanted.path} with it")
    known = await folders.find(session, job.id, str(wanted.path), way_out="a version of a model is one file: name one in it")
    file = await artifact_rows.get_locked(session, known.id)
    if file is None:
        raise not_found("file", str(wanted.path))
    file.held = True
    about = {"artifact_id": file.id, "path": file.path, "sha256": file.sha256, "metrics": {}}
    return {"job_id": job.id, "bytes": file.bytes, "pinned_before": False, **about}


async def move_alias(session: AsyncSession, model: ModelRow, alias: str, version: ModelVersionRow, actor: Actor, now: datetime) -> None:
    """Point an alias to a version. It names one version at a time; pointing it there again is harmless."""
    row = await rows.alias(session, model.id, alias)
    if row is not None and row.version_id == version.id:
        return
    if row is None:
        session.add(ModelAliasRow(model_id=model.id, alias=alias, version_id=version.id, moved_by=actor.name, moved_at=now))
    else:
        row.version_id, row.moved_by, row.moved_at = version.id, actor.name, now
    await session.flush()
    message = f"{alias} of model {model.name} is version {version.number}"
    await _record(session, "model.alias_moved", model, version, actor, message, now)


async def drop_alias(session: AsyncSession, model: ModelRow, alias: str, actor: Actor, now: datetime) -> None:
    row = await rows.alias(session, model.id, alias)
    if row is None:
        raise not_found("alias of this model", alias)
    await session.delete(row)
    await _record(session, "model.alias_removed", model, None, actor, f"{alias} of model {model.name} was removed", now)


async def delete(session: AsyncSession, model: ModelRow, version: ModelVersionRow, actor: Actor, now: datetime) -> list[str]:
    """Delete a version and let go of what it held; the model goes with its last version. Returns the ids of files that nothing holds any
    more, whose contents the caller deletes. Raises model_in_use for a version with an alias."""
    aliases = [alias.alias for alias in await rows.aliases_of(session, [model.id]) if alias.version_id == version.id]
    if aliases:
        raise ProblemError(
            "model_in_use",
            f"version {version.number} of model {model.name} is {', '.join(aliases)}: move the alias to another version, or remove it, first",
        )
    await session.delete(version)
    await session.flush()
    useless = await _let_go(session, version, actor, now)
    message = f"version {version.number} of model {model.name} was deleted"
    await _record(session, "model.version_deleted", model, version, actor, message, now)
    return useless


async def _let_go(session: AsyncSession, version: ModelVersionRow, actor: Actor, now: datetime) -> list[str]:
    if version.checkpoint_id is not None:
        row = await checkpoints.find(session, version.checkpoint_id, lock=True)
        if row.pinned and not version.pinned_before and not await rows.holders(session, checkpoint_id=row.id):
            await checkpoint_lifecycle.pin(session, row, False, actor, now)
        return []
    if await rows.holders(session, artifact_id=version.artifact_id):
        return []
    file = await artifact_rows.get_locked(session, str(version.artifact_id))
    if file is None:
        return []
    file.held = False
    if file.kind != KEPT_FOR_A_MODEL:  # it is still the newest of its path
        return []
    await session.delete(file)
    return [file.id]


async def _record(
    session: AsyncSession, type: str, model: ModelRow, version: ModelVersionRow | None, actor: Actor, message: str, now: datetime
) -> None:
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=f"{actor.name} asked for it",
        message=message,
        job_id=version.job_id if version is not None else None,
        data={"model": model.name, "version": version.number if version is not None else None},
        time=now,
    )
