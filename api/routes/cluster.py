"""The cluster in one answer."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import ReadSession, ServicesDep
from api.schemas.metrics import ClusterSummary
from api.services import cluster

router = APIRouter(prefix="/metrics", tags=["metrics"])


@router.get("/cluster/summary")
async def cluster_summary(services: ServicesDep, session: ReadSession) -> ClusterSummary:
    return await cluster.summarize(session, services.now())
