"""The page of the job spec, from its JSON schema: every field with its type, default, limits and meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paceline.training.spec.job import JobSpec
from scripts.docs_site.reference.markdown import code, sentence, table

Schema = Mapping[str, Any]

OPENING = """# Job spec

A job is one YAML or JSON document. Unknown fields are refused, with the name that was probably meant. `paceline plan FILE` checks one without
submitting it. The same schema as JSON is at `/api/v1/training/spec-schema`.

"""
#: Keys of a schema that list its alternatives.
WAYS = ("anyOf", "oneOf", "allOf")
HEAD = ("Field", "Type", "Default", "Meaning")


def page() -> str:
    schema = JobSpec.model_json_schema()
    definitions: Mapping[str, Schema] = schema["$defs"]
    plain = [(name, field) for name, field in schema["properties"].items() if not parts(field, definitions)]
    sections = "".join(section(name, field, definitions) for name, field in schema["properties"].items())
    return OPENING + "## The document itself\n\n" + rows(plain, "", schema) + sections


def section(name: str, field: Schema, definitions: Mapping[str, Schema]) -> str:
    """Return the section of a field that is a document of its own; empty for a plain one."""
    found = parts(field, definitions)
    if not found:
        return ""
    told = sentence(field.get("description", ""))
    head = f"## {name}\n\n{told}\n\n" if told else f"## {name}\n\n"
    bodies = (body(each, name, is_one_of_several=len(found) > 1) for each in found)
    return head + "".join(bodies)


def body(schema: Schema, name: str, *, is_one_of_several: bool) -> str:
    kind = schema["properties"].get("kind", {}).get("const")
    head = f"### {name}, kind {kind}\n\n" if is_one_of_several and kind else ""
    told = schema.get("description", "")
    inside = f"{name}.{kind}" if is_one_of_several and kind else name
    return head + (f"{told}\n\n" if told else "") + rows(schema["properties"].items(), f"{name}.", schema, inside)


def rows(fields: Any, prefix: str, schema: Schema, part: str = "") -> str:
    """Return the table of fields. `part`, of several kinds with the kind, begins the anchor of each row: the dashboard's form leads there."""
    required = set(schema.get("required", ()))
    return table(
        HEAD,
        [
            (
                anchor(part, name) + code(f"{prefix}{name}"),
                type_of(field),
                "required" if name in required else default(field),
                meaning(field),
            )
            for name, field in fields
            if "const" not in field or name == "kind"
        ],
    )


def anchor(part: str, name: str) -> str:
    return f'<a id="field-{part}{"." if part else ""}{name}"></a>'


def parts(field: Schema, definitions: Mapping[str, Schema]) -> list[Schema]:
    """Return the documents that a field may hold; none for a number, a text, a list."""
    if "$ref" in field:
        return parts(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "properties" in field:
        return [field]
    return [found for way in WAYS for each in field.get(way, ()) for found in parts(each, definitions)]


def default(field: Schema) -> str:
    value = field.get("default")
    return "" if value is None else code(value if isinstance(value, str) else json.dumps(value))


def type_of(field: Schema) -> str:
    """Return the type in words, with its limits."""
    ways = [each for each in (*field.get("anyOf", ()), *field.get("oneOf", ())) if each.get("type") != "null"]
    if ways:
        return " or ".join(dict.fromkeys(type_of(each) for each in ways))
    if "enum" in field:
        return ", ".join(code(str(each)) for each in field["enum"])
    if "const" in field:
        return code(str(field["const"]))
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    name = {"string": "text", "array": "list", "object": "mapping", "boolean": "true or false"}.get(
        field.get("type", ""), field.get("type", "any")
    )
    return f"{name}{limits(field)}"


def limits(field: Schema) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    above, below = field.get("exclusiveMinimum"), field.get("exclusiveMaximum")
    said = [
        f"at least {least}" if least is not None else "",
        f"above {above}" if above is not None else "",
        f"at most {most}" if most is not None else "",
        f"below {below}" if below is not None else "",
    ]
    found = ", ".join(filter(None, said))
    return f", {found}" if found else ""


def meaning(field: Schema) -> str:
    return sentence(field.get("description", ""))
