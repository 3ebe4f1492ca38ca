"""Secrets of projects: set, list without values, delete; and the rotation of the key that seals them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from paceline.api.deps import Admin, Member, ReadSession, ServicesDep, WriteSession
from paceline.api.schemas.secrets import KeyRotation, RotatedKey, Secret, SecretValue
from paceline.api.services.jobs import key_rotation
from paceline.api.services.jobs import secrets as service
from paceline.training.schema.environment import SecretName
from paceline.training.spec.job import Name

router = APIRouter(prefix="/secrets", tags=["secrets"])


@router.get("")
async def list_secrets(
    caller: Member, session: ReadSession, project: Annotated[str | None, Query(max_length=100, description="those of this project")] = None
) -> list[Secret]:
    """The secrets of a project, or of all, by name. No answer has their values."""
    return await service.listed(session, project)


@router.put("/{project}/{name}")
async def set_secret(
    project: Name, name: SecretName, body: SecretValue, caller: Member, session: WriteSession, services: ServicesDep
) -> Secret:
    """Set a secret of a project, or replace its value: by whoever made it, or an admin."""
    value = body.value.get_secret_value()
    return await service.put(session, services.vault, caller, project, name, value, services.settings, services.now())


@router.delete("/{project}/{name}", status_code=204)
async def delete_secret(project: str, name: str, caller: Member, session: WriteSession, services: ServicesDep) -> None:
    """Delete a secret: by whoever made it, or an admin. Ranks that run keep their variable until they end."""
    await service.delete(session, caller, project, name, services.settings, services.now())


@router.post("/rotate")
async def rotate_secrets_key(body: KeyRotation, caller: Admin, services: ServicesDep) -> RotatedKey:
    """Make a new key, seal everything with it, and delete the older keys."""
    return await key_rotation.rotate(services, caller, drop_unreadable=body.drop_unreadable)
