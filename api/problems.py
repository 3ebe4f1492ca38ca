"""Turns everything that goes wrong into a problem document: ours, the framework's, the schema's (`field_errors.py`), and bugs."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from paceline.api.core.methods import allowed_methods
from paceline.api.errors import HeadOnlyError, ProblemError
from paceline.api.field_errors import invalid_body
from paceline.db.errors import DatabaseBusyError

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
_BY_STATUS = {404: "not_found", 408: "body_too_slow", 413: "body_too_large", 415: "unsupported_media_type"}


def render(request: Request, error: ProblemError) -> JSONResponse:
    request_id = getattr(request.state, "request_id", "")
    problem = error.document(instance=request.url.path, request_id=request_id)
    return JSONResponse(problem.model_dump(mode="json"), status_code=problem.status, media_type=MEDIA_TYPE, headers=error.headers)


def from_validation(request: Request, error: RequestValidationError) -> ProblemError:
    errors = error.errors()
    if any(item["type"] == "json_invalid" for item in errors):
        return ProblemError("malformed_body", f"the body is not JSON: {errors[0].get('ctx', {}).get('error', 'parse error')}")
    if _is_unread_body(request, errors[0]):
        media_type = request.headers.get("content-type", "nothing")
        detail = f"the body came as {media_type}, which is not read here; send JSON with the header Content-Type: application/json"
        return ProblemError("unsupported_media_type", detail)
    code = "invalid_request" if errors[0]["loc"][0] == "body" else "invalid_parameter"
    return invalid_body(errors, error.body, _model_of(request), code=code)


def _is_unread_body(request: Request, error: dict[str, Any]) -> bool:
    """Whether the framework has handed a body on as it came, since it does not say that it is JSON: `curl -d` alone sends a form."""
    return tuple(error["loc"]) == ("body",) and isinstance(error.get("input"), bytes)


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
