"""The nodes that a gang may be placed on: by their device, their labels and their taints. Pure.

Labels and taints are compared as texts, `key=value`; a taint without a value is its key alone. A toleration is a taint, or the key of
taints with any value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def facet(key: str, value: str) -> str:
    """Return a label or a taint as it is compared and shown."""
    return f"{key}={value}" if value else key


def facets(given: Mapping[str, str]) -> frozenset[str]:
    """Return labels or taints as they are compared and shown."""
    return frozenset(facet(key, value) for key, value in given.items())


#: Of nodes that can run containers, among their labels. It has a space, so that no label of a user is the same.
CONTAINER_ENGINE = "container engine"


@dataclass(frozen=True)
class Requirements:
    """The `resources.device`, `labels` and `tolerations` of a job."""

    device: str | None = None  # None: any
    labels: frozenset[str] = frozenset()
    tolerations: frozenset[str] = frozenset()

    def tolerates(self, taint: str) -> bool:
        return taint in self.tolerations or taint.partition("=")[0] in self.tolerations

    def obstacle(self, device: str, labels: frozenset[str], taints: frozenset[str]) -> str | None:
        """Return what keeps the gang off nodes of this kind, in a few words. None: nothing does."""
        if self.device not in (None, device):
            return f"device {device}"
        if CONTAINER_ENGINE in self.labels - labels:
            return "neither podman nor docker nor apptainer"
        if lacking := sorted(self.labels - labels):
            return f"no label {', '.join(lacking)}"
        if hindering := sorted(taint for taint in taints if not self.tolerates(taint)):
            return f"taint {', '.join(hindering)}"
        return None


#: Of a job that says nothing of its nodes: any without a taint.
ANY_NODE = Requirements()
