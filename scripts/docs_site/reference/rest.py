"""The page of the REST interface, from its OpenAPI document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from paceline.api.main import create_app
from paceline.api.openapi import document
from scripts.docs_site.reference.markdown import cell, code, table

OPENING = """# REST interface

All paths begin with `/api/v1`. Send a key as `Authorization: Bearer KEY`; [curl, line by line](../curl.md) shows how. Errors are
`application/problem+json` with a `code`, a `detail` that names the value, the limit and the way out, and, for documents, a list of `errors` by
field. The whole document for generators is at `/api/v1/openapi.json` of every coordinator.

"""
METHODS = ("get", "post", "put", "patch", "delete")


def page() -> str:
    by_area: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for path, method, operation in operations(document(create_app())):
        by_area[area(path)].append((code(f"{method.upper()} {path}"), *texts(operation)))
    return OPENING + "".join(f"## {name}\n\n{table(('Request', 'Does', 'Query'), rows)}" for name, rows in sorted(by_area.items()))


def operations(openapi: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in openapi["paths"].items():
        for method in METHODS:
            if method in item:
                yield path.removeprefix("/api/v1"), method, item[method]


def area(path: str) -> str:
    """Return the first part of a path as a heading."""
    return path.strip("/").split("/")[0].replace("-", " ").capitalize() or "Root"


def texts(operation: Mapping[str, Any]) -> tuple[str, str]:
    """Return a sentence on the operation, and its query parameters."""
    told = operation.get("description") or operation.get("summary") or ""
    names = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    return cell(told.split("\n\n")[0]), ", ".join(map(code, names))
