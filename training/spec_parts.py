"""What every part of a job spec is made of: a frozen model that refuses unknown fields, and the two kinds of refusal."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


def not_available_yet(field: str, value: object, way_out: str) -> PydanticCustomError:
    return PydanticCustomError(
        "not_available_yet",
        "{field}={value} is not available yet; {way_out}",
        {"field": field, "value": str(value), "way_out": way_out},
    )


def inconsistent(message: str, **context: object) -> PydanticCustomError:
    return PydanticCustomError("inconsistent_spec", message, context)


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
