"""Secrets of projects: values go in, and never come out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr

from paceline.api.schemas.common import Schema, Timestamp
from paceline.training.schema.parts import inconsistent

#: A shorter value cannot be masked in output without masking ordinary words; a longer one fits into no environment.
LEAST_CHARACTERS, MOST_BYTES = 8, 32 << 10


def _fit(value: Any) -> Any:
    """Refuse a value in words that do not have it."""
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str):
        raise inconsistent("the value of a secret is a text, in quotes")
    if len(value) < LEAST_CHARACTERS:
        raise inconsistent(
            "the value has {count} characters; give at least {least}, since a shorter one cannot be told from other words in a job's output",
            count=len(value),
            least=LEAST_CHARACTERS,
        )
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        raise inconsistent("the value has {size} bytes; the limit is {most}", size=f"{size:,}", most=f"{MOST_BYTES:,}")
    if "\0" in value:
        raise inconsistent("there is a NUL character in the value, which no variable can have; encode it, as with base64")
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        raise inconsistent("the value is not Unicode text; encode it, as with base64")
    return value


class SecretValue(Schema):
    value: Annotated[SecretStr, BeforeValidator(_fit)] = Field(description="8 characters to 32 KiB of text; no answer has it")


class Secret(Schema):
    """A secret without its value."""

    project: str
    name: str = Field(description="of the variable that ranks get")
    created_by: str
    created_at: Timestamp
    updated_by: str
    updated_at: Timestamp


class KeyRotation(Schema):
    drop_unreadable: bool = Field(
        False, description="delete the secrets, and switch off the channels, whose key is lost; they have to be set again"
    )


class RotatedKey(Schema):
    key_id: str = Field(description="of the key that everything is sealed with now")
    secrets: int = Field(description="how many values of secrets were sealed anew")
    channels: int = Field(description="how many channels of notifications were sealed anew")
    dropped: list[str] = Field(description="secrets, as project/name, and channels that could not be opened and are gone")
    deleted_keys: int = Field(description="how many older keys were deleted; those in PACELINE_SECRETS_KEY are deleted by hand")
