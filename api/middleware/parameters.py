"""A query parameter that no route declares is a mistake worth telling: a 400, never silently ignored."""

from __future__ import annotations

from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError

#: Parameters with free names, by operation. OpenID providers add some of their own.
FREE_PREFIXES = {"list_jobs": "label.", "finish_oidc": ""}


async def known_parameters_only(request: Request) -> None:
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.query_params:
        return
    known = query_names(route.dependant)
    free = FREE_PREFIXES.get(route.name)
    unknown = [name for name in request.query_params if name not in known and not (free is not None and name.startswith(free))]
    if unknown:
        raise ProblemError("unknown_parameter", _explain(unknown[0], known), errors=[_error(name, known) for name in unknown])


def query_names(dependant: Dependant) -> set[str]:
    """The query parameters of a route and of everything it depends on."""
    names = {parameter.alias for parameter in dependant.query_params}
    return names.union(*(query_names(inner) for inner in dependant.dependencies))


def _explain(name: str, known: set[str]) -> str:
    takes = ", ".join(sorted(known)) or "no parameters"
    return f"{name!r} is not a parameter here; this takes {takes}"


def _error(name: str, known: set[str]) -> FieldError:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else None
    return FieldError(pointer=name, code="unknown_parameter", message=_explain(name, known), hint=hint)
