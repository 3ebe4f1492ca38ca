"""Spec documents as text: YAML, of which JSON is a part. The command line and the coordinator both read them here, with one meaning.

Whoever wrote the text may be careless or hostile, so what a job spec has no use for is refused with its line: anchors and aliases (a few hundred
bytes of them can stand for gigabytes), tags, and whatever is over the limits below.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import yaml
from yaml.composer import Composer

from paceline.training.spec.syntax import Mistake, find_mistake
from paceline.training.spec.syntax_values import place_of

#: The longest document. The longest of the examples has 2 KiB.
MAX_SPEC_BYTES = 64 << 10
#: Mappings and lists inside each other. A spec has 4; the rest is room for model.config.
MAX_DEPTH = 32
#: Digits of a whole number: as many as 64 bits have. Without a limit reading and writing one takes quadratic time.
MAX_DIGITS = 20
#: Findings in one text that are told.
MOST_FINDINGS = 20
LONGEST_KEY = 64
_CORE = "tag:yaml.org,2002:"
_TAGS = frozenset(_CORE + name for name in ("str", "int", "float", "bool", "null", "seq", "map"))
#: Plain words that YAML 1.1 reads as something that JSON does not have: dates, merge keys and default values. Here they are text.
_AS_TEXT = frozenset(_CORE + name for name in ("timestamp", "merge", "value"))
#: Numbers are those of YAML 1.2 and JSON, with digits in groups as in 1_000. YAML 1.1 takes 1e-3 for text, 010 for eight, and 12:30 for 750.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?(?:(?:\d[\d_]*\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)


#: Fields whose values are texts that a program reads: `0.10`, `1e4` and `yes` stay as they are typed. `*` is any key or place. They are fields of a
#: job, of an experiment's base job, and command lines that an experiment varies; a variable that it varies may be a number to its analysis.
_AS_TYPED = (
    ("script", "args", "*"),
    ("script", "command", "*"),
    ("environment", "variables", "*"),
    ("job", "script", "args", "*"),
    ("job", "script", "command", "*"),
    ("job", "environment", "variables", "*"),
    ("grid", "script.args", "*", "*"),
    ("grid", "script.command", "*", "*"),
    ("zip", "*", "script.args", "*", "*"),
    ("zip", "*", "script.command", "*", "*"),
)
#: What no YAML text may have: control characters, and halves of characters.
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TextFinding(NamedTuple):
    """One thing in a text that no spec needs: where it stands, and what it is."""

    path: tuple[str, ...]
    line: int
    message: str


class SpecTextError(yaml.YAMLError):
    """The text is no document that a job spec can be read from. `findings`: what is wrong, each with its place, where that is known. `rest`: the
    document without it, with its `lines`; None: there is none."""

    def __init__(
        self, message: str, findings: Sequence[TextFinding] = (), rest: Any = None, lines: Mapping[tuple[str, ...], int] | None = None
    ) -> None:
        super().__init__(message)
        self.findings = tuple(findings)
        self.rest = rest
        self.lines = lines or {}


@dataclass(frozen=True)
class SpecText:
    """A document as plain data, with the line of every place in it."""

    value: Any
    lines: Mapping[tuple[str, ...], int]


class _Rules:
    """What is refused, for a loader of PyYAML that composes in Python. What is wrong is collected, and left out of the document."""

    _place: tuple[str, ...] = ()
    findings: list[TextFinding]

    def note(self, node: Any, message: str) -> None:
        """Collect a finding. Raises SpecTextError where there are too many."""
        self.findings.append(TextFinding(self._place, _line(node), message))
        if len(self.findings) >= MOST_FINDINGS:
            raise _refusal(self.findings, more=True)

    @cached_property
    def lines(self) -> dict[tuple[str, ...], int]:
        return {}

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        above, event = self._place, self.peek_event()  # type: ignore[attr-defined]
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        step = getattr(index, "value", index)
        self._place = above if parent is None or is_key else (*above, step if isinstance(step, str) else str(step))
        if len(self._place) >= MAX_DEPTH:
            self.findings.append(
                TextFinding(
                    (), _line(event), f"line {_line(event)} is nested deeper than {MAX_DEPTH} levels; a job spec needs no more than 4"
                )
            )
            raise _refusal(self.findings)
        self.lines.setdefault(self._place, _line(event))
        node = self._without_alias(event) or self._checked(super().compose_node(parent, index))  # type: ignore[misc]
        self._place = above
        return node

    def _without_alias(self, event: Any) -> yaml.Node | None:
        """Note an anchor or an alias. Returns what stands in the place of an alias; None: the node is to be composed, without its anchor."""
        anchor = getattr(event, "anchor", None)
        if anchor is None:
            return None
        is_alias = isinstance(event, yaml.AliasEvent)
        sign = "alias *" if is_alias else "anchor &"
        self.note(
            event,
            f"line {_line(event)} has the {sign}{anchor}; anchors and aliases are not read here: write the value out, or put a text that begins so in quotes",
        )
        if not is_alias:
            event.anchor = None
            return None
        self.get_event()  # type: ignore[attr-defined]
        return yaml.ScalarNode(_CORE + "null", "", event.start_mark, event.end_mark)

    def _checked(self, node: yaml.Node) -> yaml.Node:
        """Note a tag or a number that is not read. Such a value becomes null."""
        if node.tag not in _TAGS:
            self.note(
                node, f"line {_line(node)} has the tag {node.tag}; a job spec has text, numbers, true, false, null, lists and mappings"
            )
        elif node.tag == _CORE + "int" and len(node.value) > MAX_DIGITS:
            self.note(
                node,
                f"the number on line {_line(node)} has {len(node.value)} digits; at most {MAX_DIGITS} are read, and every limit of a job spec is "
                "below that",
            )
        elif node.tag == _CORE + "float" and _is_beyond(node.value):
            self.note(node, f"the number {node.value[:MAX_DIGITS]} on line {_line(node)} is above the largest one that is read, 1.8e308")
        else:
            return node
        return yaml.ScalarNode(_CORE + "null", "", node.start_mark, node.end_mark)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Makes texts of the keys, as in JSON: `on` and `5` too. Refuses a key that is there twice, where PyYAML silently keeps the last one."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)  # type: ignore[misc]
        first: dict[str, int] = {}
        kept = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.note(key, f"a key on line {_line(key)} is a list or a mapping; keys are words")
                continue
            key.tag = _CORE + "str"
            name, line = key.value, _line(key)
            if name in first:
                shown = name if len(name) <= LONGEST_KEY else f"{name[:LONGEST_KEY]}..."
                self.note(key, f"the key {shown!r} on line {line} is there already, on line {first[name]}; keep one of them")
                continue
            first[name] = line
            kept.append((key, value))
        node.value = kept
        return node


def _is_beyond(text: str) -> bool:
    """Whether digits spell a number that is larger than any floating-point number; `.inf` spells infinity itself."""
    return "inf" not in text.lower() and "nan" not in text.lower() and math.isinf(float(text.replace("_", "")))


def _refusal(
    findings: Sequence[TextFinding], rest: Any = None, lines: Mapping[tuple[str, ...], int] | None = None, *, more: bool = False
) -> SpecTextError:
    ordered = sorted(findings, key=lambda each: each.line)
    told = "; ".join(each.message for each in ordered)
    return SpecTextError(f"{told}; and perhaps more" if more else told, ordered, rest, lines)


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

    Raises SpecTextError where the text is no YAML, is longer than `MAX_SPEC_BYTES` or has what no spec needs: all of it is told at once."""
    return read(text, at=at).value


def read(text: str | bytes, *, at: tuple[str, ...] = ()) -> SpecText:
    """The document as `load` returns it, with the lines of its places."""
    size = len(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    if size > MAX_SPEC_BYTES:
        raise SpecTextError(f"the document has {size} bytes; a job spec may have {MAX_SPEC_BYTES}")
    found: list[TextFinding] = []
    try:
        return _read(text, at, found)
    except SpecTextError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        wrong = _explained(text, error)
        raise _refusal([*found, TextFinding((), wrong.line, str(wrong))]) from error


def _read(text: str | bytes, at: tuple[str, ...], found: list[TextFinding]) -> SpecText:
    """Read the text. `found` gets the findings, which count even where a fault ends the reading."""
    loader: Any = _Loader(text)
    loader.findings = found
    try:
        node = loader.get_single_node()
        if node is None:
            return SpecText(None, {})
        _keep_spelling(node, at)
        value = loader.construct_document(node)
        if found:
            raise _refusal(found, value, loader.lines)
        return SpecText(value, loader.lines)
    finally:
        loader.dispose()


def _explained(text: str | bytes, error: Exception) -> Mistake:
    """Why a text is no YAML, in words for people; those of the parser where there are no others."""
    try:
        words = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as wrong:
        before = wrong.object[: wrong.start].decode()
        return Mistake(*place_of(before, len(before)), f"the byte 0x{wrong.object[wrong.start]:02x} is no UTF-8; save the file as UTF-8")
    if found := _UNREADABLE.search(words):
        return Mistake(*place_of(words, found.start()), f"U+{ord(found[0]):04X} is no character that YAML may have; remove it")
    mark = getattr(error, "problem_mark", None)
    if mistake := find_mistake(words):
        return mistake
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return Mistake(1, 1, f"a value cannot be read: {error}")
    return Mistake(mark.line + 1, mark.column + 1, f"{error.problem}{f' ({error.context})' if error.context else ''}")


def json_findings(text: bytes) -> tuple[TextFinding, ...]:
    """The keys that a JSON text has twice, of which a reader would silently keep the last; none where it is no JSON, is nested too deeply, or has no such key."""
    try:
        json.loads(text, object_pairs_hook=_require_unique)
    except _KeyTwiceError as twice:
        try:
            load(text)
        except SpecTextError as error:
            return error.findings or (TextFinding((), 1, str(error)),)
        return (TextFinding((), 1, f"the key {str(twice)!r} is there twice; keep one of them"),)
    except (ValueError, RecursionError):  # whoever reads the text itself says so
        return ()
    return ()


class _KeyTwiceError(Exception):
    """A JSON object has a key twice."""


def _require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _KeyTwiceError(key)
        found[key] = value
    return found
