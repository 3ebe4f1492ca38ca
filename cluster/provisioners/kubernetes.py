"""Nodes of a Kubernetes cluster: each is a Job with one pod that runs an agent, which is drained before its pod is killed.

The handle is `NAMESPACE/NAME/UID` of the Job: a Job that later gets the same name is another node. All nodes are looked at in copies of two lists, of
Jobs and of pods, which watches keep current; without watches the lists themselves are asked for. Both are level-triggered: no event can be missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from paceline.cluster.provisioners import kubernetes_manifests as manifests
from paceline.cluster.provisioners.kubernetes_client import KubernetesApiError, KubernetesClient
from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.kubernetes_watch import WatchedObjects
from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, SeenLaunch, WantedNode

SELECTOR = f"{manifests.MANAGED_BY}=paceline"
BATCH, CORE = "batch/v1", "v1"


class KubernetesProvisioner:
    """Makes a Job for each node. Its watches are kept in the context."""

    def __init__(
        self, settings: KubernetesSettings, context: ProvisionerContext, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._settings, self._client, self._kept = settings, KubernetesClient(settings, context, transport), context.kept

    async def launch(self, request: WantedNode) -> str:
        """Make the Job and its Secret, unless they are there. Returns its handle."""
        made = await self._make_job(request)
        try:
            await self._client.create(CORE, "secrets", manifests.secret(self._settings, request, made["metadata"]["uid"]))
        except KubernetesApiError as refused:
            if refused.status != httpx.codes.CONFLICT:  # 409: of the launch before, whose token is as good
                raise
        return f"{self._settings.namespace}/{made['metadata']['name']}/{made['metadata']['uid']}"

    async def _make_job(self, request: WantedNode) -> dict[str, Any]:
        manifest = manifests.job(self._settings, request)
        name = manifest["metadata"]["name"]
        try:
            return await self._client.create(BATCH, "jobs", manifest)
        except KubernetesApiError as refused:
            if refused.status != httpx.codes.CONFLICT:
                raise
        found = await self._client.read(BATCH, "jobs", name)
        if found is None or "deletionTimestamp" in found["metadata"] or _end_of(found):
            if found is not None:
                await self._client.delete(BATCH, "jobs", name, found["metadata"]["uid"])
            raise ProvisionerError(f"the Job {name} of an earlier node is being deleted", "nothing: it is tried again in a moment")
        if found["metadata"].get("labels", {}).get(manifests.MANAGED_BY) != "paceline":
            raise ProvisionerError(f"a Job {name} is there that is not Paceline's", "give the pool a namespace of its own")
        return found

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        """Look at the Jobs and their pods."""
        if not handles:
            return {}
        jobs = self._by_handle(await self._objects(BATCH, "jobs"))
        if not jobs.keys() >= set(handles):  # gone, or made so late that the watch has not told it yet
            jobs |= self._by_handle((await self._client.objects(BATCH, "jobs", SELECTOR)).items)
        pods = {pod["metadata"]["labels"].get(manifests.NODE_LABEL): pod for pod in await self._objects(CORE, "pods")}
        gone = SeenLaunch(LaunchPhase.ENDED, "its Job is gone")
        return {handle: _launch(jobs[handle], pods) if handle in jobs else gone for handle in handles}

    def _by_handle(self, jobs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {_handle(self._settings.namespace, job): job for job in jobs}

    async def _objects(self, group: str, plural: str) -> list[dict[str, Any]]:
        if self._kept is None:
            return (await self._client.objects(group, plural, SELECTOR)).items
        whose = self._settings
        name = f"{plural} of {whose.namespace} at {whose.api_server} as {whose.token_secret}, {whose.ca_file}"
        watched = self._kept.get(name)
        if not isinstance(watched, WatchedObjects):
            self._kept[name] = watched = WatchedObjects(self._client, group, plural, SELECTOR)
        return await watched.objects()

    async def terminate(self, handle: str) -> None:
        """Delete the Job. Its pod is drained by its preStop hook, for as long as its grace period lasts."""
        namespace, _, rest = handle.partition("/")
        name, _, uid = rest.partition("/")
        if namespace == self._settings.namespace and name and uid:
            await self._client.delete(BATCH, "jobs", name, uid)
        else:  # no Job of ours: but an API server that cannot be reached is told all the same
            await self._client.objects(BATCH, "jobs", SELECTOR)


def _handle(namespace: str, job: dict[str, Any]) -> str:
    return f"{namespace}/{job['metadata']['name']}/{job['metadata']['uid']}"


def _launch(job: dict[str, Any], pods: Mapping[str | None, dict[str, Any]]) -> SeenLaunch:
    if (end := _end_of(job)) is not None:
        return SeenLaunch(LaunchPhase.ENDED, end)
    if "deletionTimestamp" in job["metadata"]:
        return SeenLaunch(LaunchPhase.ENDED, "its Job was deleted")
    pod = pods.get(job["metadata"].get("labels", {}).get(manifests.NODE_LABEL))
    if pod is None:
        return SeenLaunch(LaunchPhase.PENDING, "Kubernetes has made no pod for it yet: see `kubectl describe job`, it may be a quota")
    if pod.get("status", {}).get("phase") == "Running":
        return SeenLaunch(LaunchPhase.RUNNING, "its pod is being ended" if "deletionTimestamp" in pod["metadata"] else "")
    return SeenLaunch(LaunchPhase.PENDING, _waits_for(pod))


def _end_of(job: dict[str, Any]) -> str | None:
    """How a Job ended; None: it has not."""
    for condition in job.get("status", {}).get("conditions") or []:
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            why = condition.get("message") or condition.get("reason") or ""
            return "its agent left in order" if condition["type"] == "Complete" else f"its pod failed: {why}"[:500]
    return None


def _waits_for(pod: dict[str, Any]) -> str:
    """What a pod waits for, in words: a machine, its image."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or []:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName"):
            return f"its image cannot be pulled: {waiting.get('message', waiting['reason'])}"[:500]
        if waiting.get("reason"):
            return f"its container waits: {waiting['reason']} {waiting.get('message', '')}".strip()[:500]
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"no machine takes its pod yet: {condition.get('message', condition.get('reason', ''))}"[:500]
    return "its pod is being started"
