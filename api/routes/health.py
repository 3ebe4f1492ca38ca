"""For probes: alive, and able to serve. Nothing about what is inside."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import text

from api.deps import ServicesDep

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(services: ServicesDep) -> dict[str, str]:
    for database in (services.control, services.metrics):
        async with database.read() as session:
            await session.execute(text("SELECT 1"))
    return {"status": "ready"}
