"""Amounts that a spec may give in more than one way: bytes and times with or without a unit, a count that may be found by itself. Pure
pydantic."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from paceline.training.schema.parts import MOST_SAMPLES, Real, shown

UNITS = {"": 1, "B": 1, "kB": 1000} | {
    f"{prefix}{suffix}": base**power for power, prefix in enumerate("KMGT", 1) for suffix, base in (("B", 1000), ("iB", 1024))
}
BYTES = r"^([1-9][0-9]{0,17}(?:\.[0-9]{1,9})?) *(B|kB|[KMGT]i?B|)$"
COUNT_OR_AUTO = r"^([1-9][0-9]{0,8}|auto)$"
#: More than any device has: 1 PiB.
MOST_BYTES = 1 << 50
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_TIME = r"[0-9]{1,9}(?:\.[0-9]{1,3})? *"
TIME = rf"^{_TIME}(?:s|min|m|h|d|)(?: *{_TIME}(?:s|min|m|h|d))*$"
LONGEST_GRACE_SECONDS = 3600
LONGEST_TIME_LIMIT_SECONDS = 366 * 86_400


@dataclass(frozen=True)
class Amount:
    """For `Annotated`: a whole number from 1 to `most`, or a text of the form `pattern` that `read` understands."""

    read: Callable[[str], int | str]
    pattern: str
    rule: str
    most: int

    def check(self, value: Any) -> int | str:
        amount = value
        if isinstance(value, str):
            amount = self.read(value.strip()) if re.fullmatch(self.pattern, value.strip()) else None
            if isinstance(amount, str):
                return amount
        if isinstance(amount, int) and not isinstance(amount, bool) and 1 <= amount <= self.most:
            return amount
        raise PydanticCustomError(
            "string_pattern_mismatch", "Invalid value {value}: use {rule}", {"value": shown(value), "rule": self.rule}
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": self.most}, {"type": "string", "pattern": self.pattern}]}


@dataclass(frozen=True)
class TimeText:
    """For `Annotated` behind a kind of number: the seconds may be given as a text with units too. They are kept as the number."""

    rule: str

    def read(self, value: Any) -> Any:
        if not isinstance(value, str) or _spells_number(value):
            return value
        if not re.fullmatch(TIME, value.strip()):
            raise PydanticCustomError(
                "string_pattern_mismatch", "Invalid value {value}: use {rule}", {"value": shown(value), "rule": self.rule}
            )
        return read_seconds(value.strip())

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string", "pattern": TIME}]}


def _spells_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_bytes(text: str) -> int:
    number, unit = re.findall(BYTES, text)[0]
    return int(float(number) * UNITS[unit])


def read_seconds(text: str) -> float:
    """The seconds of a time: those of `1h30m` are 5400."""
    return math.fsum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9.]+) *(min|[smhd]|)", text))


def read_time(text: str) -> int:
    """The whole seconds of a time."""
    return int(read_seconds(text))


def written_time(seconds: float) -> str:
    """The inverse of `read_time`, in whole seconds: 5400 is `1h30m`."""
    left, parts = round(seconds), list[str]()
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _SECONDS[unit])
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def read_count(text: str) -> int | str:
    return text if text == "auto" else int(text)


Bytes = Annotated[int, Amount(read_bytes, BYTES, "a number of bytes from 1 to 1024 TiB, as 536870912 or 512MiB", MOST_BYTES)]
CountOrAuto = Annotated[
    int | Literal["auto"], Amount(read_count, COUNT_OR_AUTO, "a whole number from 1 to 16777216, or auto", MOST_SAMPLES)
]
Grace = Annotated[int, Amount(read_time, TIME, "a time from 1 s to 1 h, as 30, 90s or 10m", LONGEST_GRACE_SECONDS)]
Seconds = Annotated[Real, TimeText("a number of seconds, or a time as 90s, 10m or 1h30m")]
TimeLimit = Annotated[int, Amount(read_time, TIME, "a time from 1 s to 366 d, as 90s, 1h30m or 2d", LONGEST_TIME_LIMIT_SECONDS)]
