"""Specs of jobs and experiments as request bodies: JSON, or the same document as YAML."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from paceline.api.errors import ProblemError
from paceline.api.field_errors import SHOWN_ERRORS, escaped, field_error, of_fields
from paceline.api.schemas.common import FieldError
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.training.spec.findings import all_errors, place_in
from paceline.training.spec.job import JobSpec
from paceline.training.spec.text import SpecTextError, TextFinding, json_findings, read

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})

#: The specs that bodies may be, each with the code of its refusal.
_CODES: Mapping[type[BaseModel], str] = {JobSpec: "invalid_spec", ExperimentSpec: "invalid_experiment"}


Lines = Mapping[tuple[str, ...], int]


class SpecRoute(APIRoute):
    """Hands a YAML body on as JSON, and answers an invalid spec with its own code and with everything that is wrong in it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        annotation = self.body_field.field_info.annotation if self.body_field is not None else None
        model = next((model for model in _CODES if model is annotation), None)

        async def handler(request: Request) -> Response:
            as_json, lines = await _as_json(request, model)
            try:
                return await handle(as_json)
            except RequestValidationError as error:
                if model is None or any(item["type"] == "json_invalid" or item["loc"][0] != "body" for item in error.errors()):
                    raise
                found = await asyncio.to_thread(_fields, model, error.body, error.errors(), lines)
                raise of_fields(found[:SHOWN_ERRORS], len(found), _CODES[model]) from None

        return handler


async def _as_json(request: Request, model: type[BaseModel] | None) -> tuple[Request, Lines]:
    """The request with a body in JSON, and the lines of its fields; none where it was JSON already."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in YAML_TYPES:
        _check_json(media_type)
        if findings := json_findings(await request.body()):
            raise of_fields([_of_finding(each) for each in findings], len(findings), "malformed_body")
        return request, {}
    body, lines = await asyncio.to_thread(_to_json, await request.body(), model)
    headers = [(name, value) for name, value in request.scope["headers"] if name not in (b"content-type", b"content-length")]
    scope = {**request.scope, "headers": [*headers, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive), lines


def _check_json(media_type: str) -> None:
    """Check the media type. Routes of this class that take no body are sent none."""
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise ProblemError(
            "unsupported_media_type", f"content-type {media_type} is not read here; send application/json or application/yaml"
        )


def _to_json(text: bytes, model: type[BaseModel] | None) -> tuple[bytes, Lines]:
    """Convert YAML to JSON in a thread: the longest document takes a tenth of a second, too long for the event loop."""
    try:
        found = read(text)
    except SpecTextError as error:
        raise _of_text(error, model) from None
    return json.dumps(found.value).encode(), found.lines


def _of_text(error: SpecTextError, model: type[BaseModel] | None) -> ProblemError:
    """What is wrong with a text and, where the rest of it can be read as a document, with its fields."""
    fields = [_of_finding(each) for each in error.findings]
    if error.rest is None:
        return ProblemError("malformed_body", f"the body is not YAML: {error}", errors=fields)
    found: list[FieldError] = []
    if model is not None and isinstance(error.rest, dict):
        try:
            model.model_validate(error.rest)
        except ValidationError as wrong:
            found = _fields(
                model, error.rest, [{**each, "loc": ("body", *each["loc"])} for each in wrong.errors(include_url=False)], error.lines
            )
    known = {each.pointer for each in fields}
    fields += [each for each in found if not any(each.pointer == place or each.pointer.startswith(f"{place}/") for place in known if place)]
    problem = of_fields(fields[:SHOWN_ERRORS], len(fields), "malformed_body")
    problem.detail = f"the body is not YAML that a spec can be read from: {problem.detail}"
    return problem


def _of_finding(finding: TextFinding) -> FieldError:
    return FieldError(
        pointer="".join(f"/{escaped(part)}" for part in finding.path), code="malformed_body", message=finding.message, line=finding.line
    )


def _fields(model: type[BaseModel], document: Any, errors: Sequence[Any], lines: Lines) -> list[FieldError]:
    """All that is wrong with the fields of a document, each with its line where that is known."""
    found = all_errors(model, document, [{**each, "loc": tuple(each["loc"][1:])} for each in errors])
    fields = []
    for each in found:
        line = _line_of(lines, place_in(document, each["loc"]))
        fields.append(field_error({**each, "loc": ("body", *each["loc"])}, document, model).model_copy(update={"line": line}))
    return fields


def _line_of(lines: Lines, place: Sequence[int | str]) -> int | None:
    """The line of a place, or of the nearest one above it that is in the text."""
    names = tuple(map(str, place))
    return next((lines[names[:length]] for length in range(len(names), 0, -1) if names[:length] in lines), None)
