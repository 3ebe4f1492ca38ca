"""How a job sums its gradients where it left the choice to Paceline (`communication: auto`)."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Schema


class CommunicationOption(Schema):
    name: str = Field(description="`top_k, by a hierarchy`")
    predicted_seconds: float | None = Field(description="of a step, by probes of the links; null: not predicted")
    measured_seconds: float | None = Field(description="of a step, the median of some; null: not tried")
    taken: bool


class CommunicationLink(Schema):
    latency_seconds: float
    bytes_per_second: float = Field(description="of all ranks of a machine together")


class CommunicationChoice(Schema):
    step: int = Field(description="after which it was decided")
    text: str = Field(description="a sentence: how gradients are summed, and why")
    links: str = Field(description="what probes of the links have found, as text")
    why: str = Field(description="faster, not_faster, nothing_to_gain, no_longer_faster or loss")
    name: str
    waited_seconds: float = Field(description="of a step by the default way, waiting for sums")
    options: list[CommunicationOption] = Field(description="all that could be chosen, the default first")
    within: CommunicationLink | None = Field(description="between the ranks of a machine; null: not measured by itself")
    between: CommunicationLink | None = Field(description="between machines; null: there is one, or it was not measured by itself")
