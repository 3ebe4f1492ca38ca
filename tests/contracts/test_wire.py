"""What goes over a wire or into a file that another version reads: field names, tags and types, whatever the classes are called.

A change here is a change of the protocol: agents, spawners and ranks of the version before have to understand it.
PACELINE_WRITE_CONTRACTS=1 writes it down.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.cluster import exec_frames, protocol
from paceline.cluster.agent import spawner_link
from paceline.monitoring import points
from paceline.training import link

KEPT = Path(__file__).with_name("wire.json")
MODULES = (protocol, exec_frames, spawner_link, link, points)


def described(kind: type) -> Any:
    """The JSON schema of a type, without the names of classes: references are put in place of what they name."""
    schema = msgspec.json.schema(kind)
    parts = schema.pop("$defs", {})

    def put_in_place(node: Any, above: tuple[str, ...] = ()) -> Any:
        match node:
            case {"$ref": str(name)}:
                key = name.rpartition("/")[2]
                return "itself" if key in above else put_in_place(parts[key], (*above, key))
            case {"anyOf": list(choices), **rest} if "discriminator" in rest:
                return {"anyOf": sorted((put_in_place(choice, above) for choice in choices), key=json.dumps)}
            case dict():
                return {
                    key: put_in_place(value, above) for key, value in node.items() if key not in ("title", "description", "discriminator")
                }
            case list():
                return [put_in_place(each, above) for each in node]
        return node

    return put_in_place(schema)


def contracts() -> dict[str, Any]:
    """By module and the name of the type's fields, so that a class may be renamed and a field may not."""
    found: dict[str, Any] = {}
    for module in MODULES:
        kinds = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
        ]
        found[module.__name__] = sorted((described(kind) for kind in kinds), key=json.dumps)
    return found


def test_the_wire_is_what_it_was() -> None:
    now = json.dumps(contracts(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("PACELINE_WRITE_CONTRACTS"):
        KEPT.write_text(now)
    assert KEPT.read_text() == now


def test_a_renamed_field_shows_and_a_renamed_class_does_not() -> None:
    before = msgspec.defstruct("Before", [("step", int)])
    assert described(before) == described(msgspec.defstruct("After", [("step", int)]))
    assert described(before) != described(msgspec.defstruct("Before", [("steps", int)]))


@pytest.mark.parametrize("module", MODULES)
def test_every_message_has_a_tag_of_its_own(module: Any) -> None:
    tags = [kind.__struct_config__.tag for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    assert all(tag is None or (isinstance(tag, str) and tag == tag.lower()) for tag in tags)
