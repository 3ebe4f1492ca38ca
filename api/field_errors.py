"""Turns the fields of a body or of a query that a schema refuses into a problem. Pure, and without the web framework: services use it too, in worker processes as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.training.spec.refusals import in_words, parameter_in_words

SHOWN_VALUE = 80  # characters
SHOWN_ERRORS = 50
_WITHOUT_VALUE = frozenset({"missing", "inconsistent_spec", "model_attributes_type", "string_pattern_mismatch"})


def pointer(location: Sequence[int | str], body: Any, *, missing: bool) -> str:
    """The JSON pointer of a pydantic location: without the tags of unions, which the document does not contain."""
    parts: list[str] = []
    here = body
    for index, part in enumerate(location):
        inside = isinstance(here, dict) and part in here
        is_tag = isinstance(here, dict) and not inside and not (missing and index == len(location) - 1)
        if is_tag or (isinstance(here, list) and isinstance(part, str)):
            continue
        parts.append(escaped(part))
        here = here[part] if inside or (isinstance(here, list) and isinstance(part, int) and part < len(here)) else None
    return "".join(f"/{part}" for part in parts)


def escaped(part: int | str) -> str:
    """One step of a JSON pointer."""
    return str(part).replace("~", "~0").replace("/", "~1")


def field_error(error: dict[str, Any], body: Any, model: type[BaseModel] | None) -> FieldError:
    """The error of one field. `model`: what the body was to be; None: not known."""
    source, *location = error["loc"] or ("body",)
    where = pointer(location, body, missing=error["type"] == "missing") if source == "body" else ".".join(map(str, location))
    hint = error.get("ctx", {}).get("way_out")
    if source == "body":
        words = None if model is None else in_words({**error, "loc": tuple(location)}, model)
    else:
        words = parameter_in_words(error)
    return FieldError(pointer=where, code=error["type"], message=words or _with_value(error), hint=None if hint is None else str(hint))


def _with_value(error: dict[str, Any]) -> str:
    """The message with the refused value. Messages of the schema's own validators name theirs already."""
    value, message = error.get("input"), str(error["msg"])
    if error["type"] in _WITHOUT_VALUE or not isinstance(value, bool | int | float | str):
        return message
    return f"{message}; got {repr(value)[:SHOWN_VALUE]}"


def invalid_body(errors: Sequence[Any], body: Any, model: type[BaseModel] | None, *, code: str = "invalid_request") -> ProblemError:
    """A problem from pydantic's errors, whose locations start with "body". The first `SHOWN_ERRORS` are listed one by one."""
    return of_fields([field_error(error, body, model) for error in errors[:SHOWN_ERRORS]], len(errors), code)


def of_fields(fields: Sequence[FieldError], count: int, code: str) -> ProblemError:
    """A problem of `count` fields, of which these are listed."""
    first = fields[0]
    more = f" (and {count - 1} more)" if count > 1 else ""
    line = "" if first.line is None else f", line {first.line}"
    return ProblemError(code, f"{first.pointer or 'the body'}{line}: {first.message}{more}", errors=fields)
