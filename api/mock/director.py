"""Plays the users of the demo: submits their jobs and experiments through the REST API, then pauses, resizes and cancels some of the jobs."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from fastapi import FastAPI

from paceline.api.mock.demo_jobs import EXPERIMENTS, JOBS, DemoAction, DemoJob, Document

LOOK_SECONDS = 1.0
READY_SECONDS = 60.0
API = "/api/v1"

log = logging.getLogger(__name__)


@dataclass
class Director:
    """`keys`: an API key by user. `nodes`: how many have to be ready before the first job comes."""

    app: FastAPI
    keys: Mapping[str, str]
    nodes: int
    _unsent: list[DemoJob] = field(default_factory=lambda: list(JOBS))
    _open: dict[str, tuple[DemoJob, list[DemoAction]]] = field(default_factory=dict)  # by job id

    async def run(self) -> None:
        """Submit all jobs, do what their users do, and end when there is no more to do."""
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1{API}") as http:
            await self._await_nodes(http)
            while self._unsent:
                await self._submit(http, self._unsent.pop(0))
            for experiment in EXPERIMENTS:
                await self._post(http, "/experiments", experiment.owner, experiment.spec)
            while self._open:
                await asyncio.sleep(LOOK_SECONDS)
                for job_id, (job, deeds) in list(self._open.items()):
                    await self._act(http, job_id, job, deeds)

    async def _await_nodes(self, http: httpx.AsyncClient) -> None:
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            answer = await http.get("/metrics/cluster/summary", headers=self._key("ada"))
            answer.raise_for_status()
            ready = {each["state"]: each["count"] for each in answer.json()["nodes"]}.get("ready", 0)
            if ready >= self.nodes:
                return
            await asyncio.sleep(0.1)
        log.warning("not all simulated nodes were ready within %g s; the demo's jobs are submitted anyway", READY_SECONDS)

    async def _submit(self, http: httpx.AsyncClient, job: DemoJob) -> None:
        created = await self._post(http, "/training/jobs", job.owner, job.spec)
        if created is not None and job.deeds:
            self._open[created["id"]] = (job, list(job.deeds))

    async def _post(self, http: httpx.AsyncClient, path: str, owner: str, spec: Document) -> Document | None:
        """Create what `spec` describes as `owner`. Returns what was created; None if it was refused, which is logged."""
        answer = await http.post(path, json=spec, headers={**self._key(owner), "Idempotency-Key": str(uuid.uuid4())})
        if answer.status_code != httpx.codes.CREATED:
            log.error("%s of the demo was refused: %s", spec["name"], answer.text[:500])
            return None
        created: Document = answer.json()
        return created

    async def _act(self, http: httpx.AsyncClient, job_id: str, job: DemoJob, deeds: list[DemoAction]) -> None:
        answer = await http.get(f"/training/jobs/{job_id}", headers=self._key(job.owner))
        if answer.status_code == httpx.codes.NOT_FOUND:  # somebody has deleted it
            del self._open[job_id]
            return
        now = answer.json()
        if now["state"] != "running" or (now["progress"] or {}).get("step", 0) < deeds[0].step:
            return
        deed = deeds.pop(0)
        headers = {**self._key(job.owner), "If-Match": answer.headers.get("etag", "*")}
        if deed.act == "cancel":
            done = await http.delete(f"/training/jobs/{job_id}", headers=headers)
        else:
            body = {"nodes": deed.nodes} if deed.nodes is not None else None
            done = await http.put(f"/training/jobs/{job_id}/{deed.act}", json=body, headers=headers)
        if done.status_code in (httpx.codes.PRECONDITION_FAILED, httpx.codes.CONFLICT):
            deeds.insert(0, deed)  # it has changed meanwhile: look again
        elif done.is_error:
            log.error("%s of demo job %s was refused: %s", deed.act, job.spec["name"], done.text[:300])
        if not deeds:
            del self._open[job_id]

    def _key(self, user: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[user]}"}
