"""The packages of a job: lines of a requirements file, checked one by one and written in one way. Pure.

A line is a requirement of PEP 508, or one of the options below. What only the submitting machine could find (`-e .`, `./wheel.whl`) is refused, and so
is a password in an address: a spec is read by everybody who may see the job. `-r FILE` stands until the file was read, at submit (`expand`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from paceline.training.schema.parts import Text, inconsistent

MOST_REQUIREMENTS, LONGEST_REQUIREMENT = 1000, 2000
MOST_FILES = 20
MOST_FILE_BYTES = 1 << 20
#: Taken as they are, with one address behind them.
OPTIONS_WITH_ADDRESS = ("--index-url", "--extra-index-url", "--find-links")
_SHORT = {"-i": "--index-url", "-f": "--find-links"}
_FILE = re.compile(r"^(?:-r|--requirement)(?:\s+|=|(?<=-r))(\S.*)\Z")
#: The first of these ends an option's name; its value may have a `=` too.
_OPTION_END = re.compile(r"\s*=\s*|\s+")
_COMMENT = re.compile(r"(^|\s)#.*\Z", re.DOTALL)
_LOCAL = re.compile(r"^(\.{1,2}/|/|~|file:)|@\s*(file:|\.{0,2}/)|\.(whl|tar\.gz|zip)\Z")
_WAY_OUT = (
    "send the folder with `paceline submit --workdir`, and name in environment.variables.PYTHONPATH where its packages are, as `.` or `src`"
)


def normalized(line: str) -> str:
    """A line of a requirements file in the one way in which it is stored. Raises PydanticCustomError."""
    text = line.strip()
    if (file := _FILE.match(text)) is not None:
        return f"-r {file.group(1).strip()}"
    if text.startswith("-"):
        return _option(text)
    if "--hash" in text:
        raise inconsistent("{line} has a --hash, which is not checked on the nodes; leave it out", line=text)
    if _LOCAL.search(text) and "://" not in text.replace("file://", ""):
        raise inconsistent("{line} is a path, which nodes cannot read; {out}", line=text, out=_WAY_OUT)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        why = str(error).splitlines()[0].rstrip(":")
        raise inconsistent(
            "{line} is no requirement ({why}); write a package and its versions, as tiktoken>=0.9",
            line=text,
            why=why,
        ) from None
    _refuse_password(requirement.url or "")
    requirement.name = canonicalize_name(requirement.name)
    return str(requirement)


def _option(text: str) -> str:
    name, _, value = _OPTION_END.sub(" ", text, count=1).partition(" ")
    name = _SHORT.get(name, name)
    if name in ("-e", "--editable"):
        raise inconsistent("{line} is a folder of this machine, which nodes cannot read; {out}", line=text, out=_WAY_OUT)
    if name == "--pre" and not value:
        return name
    if name not in OPTIONS_WITH_ADDRESS:
        known = ", ".join((*OPTIONS_WITH_ADDRESS, "--pre"))
        raise inconsistent("{line} is an option that is not known here; use {known}", line=text, known=known)
    if urlsplit(value).scheme not in ("http", "https"):
        raise inconsistent("{line} has to name an address that nodes can reach, as https://host/simple", line=text)
    _refuse_password(value)
    return f"{name} {value}"


def _refuse_password(url: str) -> None:
    parts = urlsplit(url)
    if parts.password is not None or (parts.username is not None and not parts.scheme.endswith("ssh")):
        host = parts.hostname
        raise inconsistent(
            "the address at {host} has a password or a name in it, which everybody who sees the job could read; keep it on the nodes, in "
            "~/.netrc or the agent's UV_INDEX_* variables",
            host=host,
        )


def _as_lines(given: Any) -> Any:
    """A text is the name of a file, as `-r FILE` is among the lines."""
    return (f"-r {given}",) if isinstance(given, str) else given


RequirementLine = Annotated[Text, Field(min_length=1, max_length=LONGEST_REQUIREMENT), AfterValidator(normalized)]
RequirementLines = Annotated[tuple[RequirementLine, ...], BeforeValidator(_as_lines)]


def files_named(lines: tuple[str, ...]) -> list[str]:
    """The files that these lines name and nobody has read yet."""
    return [line.removeprefix("-r ") for line in lines if line.startswith("-r ")]


def expand(lines: tuple[str, ...], read: Callable[[str], str]) -> tuple[str, ...]:
    """The lines with those of each file in the place of its `-r FILE`, files within files too. `read` gets a path below the job's folder.

    Raises PydanticCustomError for what cannot be a requirement, naming file and line, and whatever `read` raises."""
    found = list(dict.fromkeys(_expanded(lines, read, "", [])))
    if len(found) > MOST_REQUIREMENTS:
        raise inconsistent(
            "environment.requirements: there are {count} lines; the limit is {most}", count=len(found), most=MOST_REQUIREMENTS
        )
    return tuple(found)


def _expanded(lines: tuple[str, ...], read: Callable[[str], str], folder: str, seen: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("-r "):
            yield line
            continue
        path = posixpath.normpath(posixpath.join(folder, line.removeprefix("-r ")))
        if path.startswith(("../", "/")):
            raise inconsistent("environment.requirements: {path} lies outside of the job's folder; copy it into the folder", path=path)
        if path in seen:
            continue
        seen.append(path)
        if len(seen) > MOST_FILES:
            raise inconsistent("environment.requirements: more than {most} files name each other", most=MOST_FILES)
        yield from _expanded(tuple(_lines_of(path, read(path))), read, posixpath.dirname(path), seen)


def _lines_of(path: str, text: str) -> Iterator[str]:
    start, pending = 1, ""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        start = start if pending else number
        pending += _COMMENT.sub("", line)
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        if pending.strip():
            yield _normalized_in(path, start, pending)
        pending = ""
    if pending.strip():
        yield _normalized_in(path, start, pending)


def _normalized_in(path: str, number: int, line: str) -> str:
    try:
        return normalized(line)
    except PydanticCustomError as error:
        raise inconsistent("{path} line {number}: {why}", path=path, number=number, why=error.message()) from None
