"""The summary of the cluster."""

from __future__ import annotations

from fastapi import APIRouter

from paceline.api.deps import ReadSession, ServicesDep
from paceline.api.schemas.metrics import ClusterSummary
from paceline.api.services.nodes import cluster

router = APIRouter(prefix="/metrics", tags=["metrics"])


@router.get("/cluster/summary")
async def cluster_summary(services: ServicesDep, session: ReadSession) -> ClusterSummary:
    return await cluster.summarize(session, services.now())
