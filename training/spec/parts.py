"""What every part of a job spec is made of: a frozen model that refuses unknown fields; its refusal."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


def inconsistent(message: str, **context: object) -> PydanticCustomError:
    return PydanticCustomError("inconsistent_spec", message, context)


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
