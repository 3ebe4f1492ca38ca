"""Words for what was typed wrong: those of the parser and of the API, as the command line says them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

#: The parser's words, which are pydantic's, and ours.
PARSER = (
    (r"Input should be a valid integer, unable to parse string as an integer", "it takes a whole number"),
    (r"Input should be a valid integer, got a number with a fractional part", "it takes a whole number"),
    (r"Input should be a valid number, unable to parse string as a number", "it takes a number"),
    (r"Input should be greater than or equal to (\S+)", r"it must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"it must be at most \1"),
    (r"Input should be (greater|less) than (\S+)", r"it must be \1 than \2"),
    (r"Value error, ", ""),
)


def of_parser(message: str) -> str:
    """The parser's message, in plain words."""
    for pattern, words in PARSER:
        message = re.sub(pattern, words, message)
    return message


def near_options(typed: str, options: Iterable[str]) -> list[str]:
    """Find the options that are meant by one that is not there: those that begin with it, else those that have it as a word or as the beginning of one,
    else those that are spelled like it."""
    known, word = list(options), typed.lstrip("-")
    for near in ([each for each in known if each.startswith(typed)], [each for each in known if f"-{word}" in each]):
        if near and word:
            return near
    return difflib.get_close_matches(typed, known)


def as_options(message: str, parameters: Iterable[str]) -> str:
    """A message of the API about query parameters, with the options that they come from: "rank='x'" becomes "--rank 'x'"."""
    for name in parameters:
        message = re.sub(rf"(?<![\w-]){re.escape(name)}(=|(?=:))", lambda found: _option(found[0]), message)
    return message


def _option(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"--{name.replace('_', '-')}{' ' if equals else ''}"
