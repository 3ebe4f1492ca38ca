"""What every part of a job spec is made of: a frozen model that refuses unknown fields; its numbers and texts; its refusal.

A number is what YAML and JSON call one. `true` is no number, and a whole number is no text: `"8"` is refused, since a list or a name may have been
meant. `8.0` and `1e4` are whole numbers, because nothing is lost. Where parts of numbers make sense, a text that spells one is read as one, since
YAML 1.1 itself takes `.5e3` for text. Nothing is infinite, and every number has a limit: what is far beyond any machine is a slip, and estimates of
it would take for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

#: The most optimizer steps, and the most of whatever is counted in them.
MOST_STEPS = 10**12
#: The most samples in a global batch.
MOST_SAMPLES = 1 << 24
#: The most ranks along one axis: as many as there are slots in the largest gang.
MOST_RANKS = 4096 * 64
MOST_EPOCHS = 1 << 24
LONGEST_PATH = 4096
#: Fields that are refused one by one.
MOST_UNKNOWN = 50


def inconsistent(message: str, **context: object) -> PydanticCustomError:
    return PydanticCustomError("inconsistent_spec", message, context)


def shown(value: object) -> str:
    """A value in a refusal, which is to stay readable."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def absent(value: object) -> bool:
    """Whether a field can be left out of a document: nodes of the version before do not know it."""
    return value is None


def _whole(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "Input should be a whole number, without quotes and without leading zeros")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("float_type", "Input should be a number")
    return value


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "there is a NUL character at place {place}; leave it out", {"place": text.index("\0")})
    return text


Whole = Annotated[int, BeforeValidator(_whole)]
Real = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
PositiveInt = Annotated[Whole, Field(ge=1, le=MOST_STEPS)]
Ranks = Annotated[Whole, Field(ge=1, le=MOST_RANKS)]
Fraction = Annotated[Real, Field(ge=0.0, lt=1.0)]
#: No database, command line or environment takes a NUL.
Text = Annotated[str, AfterValidator(_without_nul)]
Path = Annotated[Text, Field(max_length=LONGEST_PATH)]


def at_most(count: int) -> BeforeValidator:
    """For a mapping. Its entries are looked at only where they are few: each wrong one is a refusal of its own."""

    def check(given: Any) -> Any:
        if isinstance(given, Mapping) and len(given) > count:
            raise PydanticCustomError("too_long", "there are {size} entries; the limit is {count}", {"size": len(given), "count": count})
        return given

    return BeforeValidator(check)


#: JSON Schema's words for limits. Pydantic leaves its own ones at a number that is checked before it is read, and no editor knows them.
PUBLISHED_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def _publish_limits(schema: Any) -> None:
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _publish_limits(each)
    if isinstance(schema, dict):
        for own, published in PUBLISHED_LIMITS.items():
            if isinstance(schema.get(own), int | float):
                schema[published] = schema.pop(own)


class PublishedModel(BaseModel):
    """A model whose JSON Schema has the limits of all its numbers, for editors and forms to refuse what is beyond them."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        _publish_limits(handler.resolve_ref_schema(schema))
        return schema


class Part(PublishedModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def check_field_count(cls, given: Any) -> Any:
        """Each unknown field is a refusal of its own; a document of thousands is none of ours."""
        known = len(cls.model_fields)
        if isinstance(given, Mapping) and len(given) > known + MOST_UNKNOWN:
            raise inconsistent(
                "there are {size} fields here, of which at most {known} are known; leave the others out", size=len(given), known=known
            )
        return given
