"""Turns everything that goes wrong into a problem document: ours, the framework's, the schema's, and bugs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from paceline.api.core.methods import allowed_methods
from paceline.api.errors import HeadOnlyError, ProblemError
from paceline.api.schemas.common import FieldError
from paceline.db.errors import DatabaseBusyError
from paceline.training.spec.refusals import in_words, parameter_in_words

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
SHOWN_VALUE = 80  # characters
SHOWN_ERRORS = 50
_WITHOUT_VALUE = frozenset({"missing", "inconsistent_spec", "model_attributes_type", "string_pattern_mismatch"})
_BY_STATUS = {404: "not_found", 408: "body_too_slow", 413: "body_too_large", 415: "unsupported_media_type"}


def render(request: Request, error: ProblemError) -> JSONResponse:
    request_id = getattr(request.state, "request_id", "")
    problem = error.document(instance=request.url.path, request_id=request_id)
    return JSONResponse(problem.model_dump(mode="json"), status_code=problem.status, media_type=MEDIA_TYPE, headers=error.headers)


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


def from_validation(request: Request, error: RequestValidationError) -> ProblemError:
    errors = error.errors()
    if any(item["type"] == "json_invalid" for item in errors):
        return ProblemError("malformed_body", f"the body is not JSON: {errors[0].get('ctx', {}).get('error', 'parse error')}")
    code = "invalid_request" if errors[0]["loc"][0] == "body" else "invalid_parameter"
    return invalid_body(errors, error.body, _model_of(request), code=code)


def _model_of(request: Request) -> type[BaseModel] | None:
    """The model of a request's body on this route; None: it has no body, or one of another kind."""
    field = getattr(request.scope.get("route"), "body_field", None)
    annotation = field.field_info.annotation if field is not None else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def from_framework(request: Request, error: HTTPException) -> ProblemError:
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return ProblemError(_BY_STATUS.get(error.status_code, "malformed_body"), detail, headers=error.headers)


def too_busy(error: DatabaseBusyError) -> ProblemError:
    return ProblemError("busy", str(error), headers={"Retry-After": "1"})


def wrong_method(request: Request) -> ProblemError:
    path = request.url.path
    methods = ", ".join(allowed_methods(request.app, path))
    if not methods:
        return ProblemError("not_found", f"{request.method} {path}: there is no such endpoint")
    return ProblemError("method_not_allowed", f"{request.method} {path}: this takes {methods}", headers={"Allow": methods})


def install_problem_handlers(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> JSONResponse:
        return render(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return render(request, from_validation(request, error))

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> JSONResponse:
        return render(request, wrong_method(request) if error.status_code == 405 else from_framework(request, error))

    @app.exception_handler(HeadOnlyError)
    async def head(request: Request, error: HeadOnlyError) -> Response:
        return Response(media_type="application/json")

    @app.exception_handler(DatabaseBusyError)
    async def busy(request: Request, error: DatabaseBusyError) -> JSONResponse:
        return render(request, too_busy(error))

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> Response:
        """Answer a client that was gone before the body was whole: no client reads this answer, and it is not a bug."""
        return Response(status_code=400)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        logger.error("unexpected %s on %s %s", type(error).__name__, request.method, request.url.path, exc_info=error)
        return render(request, ProblemError("internal", "please report this with the request_id; the log has the details"))
