"""Requests drawn from the API's own document: each of an operation's parameters and fields with a value that its schema allows, at its edges first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

#: Most levels of a drawn document.
DEEPEST = 8
#: Of ten fields that may be left out, how many are.
LEFT_OUT = 0.5
TEXTS = (
    "a", "x1", "main", "default", "loss", "", " ", "é", "'\"", "%", "-1", "0", "1", "10", "2GiB", "1h30m", "1-8", "/data", "/data:/in:ro",
    "s3://bucket/prefix", "https://example.org", "example.org:8000", "task:make_task", "project.train", "zone=a", "--flag", "auto", "a@example.org",
    "HF_TOKEN", "PACELINE_SSH_KEY", "PACELINE_KUBERNETES_A", "SHA256:" + "a" * 43, "0" * 64, "\N{RIGHT-TO-LEFT OVERRIDE}a", "\N{GRINNING FACE}",
    "\0", "a\nb", "x" * 300, "x" * 5000, "2026-11-20T12:00:00Z", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00",
)  # fmt: skip
MOMENTS = ("2026-11-20T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-11-20T12:00:00+14:00")
WHOLE = (0, 1, 2, 3, -1, 10, 100, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, -(1 << 63))
NUMBERS = (0.0, 1.0, 0.5, -1.0, 1e-300, 1e300, 5e-324, 1e18)


@dataclass(frozen=True)
class DrawnRequest:
    method: str
    address: str
    headers: Mapping[str, str]
    content: bytes | None

    def __str__(self) -> str:
        return f"{self.method} {self.address} {dict(self.headers)} {(self.content or b'')[:2000].decode()}"


@dataclass(frozen=True)
class Operations:
    """All operations of a document. `known`: values of parameters of paths that exist, of which one is taken most of the time."""

    document: Any
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def drawn(self, each: int) -> Iterator[DrawnRequest]:
        """Yield `each` requests of every operation, in an order that leaves what deletes for the end. They are the same in every run."""
        found = [(method, path) for path, methods in self.document["paths"].items() for method in methods]
        for method, path in sorted(found, key=lambda one: (one[0] == "delete", one)):
            for number in range(each):
                yield self.request(method, path, Random(f"{method} {path} {number}"))

    def request(self, method: str, path: str, random: Random) -> DrawnRequest:
        draw = Draw(self.document, random)
        operation = self.document["paths"][path][method]
        query, headers = [], {}
        for parameter in operation.get("parameters", ()):
            name, place = parameter["name"], parameter["in"]
            if place == "path":
                path = path.replace("{" + name + "}", quote(self._of_path(name, parameter, draw), safe=""))
            elif parameter.get("required") or random.random() > LEFT_OUT:
                value = draw.value(parameter["schema"])
                if place == "query":
                    query += [
                        f"{quote(name)}={quote(_spelled(one))}"
                        for one in (value if isinstance(value, list) else [value])
                        if one is not None
                    ]
                elif value is not None:
                    headers[name] = re.sub(r"[^ -~]", "?", _spelled(value))
        kind, body = self._body(operation, draw)
        headers |= {"Content-Type": kind} if body is not None else {}
        return DrawnRequest(method.upper(), path + ("?" + "&".join(query) if query else ""), headers, body)

    def _of_path(self, name: str, parameter: Any, draw: Draw) -> str:
        known = self.known.get(name, ())
        if known and draw.random.random() < 0.8:
            return draw.random.choice(known)
        return _spelled(draw.value(parameter["schema"])) or "a"

    def _body(self, operation: Any, draw: Draw) -> tuple[str, bytes | None]:
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            if kind == "application/json":
                return kind, json.dumps(draw.value(content["schema"])).encode()
            return kind, draw.random.randbytes(1000)
        return "", None


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Draw:
    """Values of schemas, by one source of chance."""

    document: Any
    random: Random

    def value(self, schema: Any, depth: int = 0) -> Any:
        if "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            flat = [one for one in choices if one.get("type") not in ("object", "array", None)]
            return self.value(self.random.choice(flat if flat and depth >= DEEPEST else choices), depth + 1)
        return self._of_type(schema, depth)

    def _of_type(self, schema: Any, depth: int) -> Any:
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                least, most = schema.get("minItems", 0), min(schema.get("maxItems", 3), 3)
                count = least if depth >= DEEPEST else self.random.randint(least, max(least, most))
                return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "integer":
                return self.random.choice(_within(schema, WHOLE))
            case "number":
                return self.random.choice(_within(schema, NUMBERS))
            case "boolean":
                return self.random.random() < 0.5
            case "null":
                return None
        return self._text(schema)

    def _object(self, schema: Any, depth: int) -> dict[str, Any]:
        required, made = set(schema.get("required", ())), {}
        for name, one in schema.get("properties", {}).items():
            if name in required or (depth < DEEPEST and self.random.random() > LEFT_OUT):
                made[name] = self.value(one, depth + 1)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and depth < DEEPEST:
            made |= {self._text(schema.get("propertyNames", {})): self.value(extra, depth + 1) for _ in range(self.random.randint(0, 2))}
        return made

    def _text(self, schema: Any) -> str:
        if schema.get("format") == "date-time":
            return self.random.choice(MOMENTS)
        least, most, pattern = schema.get("minLength", 0), schema.get("maxLength", 1 << 20), schema.get("pattern", "")
        fits = [text for text in (*TEXTS, *schema.get("examples", ())) if least <= len(text) <= most and re.search(pattern, text)]
        return self.random.choice(fits or TEXTS)


def _within(schema: Any, values: Sequence[Any]) -> list[Any]:
    """The values that the schema allows, and its own limits."""
    limits = [schema[name] for name in ("minimum", "maximum") if name in schema]
    least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", schema.get("exclusiveMaximum"))
    fits = [value for value in values if (least is None or value >= least) and (most is None or value <= most)]
    return [*fits, *limits] or [values[1]]
