"""Answers of a coordinator made from the API's own document: every field that may hold free text holds a given one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, Request

DOCUMENT = Path(__file__).parents[2] / "dashboard" / "openapi.json"
MOMENT = "2026-11-20T12:00:00Z"
ID = "01JD5X2M7Q0000000000000000"
#: What commands decide by: in these fields free text would end them before they print anything.
DECISIVE: dict[str, Any] = {
    "id": ID, "state": "failed", "desired": "run", "next_cursor": None, "revoked_at": None, "data_removal": None, "archived_at": None,
    "pending": None, "kind": "exception", "name": "gpt", "complete": True, "job_id": ID, "user_id": ID, "key": "pk_new",
}  # fmt: skip
DEEPEST = 12


@cache
def _document() -> Any:
    return json.loads(DOCUMENT.read_text())


@dataclass(frozen=True)
class TextEverywhere:
    """Answers every request with an example of its schema in which free texts are `text`."""

    text: str

    def install(self, coordinator: FakeCoordinator) -> None:
        coordinator.fallback = self.answer

    def answer(self, request: Request) -> Answer | None:
        path = request.path.removeprefix(API)
        for template, methods in _document()["paths"].items():
            pattern = re.sub(r"\{[^}]*\}", "[^/]+", template.removeprefix(API))
            operation = methods.get(request.method.lower())
            if operation and re.fullmatch(pattern, path):
                code, response = next((code, each) for code, each in operation["responses"].items() if code.startswith("2"))
                schema = response.get("content", {}).get("application/json", {}).get("schema")
                return Answer(int(code), None if schema is None else self.example(schema, ""))
        return None

    def example(self, schema: dict[str, Any], name: str, depth: int = 0) -> Any:
        if "$ref" in schema:
            schema = _document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if name in DECISIVE and "properties" not in schema and DECISIVE[name] in schema.get("enum", [DECISIVE[name]]):
            return DECISIVE[name]
        if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            kept = [each for each in choices if each.get("type") != "null"]
            return None if depth >= DEEPEST and len(kept) < len(choices) else self.example(kept[0], name, depth)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        return self._of_type(schema, name, depth)

    def _of_type(self, schema: dict[str, Any], name: str, depth: int) -> Any:
        match schema.get("type"):
            case "object":
                fields = schema.get("properties", {})
                made = {key: self.example(each, key, depth + 1) for key, each in fields.items()}
                extra = schema.get("additionalProperties")
                return made if fields or not isinstance(extra, dict) else {"a": self.example(extra, "", depth + 1)}
            case "array":
                return [] if depth >= DEEPEST else [self.example(schema["items"], "", depth + 1)] if "items" in schema else []
            case "integer":
                return max(1, schema.get("minimum", 1))
            case "number":
                return 1.5
            case "boolean":
                return False
            case "string":
                return MOMENT if schema.get("format") == "date-time" else self.text
        return self.text
