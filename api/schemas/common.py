"""Shapes that every noun shares."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, PlainSerializer

from paceline.training.schema.parts import PublishedModel

Item = TypeVar("Item")


class Schema(PublishedModel):
    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)


def _number_or_name(value: float | None) -> float | str | None:
    if value is None or (value == value and abs(value) != float("inf")):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


#: A float that may be NaN or infinite: those travel as strings.
AnyFloat = Annotated[
    float,
    PlainSerializer(_number_or_name, return_type=float | Literal["NaN", "Infinity", "-Infinity"]),
]


class Page(Schema, Generic[Item]):
    items: list[Item]
    next_cursor: str | None = Field(None, description="pass as cursor= for the next page; null on the last")


class FieldError(Schema):
    pointer: str = Field(description="JSON pointer into the request body, or the parameter's name")
    code: str
    message: str
    hint: str | None = None
    line: int | None = Field(None, description="line of a YAML body, from 1")


class Problem(Schema):
    """Problem details as RFC 9457 defines them."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FieldError] = []
    request_id: str


class Reason(Schema):
    """Why something is not happening: always with what is missing and what would help."""

    code: str
    text: str
    missing: str | None = None
    nearest_fit: str | None = None
    next_step: str | None = None
    no_launch: str | None = Field(None, description="why the autoscaler launches no node for it; null: it does, or no pool has autoscale")


class Actor(Schema):
    kind: Literal["user", "system", "node"]
    id: str
    name: str


class RequestActor(Actor):
    """A user whose request is served, with where it came from. The history keeps that for the audit, and tells nobody else."""

    address: str
    via: str | None


Timestamp = datetime
