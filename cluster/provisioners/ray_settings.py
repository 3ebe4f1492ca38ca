"""The settings of the provider `ray`. Pure: Ray is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from paceline.cluster.provisioners.agent_options import AgentNotices
from paceline.cluster.provisioners.passed_names import DESCRIPTION, PassedNames
from paceline.training.schema.parts import Text, Whole, at_most
from paceline.training.schema.spelling import SpellingRule

RayAddress = Annotated[
    str,
    SpellingRule(
        r"^(ray://)?[A-Za-z0-9][A-Za-z0-9.-]{0,252}:[0-9]{1,5}$", "the address of a Ray head, as ray.init takes it", "10.0.0.1:6379"
    ),
]
RayName = Annotated[str, SpellingRule(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$", "a name of letters, digits, '_' and '-'", "paceline")]
Amount = Annotated[float, Field(gt=0, le=4096)]


class RaySettings(AgentNotices):
    """Agents as actors of a running Ray cluster, each in a placement group of its own."""

    type: Literal["ray"] = "ray"
    address: RayAddress = Field(description="Address of Ray's head, such as 10.0.0.1:6379 from a machine of its cluster.")
    namespace: RayName = Field("paceline", description="Make actors in this namespace.")
    cpus: Whole = Field(1, ge=1, le=4096, description="Ask for this many CPUs for each node.")
    gpus: Whole = Field(0, ge=0, le=64, description="Ask for this many GPUs for each node. Without GPUs it offers CPU slots.")
    resources: Annotated[Mapping[RayName, Amount], at_most(64)] = Field({}, description="Ask for these custom resources for each node.")
    paceline: Annotated[Text, Field(min_length=1, max_length=4096)] | None = Field(
        None, description="Path of the paceline command on Ray's machines. Default: where the coordinator's own is."
    )
    directory: Annotated[Text, Field(min_length=1, max_length=4096)] = Field(
        "~/.paceline/nodes", description="Folder on Ray's machines for the agents' own files."
    )
    checkpoints: Annotated[Text, Field(min_length=1, max_length=4096)] | None = Field(
        None, description="Folder for checkpoints that the nodes share. Default: a folder of each node."
    )
    pass_env: PassedNames = Field([], description=DESCRIPTION)
    drain_seconds: Whole = Field(120, ge=10, le=86400, description="Seconds that a node has to move its jobs away before it is ended.")
