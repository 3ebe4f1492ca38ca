"""Specs of jobs and experiments as request bodies: JSON, or the same document as YAML."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import yaml
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from paceline.api.errors import ProblemError
from paceline.api.problems import invalid_body
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.training.spec.job import JobSpec
from paceline.training.spec.text import load

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})

#: The specs that bodies may be, each with the code of its refusal.
_CODES: Mapping[type[BaseModel], str] = {JobSpec: "invalid_spec", ExperimentSpec: "invalid_experiment"}


class SpecRoute(APIRoute):
    """Hands a YAML body on as JSON, and answers an invalid spec with its own code."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        annotation = self.body_field.field_info.annotation if self.body_field is not None else None
        model = next((model for model in _CODES if model is annotation), None)

        async def handler(request: Request) -> Response:
            try:
                return await handle(await _as_json(request))
            except RequestValidationError as error:
                if model is None or any(item["type"] == "json_invalid" or item["loc"][0] != "body" for item in error.errors()):
                    raise
                raise invalid_body(error.errors(), error.body, model, code=_CODES[model]) from None

        return handler


async def _as_json(request: Request) -> Request:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in YAML_TYPES:
        _check_json(media_type)
        return request
    body = await asyncio.to_thread(_to_json, await request.body())
    headers = [(name, value) for name, value in request.scope["headers"] if name not in (b"content-type", b"content-length")]
    scope = {**request.scope, "headers": [*headers, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


def _check_json(media_type: str) -> None:
    """Check the media type. Routes of this class that take no body are sent none."""
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise ProblemError(
            "unsupported_media_type", f"content-type {media_type} is not read here; send application/json or application/yaml"
        )


def _to_json(text: bytes) -> bytes:
    """Convert YAML to JSON in a thread: the longest document takes a tenth of a second, too long for the event loop."""
    try:
        return json.dumps(load(text)).encode()
    except yaml.YAMLError as error:
        raise ProblemError("malformed_body", f"the body is not YAML: {error}") from None
