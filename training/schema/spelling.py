"""A text whose form is a regular expression to machines and a sentence to people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from paceline.training.schema.parts import shown


@dataclass(frozen=True)
class SpellingRule:
    """For `Annotated[str, Spelling(...)]`: the schema carries `pattern` and `rule`, the refusal says the rule, never the pattern."""

    pattern: str
    rule: str
    example: str

    def check(self, value: str) -> str:
        if re.fullmatch(self.pattern, value):
            return value
        context = {"value": shown(value), "rule": self.rule, "way_out": f"for example {self.example}"}
        raise PydanticCustomError("string_pattern_mismatch", "Invalid value {value}: use {rule}", context)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern, "description": self.rule}
