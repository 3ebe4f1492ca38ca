"""Spec documents as text: YAML, of which JSON is a part. The command line and the coordinator both read them here, with one meaning."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as the number that it is in YAML 1.2 and JSON, where YAML 1.1 takes it for a string, and refuses a key that is there
    twice, where PyYAML silently keeps the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, str(key.value)), key.start_mark.line + 1
            if name in lines:
                raise yaml.YAMLError(f"the key {key.value!r} on line {line} is there already, on line {lines[name]}; keep one of them")
            lines[name] = line
        return node


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))


def load(text: str | bytes) -> Any:
    """Plain data, never objects; a `yaml.YAMLError` where the text is none."""
    return yaml.load(text, _Loader)
