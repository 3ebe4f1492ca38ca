"""The objects that a node is in Kubernetes: a Secret with its join token, and a Job with one pod. Pure."""

from __future__ import annotations

from typing import Any

from paceline.cluster.provisioners.kubernetes_settings import KubernetesSettings
from paceline.cluster.provisioners.passed_names import pass_env_words
from paceline.cluster.provisioners.provisioner import WantedNode

MANAGED_BY = "app.kubernetes.io/managed-by"
NODE_LABEL, POOL_LABEL = "paceline.dev/node", "paceline.dev/pool"
#: What is left of the grace period after the drain, for the agent's own end.
END_SECONDS = 15
KEPT_SECONDS = 600  # an ended Job can be looked at for so long
USER_ID = 10001  # of the image
DATA, CHECKPOINTS = "/var/lib/paceline", "/checkpoints"
#: The agent is process 1. SIGUSR1 is a notice; the hook lasts until the agent has left, or the grace period is over.
DRAIN_HOOK = "kill -USR1 1; while kill -0 1 2>/dev/null; do sleep 1; done"


def object_name(request: WantedNode) -> str:
    """The name of the node's Job and Secret: Kubernetes has no dots in the names of pods' labels and hosts."""
    return request.name.replace(".", "-").replace("_", "-")


def labels_of(request: WantedNode) -> dict[str, str]:
    """The labels of everything that belongs to the node."""
    return {MANAGED_BY: "paceline", NODE_LABEL: object_name(request), POOL_LABEL: request.pool}


def secret(settings: KubernetesSettings, request: WantedNode, owner_uid: str) -> dict[str, Any]:
    """The join token. It goes with its Job, which owns it."""
    name = object_name(request)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner_uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels_of(request), "ownerReferences": [owner]},
        "type": "Opaque",
        "stringData": {"token": request.join_token},
    }


def job(settings: KubernetesSettings, request: WantedNode) -> dict[str, Any]:
    """The Job. Its pod is not started again: the coordinator decides what is launched in its place."""
    name = object_name(request)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels_of(request)},
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels_of(request)}, "spec": _pod(settings, request)},
        },
    }


def _pod(settings: KubernetesSettings, request: WantedNode) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,  # ranks run users' code
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.drain_seconds + END_SECONDS,
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER_ID, "fsGroup": USER_ID, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(settings, request)],
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}},
        ],
    }
    if settings.checkpoint_claim:
        pod["volumes"].append({"name": "checkpoints", "persistentVolumeClaim": {"claimName": settings.checkpoint_claim}})
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerate:
        pod["tolerations"] = [{"key": key, "operator": "Exists"} for key in settings.tolerate]
    if settings.priority_class:
        pod["priorityClassName"] = settings.priority_class
    return pod


def _container(settings: KubernetesSettings, request: WantedNode) -> dict[str, Any]:
    mounts = [("data", DATA), ("tmp", "/tmp"), ("shm", "/dev/shm"), *([("checkpoints", CHECKPOINTS)] if settings.checkpoint_claim else [])]
    container: dict[str, Any] = {
        "name": "agent",
        "image": settings.image,
        "command": ["paceline", "worker"],
        "args": _arguments(settings, request),
        "env": [
            {"name": "PACELINE_JOIN_TOKEN", "valueFrom": {"secretKeyRef": {"name": object_name(request), "key": "token"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOME", "value": DATA},
        ],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", DRAIN_HOOK]}}},
        "resources": _resources(settings),
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
    }
    if settings.variables_from:
        container["envFrom"] = [{"secretRef": {"name": settings.variables_from}}]
    return container


def _arguments(settings: KubernetesSettings, request: WantedNode) -> list[str]:
    words = [*request.server_words, "--name", request.name, "--data", f"{DATA}/agent", "--address", "$(POD_IP)"]
    words += ["--drain-seconds", str(settings.drain_seconds), "--drain-on-term", str(settings.drain_seconds)]
    words += ["--checkpoints", CHECKPOINTS] if settings.checkpoint_claim else []
    words += ["--slots", str(request.slots)] if request.slots is not None else []
    words += [*pass_env_words(settings.pass_env), *settings.agent_words, *([] if settings.gpus else ["--gpus", "none"])]
    for key, value in sorted(request.labels.items()):
        words += ["--label", f"{key}={value}".replace("$(", "$$(")]
    return words


def _resources(settings: KubernetesSettings) -> dict[str, Any]:
    asked = {"cpu": settings.cpu, "memory": settings.memory}
    requests = {name: value for name, value in asked.items() if value is not None}
    limits = {"memory": settings.memory} if settings.memory is not None else {}
    if settings.gpus:
        limits[settings.gpu_resource] = requests[settings.gpu_resource] = str(settings.gpus)
    return {"requests": requests, "limits": limits}
