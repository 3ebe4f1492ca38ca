"""Specs of jobs and experiments from files: YAML (JSON is YAML), with `--set a.b=c` applied on top. The coordinator validates the result."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.cli.errors import ApiProblemError, CliError, SpecFileError, UsageProblem
from paceline.cli.repeated_options import by_name
from paceline.training.spec.changes import NoFieldsError, with_field
from paceline.training.spec.text import MAX_SPEC_BYTES, SpecTextError, load, read

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

Lines = Mapping[tuple[str, ...], int]

SET_SYNTAX = "write --set part.field=value, for example --set training.steps=200"
#: Sections of an experiment whose keys are paths: `--set grid.optimizer.lr=[1, 2]` sets the key `optimizer.lr` of `grid`.
KEYED_BY_PATH = ("grid", "search.parameters")


def read_spec(path: str, changes: list[str], keyed_by_path: Sequence[str] = ()) -> dict[str, Any]:
    """The spec in the file at `path` ('-': stdin) with the changes applied. `keyed_by_path`: its sections whose keys are paths."""
    return _read_located(path, changes, keyed_by_path)[0]


class SpecReader:
    """Reads the spec of a command, and knows the lines of its fields."""

    def __init__(self) -> None:
        self.lines: Lines = {}

    def read(self, path: str, changes: list[str], keyed_by_path: Sequence[str] = ()) -> dict[str, Any]:
        """The spec as `read_spec` returns it."""
        spec, self.lines = _read_located(path, changes, keyed_by_path)
        return spec

    def located(self, error: ApiProblemError) -> ApiProblemError:
        """Add the lines of the fields that the coordinator refused, or of the nearest ones above them. Returns the error itself."""
        for field in error.fields:
            place = steps_of(str(field.get("pointer") or ""))
            lines = (self.lines[place[:length]] for length in range(len(place), 0, -1) if place[:length] in self.lines)
            field["line"] = next(lines, None)
        return error


@contextlib.contextmanager
def whole_refusals(client: RestClient, plan: str) -> Iterator[SpecReader]:
    """Tell everything that is wrong with a spec at once, each with its line. `plan`: the endpoint that says what is wrong and changes nothing:
    it is asked about what is left of a text that is no spec."""
    reader = SpecReader()
    try:
        yield reader
    except SpecFileError as error:
        if not isinstance(error.rest, dict):
            raise
        reader.lines = error.lines_of_rest
        with contextlib.suppress(CliError):  # no coordinator, no key: what is known here is told alone
            try:
                client.create(plan, error.rest)
            except ApiProblemError as refused:
                error.add(reader.located(refused).fields)
        raise
    except ApiProblemError as error:
        raise reader.located(error) from error


def steps_of(pointer: str) -> tuple[str, ...]:
    """The names in a JSON pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _read_located(path: str, changes: list[str], keyed_by_path: Sequence[str]) -> tuple[dict[str, Any], Lines]:
    shown = _shown(path)
    try:
        text = _read_bounded(path).decode("utf-8")
    except OSError as error:
        raise UsageProblem(f"{shown} cannot be read: {error.strerror}", "the examples folder has specs to start from") from error
    except UnicodeDecodeError as error:
        line, wrong = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise UsageProblem(f"{shown} is no text in UTF-8: line {line} has the byte 0x{wrong:02x}", "save it as UTF-8") from error
    spec, lines = _parse_located(text, path)
    spec = with_changes(spec, changes, keyed_by_path)
    _require_finite(spec, path, ())
    return spec, lines


def _read_bounded(path: str) -> bytes:
    """What the coordinator would take of a file, and no more: a device or a pipe may never end."""
    is_stdin = path == "-"
    with open(sys.stdin.fileno() if is_stdin else path, "rb", closefd=not is_stdin) as file:
        text = file.read(MAX_SPEC_BYTES + 1)
    if len(text) > MAX_SPEC_BYTES:
        raise UsageProblem(
            f"{_shown(path)} is longer than {MAX_SPEC_BYTES:,} bytes, the most that a spec may have", "is it the right file?"
        )
    return text


def parse_spec(text: str, path: str) -> dict[str, Any]:
    """The spec in a text; `path` is what messages call it."""
    return _parse_located(text, path)[0]


def _parse_located(text: str, path: str) -> tuple[dict[str, Any], Lines]:
    shown = _shown(path)
    try:
        found = read(text)
    except SpecTextError as error:
        raise SpecFileError(f"{shown} cannot be read as YAML: {error}", error) from error
    document = found.value
    if document is None:
        raise UsageProblem(f"{shown} is empty", "the examples folder has specs to start from")
    if not isinstance(document, dict):
        raise UsageProblem(f"{shown} holds {_WORDS.get(type(document), 'one value')}, not fields with values, such as 'name: gpt'")
    spec: dict[str, Any] = document
    _require_finite(spec, path, ())
    return spec, found.lines


_WORDS: dict[type, str] = {list: "a list", str: "one text", int: "one number", float: "one number", bool: "one true or false"}


def _shown(path: str) -> str:
    return "stdin" if path == "-" else path


def with_changes(document: dict[str, Any], changes: Sequence[str], keyed_by_path: Sequence[str] = ()) -> dict[str, Any]:
    """A copy of `document` with each change applied. Raises UsageProblem, also where a field is to have two values."""
    by_name("--set", ((path, text) for path, _, text in (change.partition("=") for change in changes)), "keep one of them")
    for change in changes:
        document = with_change(document, change, keyed_by_path)
    return document


def with_change(document: dict[str, Any], change: str, keyed_by_path: Sequence[str] = ()) -> dict[str, Any]:
    """A copy of `document` with one `a.b=c` applied; the value is YAML, so 3, true, null and [1, 2] keep their types."""
    path, equals, text = change.partition("=")
    if not equals or not all(path.split(".")):
        raise UsageProblem(f"--set {change!r} has no field or no '='", SET_SYNTAX)
    keys = _keys(path, keyed_by_path)
    try:
        value = load(text, at=tuple(keys))
    except SpecTextError as error:
        raise UsageProblem(f"--set {path}: {text!r} is not a YAML value: {error}", SET_SYNTAX) from error
    try:
        return with_field(document, keys, value)
    except NoFieldsError as error:
        raise UsageProblem(f"--set {path}: {error}", SET_SYNTAX) from None


def _keys(path: str, keyed_by_path: Sequence[str]) -> list[str]:
    section = next((each for each in keyed_by_path if path.startswith(f"{each}.")), None)
    return path.split(".") if section is None else [*section.split("."), path.removeprefix(f"{section}.")]


def _require_finite(value: Any, path: str, place: tuple[str, ...]) -> None:
    """Refuse NaN and infinities, which JSON, in which a spec travels, does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageProblem(f"{_shown(path)}: {'.'.join(place)} is {value}; write a finite number")
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        _require_finite(part, path, (*place, str(name)))
