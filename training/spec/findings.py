"""Everything that is wrong with a job spec, found in one go: pydantic's errors, one for each reason, and those that only show without others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

#: The kind of a finding that stays as it is while another field is corrected: a field that no part has means nothing to the others.
_MEANINGLESS = "extra_forbidden"


def all_errors(model: type[BaseModel], document: Any, found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return `found`, the errors of pydantic for this document, and those that come to light once fields that no part has are left out."""
    errors = [*found]
    if found and all(each["type"] == _MEANINGLESS for each in found):
        try:
            model.model_validate(without(document, [place_in(document, each["loc"]) for each in found]))
        except ValidationError as error:
            errors += error.errors(include_url=False)
    return [reason for each in errors for reason in _reasons(each)]


def place_in(document: Any, location: Sequence[int | str]) -> tuple[int | str, ...]:
    """Where in a document a location of pydantic's leads, without the tags of unions, which the document does not contain."""
    here, place = document, list[int | str]()
    for part in location:
        if isinstance(here, list):
            if not isinstance(part, int) or part >= len(here):
                continue
            here = here[part]
        elif isinstance(here, Mapping) and part in here:
            here = here[part]
        else:
            continue
        place.append(part)
    return tuple(place)


def without(document: Any, places: Iterable[Sequence[int | str]]) -> Any:
    """Return a copy of a document of mappings and lists without the fields at these places; entries of lists stay."""
    gone = {tuple(map(str, place)) for place in places}

    def copy(here: Any, place: tuple[str, ...]) -> Any:
        if isinstance(here, Mapping):
            return {name: copy(value, (*place, str(name))) for name, value in here.items() if (*place, str(name)) not in gone}
        return [copy(value, (*place, str(at))) for at, value in enumerate(here)] if isinstance(here, list) else here

    return copy(document, ())


def _reasons(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The error itself, or one for each reason where it has several."""
    context = error.get("ctx") or {}
    for reason in context.get("reasons") or [None]:
        yield error if reason is None else {**error, "msg": reason, "ctx": {"reason": reason}}
