"""Jobs and experiments as users name them: by name, by id, or by the beginning of an id."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from paceline.cli.errors import ApiProblemError, UsageProblem
from paceline.cli.render.formats import age
from paceline.cli.render.output import note

ULID_LENGTH = 26
#: Shorter beginnings are common to all ids of a quarter of an hour.
SHORTEST_BEGINNING = 6
MOST_MATCHES = 200
#: Names that are offered in the place of one that is not there.
MOST_NEAR = 3


@dataclass(frozen=True)
class ReferenceKind:
    """A kind of things that users name: its noun, its list in the API, and the command that lists it."""

    noun: str
    path: str
    list_command: str
    by_name: str  # parameter of the list that finds a name
    everything: Mapping[str, str]  # parameters by which the list leaves nothing out


class ApiLists(Protocol):
    """The lists of the API: `RestClient`, of which names are looked up."""

    def pages(self, path: str, limit: int | None = None, **parameters: object) -> list[dict[str, Any]]:
        """Return the items of a list, at most `limit`."""
        ...


JOB = ReferenceKind("job", "/training/jobs", "paceline jobs", "name", {"archived": "include"})
EXPERIMENT = ReferenceKind("experiment", "/experiments", "paceline experiment list", "q", {})


def find_id(client: ApiLists, kind: ReferenceKind, reference: str) -> str:
    """Return the id of what is named. Of several of one name it is the newest that is not archived, and a
    note says so.

    Raises UsageProblem where several ids begin so, and ApiProblemError where nothing is named so."""
    if is_id(reference):
        return reference
    found = client.pages(kind.path, limit=MOST_MATCHES, **{kind.by_name: reference}, **kind.everything)
    named = sorted((each for each in found if each["name"] == reference), key=_is_archived)  # the newest stays first among its equals
    if named:
        if len(named) > 1:
            note(_several(kind, named))
        return str(named[0]["id"])
    begun = _begun(client, kind, reference) if len(reference) >= SHORTEST_BEGINNING else []
    if len(begun) > 1:
        raise UsageProblem(f"{len(begun)} ids of {kind.noun}s begin with {reference}", f"type more of it: {_listed(begun)}")
    if not begun:
        raise not_found(kind.noun, reference, kind.list_command, _names(client, kind))
    return str(begun[0]["id"])


def _begun(client: ApiLists, kind: ReferenceKind, reference: str) -> list[Any]:
    """Return those whose id begins so."""
    found = client.pages(kind.path, limit=MOST_MATCHES, q=reference, **kind.everything)
    return [each for each in found if each["id"].startswith(reference.upper())]


def _is_archived(each: Any) -> bool:
    return each.get("archived_at") is not None


def is_id(reference: str) -> bool:
    return len(reference) == ULID_LENGTH and reference.isalnum() and reference.isupper()


def _names(client: ApiLists, kind: ReferenceKind) -> list[str]:
    """Return the names of the newest ones."""
    return [str(each["name"]) for each in client.pages(kind.path, limit=MOST_MATCHES, **kind.everything)]


def near_names(reference: str, names: Iterable[str]) -> list[str]:
    """Return the names that may have been meant: that begin so, or are spelled nearly so."""
    by_lower = {name.lower(): name for name in names}
    wanted = reference.lower()
    begun = [name for name in by_lower if wanted and name.startswith(wanted)]
    near = dict.fromkeys(begun + difflib.get_close_matches(wanted, by_lower, MOST_NEAR))
    return [by_lower[name] for name in near][:MOST_NEAR]


def not_found(noun: str, reference: str, list_command: str, names: Iterable[str] = ()) -> ApiProblemError:
    """The problem that nothing of this noun has this name or id. `names`: those that there are, of which the nearest are offered."""
    document = {"code": f"{noun}_not_found", "detail": f"there is no {noun} with the id or name {reference!r}"}
    error = ApiProblemError(404, document, "")
    near = " or ".join(near_names(reference, names))
    error.hint = f"{f'did you mean {near}? ' if near else ''}'{list_command}' lists them"
    return error


def _several(kind: ReferenceKind, named: list[Any]) -> str:
    """Which of several of one name was taken, and how to name another one."""
    taken, *others = named
    which = "the newest that is not archived" if not _is_archived(taken) and any(map(_is_archived, others)) else "the newest"
    return f"note: {len(named)} {kind.noun}s are named {taken['name']}: taking {which}, {_described(taken)}. By id: {_listed(others)}"


def _listed(some: list[Any]) -> str:
    most = 5
    return ", ".join(map(_described, some[:most])) + (f" and {len(some) - most} more" if len(some) > most else "")


def _described(each: Any) -> str:
    known = [str(each["state"])] if "state" in each else []
    known += ["archived"] if _is_archived(each) else []
    known += [f"submitted {age(datetime.fromisoformat(each['created_at']))} ago"] if "created_at" in each else []
    return f"{each['id']} ({', '.join(known)})" if known else str(each["id"])
