"""The command line's types follow the API's document, as far as it reads it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from scripts.generate_cli_types import DOCUMENT, READ, TYPES, generated, tolerant

Schema = dict[str, Any]


@pytest.fixture
def document() -> Schema:
    found: Schema = json.loads(DOCUMENT.read_text())
    return found


def _fields(document: Schema, name: str) -> Schema:
    fields: Schema = document["components"]["schemas"][name]["properties"]
    return fields


def test_committed_types_are_what_the_document_gives(document: Schema) -> None:
    assert generated(document) == TYPES.read_text()


def test_a_new_field_is_in_the_types_and_may_be_missing(document: Schema) -> None:
    _fields(document, "Node")["rack"] = {"type": "string", "description": "where it stands"}
    document["components"]["schemas"]["Node"]["required"].append("rack")
    assert '    rack: str = ""\n    """where it stands"""\n' in generated(document)


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        ({"$ref": "#/components/schemas/JobState"}, {"type": "string", "default": ""}),
        ({"$ref": "#/components/schemas/JobSpec"}, {"default": None}),
        ({"$ref": "#/components/schemas/Reason"}, {"anyOf": [{"$ref": "#/components/schemas/Reason"}, {"type": "null"}], "default": None}),
        ({"type": "string", "enum": ["a"], "default": "a", "maxLength": 3}, {"type": "string", "default": "a"}),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "default": 0}),
        ({"type": "array", "items": {"$ref": "#/components/schemas/JobSpec"}}, {"type": "array", "items": {}, "default": []}),
        (
            {"type": "string", "format": "date-time"},
            {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
        ),
        (
            {"anyOf": [{"type": "number"}, {"type": "null"}]},
            {"anyOf": [{"anyOf": [{"type": "number"}, {"type": "null"}]}, {"type": "null"}], "default": None},
        ),
    ],
)
def test_a_field_is_read_without_what_may_change(document: Schema, schema: Schema, read: Schema) -> None:
    _fields(document, "Node")["rack"] = schema
    assert _fields(tolerant(document), "Node")["rack"] == read


def test_what_is_needed_keeps_no_default(document: Schema) -> None:
    schema = tolerant(document)["components"]["schemas"]["Rank"]
    assert [name for name in schema["properties"] if "default" not in schema["properties"][name]] == READ["Rank"].split()


@pytest.mark.parametrize("gone", ["state", None])
def test_a_name_that_the_document_lacks_is_an_error(document: Schema, gone: str | None) -> None:
    changed = copy.deepcopy(document)
    del (_fields(changed, "Rank") if gone else changed["components"]["schemas"])[gone or "Rank"]
    with pytest.raises(KeyError, match=gone or "Rank"):
        tolerant(changed)
