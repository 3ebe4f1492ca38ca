"""Probes: alive, and able to serve. They tell nothing about the contents."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import text

from paceline.api.deps import ServicesDep

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(services: ServicesDep) -> dict[str, str]:
    """Whether requests are served. A loop that keeps failing is reported, and requests are served all the same: agents must not be sent
    away for it."""
    for database in (services.control, services.metrics):
        async with database.read() as session:
            await session.execute(text("SELECT 1"))
    failing = services.troubles.failing_loops
    return {"status": "degraded", "failing": ", ".join(failing)} if failing else {"status": "ready"}
