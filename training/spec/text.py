"""Spec documents as text: YAML, of which JSON is a part. The command line and the coordinator both read them here, with one meaning.

Whoever wrote the text may be careless or hostile, so what a job spec has no use for is refused with its line: anchors and aliases (a few hundred
bytes of them can stand for gigabytes), tags, and whatever is over the limits below.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.composer import Composer

#: Of a document. The longest of the examples has 2 KiB.
MAX_SPEC_BYTES = 64 << 10
#: Mappings and lists inside each other. A spec has 4; the rest is room for model.config.
MAX_DEPTH = 32
#: Digits of a whole number: as many as 64 bits have. Without a limit reading and writing one takes quadratic time.
MAX_DIGITS = 20
_CORE = "tag:yaml.org,2002:"
_TAGS = frozenset(_CORE + name for name in ("str", "int", "float", "bool", "null", "seq", "map"))
#: Plain words that YAML 1.1 reads as something that JSON does not have: dates, merge keys and default values. Here they are text.
_AS_TEXT = frozenset(_CORE + name for name in ("timestamp", "merge", "value"))
#: Numbers are those of YAML 1.2 and JSON, with digits in groups as in 1_000. YAML 1.1 takes 1e-3 for text, 010 for eight, and 12:30 for 750.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?(?:(?:\d[\d_]*\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)


#: Fields whose values are texts that a program reads: `0.10`, `1e4` and `yes` stay as they are typed. `*` is any key or place.
_AS_TYPED = (("script", "args", "*"), ("script", "command", "*"), ("environment", "variables", "*"))


class SpecTextError(yaml.YAMLError):
    """The text is no document that a job spec can be read from."""


class _Rules:
    """What is refused, for a loader of PyYAML that composes in Python."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        event: Any = self.peek_event()  # type: ignore[attr-defined]
        if getattr(event, "anchor", None) is not None:
            sign = "alias *" if isinstance(event, yaml.AliasEvent) else "anchor &"
            raise SpecTextError(
                f"line {_line(event)} has the {sign}{event.anchor}; anchors and aliases are not read here: write the value out"
            )
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SpecTextError(f"line {_line(event)} is nested deeper than {MAX_DEPTH} levels; a job spec needs no more than 4")
        node: yaml.Node = super().compose_node(parent, index)  # type: ignore[misc]
        self._depth -= 1
        if node.tag not in _TAGS:
            raise SpecTextError(
                f"line {_line(node)} has the tag {node.tag}; a job spec has text, numbers, true, false, null, lists and mappings"
            )
        if node.tag == _CORE + "int" and len(node.value) > MAX_DIGITS:
            raise SpecTextError(f"the number on line {_line(node)} has {len(node.value)} digits; at most {MAX_DIGITS} are read")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuses a key that is there twice, where PyYAML silently keeps the last one."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)  # type: ignore[misc]
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise SpecTextError(f"a key on line {_line(key)} is a list or a mapping; keys are words")
            name, line = (key.tag, key.value), _line(key)
            if name in lines:
                raise SpecTextError(f"the key {key.value!r} on line {line} is there already, on line {lines[name]}; keep one of them")
            lines[name] = line
        return node


def _keep_spelling(node: yaml.Node, place: tuple[str, ...]) -> None:
    """Make text of the scalars of `_AS_TYPED` below `node`, which stands at `place`; null stays null."""
    wanted = [path for path in _AS_TYPED if all(step in ("*", name) for step, name in zip(path, place, strict=False))]
    if not wanted:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _keep_spelling(value, (*place, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, part in enumerate(node.value):
            _keep_spelling(part, (*place, str(number)))
    elif any(len(path) == len(place) for path in wanted) and node.tag != _CORE + "null":
        node.tag = _CORE + "str"


def _line(place: Any) -> int:
    return int(place.start_mark.line) + 1


def _loader() -> Any:
    """libyaml's scanner and parser where PyYAML was built with them, which take a tenth of the time."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    bases = (_Rules, base) if base is yaml.SafeLoader else (_Rules, Composer, base)
    kind: Any = type("_Loader", bases, {"__init__": base.__init__})
    kind.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _AS_TEXT | {_CORE + "int", _CORE + "float"}]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    kind.add_implicit_resolver(_CORE + "int", _INT, list("-+0123456789"))
    kind.add_implicit_resolver(_CORE + "float", _FLOAT, list("-+.0123456789"))
    return kind


_Loader = _loader()


def load(text: str | bytes, *, at: tuple[str, ...] = ()) -> Any:
    """The document as plain data, never objects. `at`: the field whose value the text is, where it is not a whole spec.

    Raises `yaml.YAMLError` where the text is no YAML, is longer than `MAX_SPEC_BYTES` or has what no spec needs."""
    size = len(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    if size > MAX_SPEC_BYTES:
        raise SpecTextError(f"the document has {size} bytes; a job spec may have {MAX_SPEC_BYTES}")
    try:
        return _read(_Loader(text), at)
    except (ValueError, RecursionError, OverflowError) as error:
        raise SpecTextError(f"a value cannot be read: {error}") from None


def _read(loader: Any, at: tuple[str, ...]) -> Any:
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _keep_spelling(node, at)
        return loader.construct_document(node)
    finally:
        loader.dispose()
