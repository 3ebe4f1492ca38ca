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


@dataclass(frozen=True)
class NodeTool:
    """A program that some jobs need on each of their nodes."""

    facet: str  # among the labels of nodes that have it; with a space, so that no label of a user is the same
    code: str  # of the reason and the problem where no node has it
    obstacle: str
    lacking: str
    way_out: str


CONTAINER_ENGINE = NodeTool(
    "container engine",
    "no_container_engine",
    "neither podman nor docker nor apptainer",
    "no node has a container engine that works (podman, docker or apptainer)",
    "install one on a node and start its agent again, or use environment.requirements",
)
UV = NodeTool(
    "uv beside Paceline",
    "no_uv",
    "no uv",
    "no node has uv, which installs packages",
    "pip install 'paceline[worker]' on a node and start its agent again, or use environment.image or environment.python",
)
TOOLS = (CONTAINER_ENGINE, UV)


@dataclass(frozen=True)
class Requirements:
    """The `resources.device`, `labels` and `tolerations` of a job, and the tools that it needs, among the labels."""

    device: str | None = None  # None: any
    labels: frozenset[str] = frozenset()
    tolerations: frozenset[str] = frozenset()
    has_run: bool = False  # `device` is what it has run on: its spec names none

    def tolerates(self, taint: str) -> bool:
        return taint in self.tolerations or taint.partition("=")[0] in self.tolerations

    def obstacle(self, device: str, labels: frozenset[str], taints: frozenset[str]) -> str | None:
        """Return what keeps the gang off nodes of this kind, in a few words. None: nothing does."""
        if self.device not in (None, device):
            return f"device {device}, and it has run on {self.device}" if self.has_run else f"device {device}"
        if tool := next((tool for tool in TOOLS if tool.facet in self.labels - labels), None):
            return tool.obstacle
        if lacking := sorted(self.labels - labels):
            return f"no label {', '.join(lacking)}"
        if hindering := sorted(taint for taint in taints if not self.tolerates(taint)):
            return f"taint {', '.join(hindering)}"
        return None


#: The requirements of a job that says nothing of its nodes: any without a taint.
ANY_NODE = Requirements()
