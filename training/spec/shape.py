"""Where in a document one of pydantic's locations leads, and what may stand there: read from the models themselves. Pure."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paceline.training.schema.parts import Part

#: Each tells the variants of a union apart: the parts of a job, the providers of a pool.
TAGS = ("kind", "type")
#: Characters that are shown of a name in a path: variables and labels have names of any length.
LONGEST_STEP = 64


#: What people write whole, as it is called in a sentence.
DOCUMENTS = {"JobSpec": "a job spec", "ExperimentSpec": "an experiment", "PoolSpec": "a pool"}


@dataclass(frozen=True)
class FieldPath:
    """`path`: names and numbers as in the document, without the tags of unions. `annotation`: the type there; None: not known."""

    root: type[BaseModel]
    path: tuple[str, ...]
    annotation: Any
    above: FieldPath | None = None

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else ""

    @property
    def parent(self) -> FieldPath:
        return self.above or self

    @property
    def spoken(self) -> str:
        """As it is called in a sentence."""
        if not self.path:
            name = self.root.__name__
            return DOCUMENTS.get(name) or (name.lower() if issubclass(self.root, Part) else "this request")
        tag = _tag_of(self.annotation)
        return ".".join(each[:LONGEST_STEP] for each in self.path) + (f" ({_tag_field(self.annotation)} {tag})" if tag else "")


def place_of(model: type[BaseModel], location: Sequence[int | str]) -> FieldPath:
    """Translate a location of pydantic's into a field of a document that `model` describes. Its type is None where it leads past known
    fields."""
    place = FieldPath(model, (), model)
    for part in location:
        variant = _variant(place.annotation, part)
        if variant is not None:
            place = FieldPath(model, place.path, variant, place.above)
        elif part != "[key]":
            place = FieldPath(model, (*place.path, str(part)), _inside(place.annotation, part), place)
    return place


def fields_of(annotation: Any) -> Mapping[str, FieldInfo]:
    """The fields of a part, or of all variants of a union of parts, in their order."""
    found: dict[str, FieldInfo] = {}
    for each in _alternatives(annotation):
        if _is_model(each):
            found |= each.model_fields
    return found


def kinds_of(annotation: Any) -> tuple[str, ...]:
    """The tags of a union's variants; none: it is no such union."""
    alternatives = [each for each in _alternatives(annotation) if _is_model(each)]
    tags = [tag for each in alternatives if (tag := _tag_of(each)) is not None]
    return tuple(tags) if len(alternatives) > 1 and len(tags) == len(alternatives) else ()


def tag_of_kinds(annotation: Any) -> str:
    """The name of the field whose value tells the variants of a union apart."""
    return next((name for each in _alternatives(annotation) if (name := _tag_field(each))), TAGS[0])


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The members of a union, of a union in it, and so on; without what `Annotated` adds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _alternatives(each)
    elif annotation not in (None, type(None)):
        yield annotation


def _variant(annotation: Any, part: int | str) -> Any:
    """The member of a union whose tag, or name, is `part`; None: that is no step to a member."""
    members = list(_alternatives(annotation))
    if len(members) < 2:
        return None
    return next((each for each in members if part in (_tag_of(each), getattr(each, "__name__", None))), None)


def _inside(annotation: Any, part: int | str) -> Any:
    for each in _alternatives(annotation):
        if _is_model(each) and part in each.model_fields:
            return each.model_fields[str(part)].annotation
        arguments = get_args(each)
        if get_origin(each) is tuple and isinstance(part, int):
            return arguments[0] if arguments[-1] is Ellipsis else dict(enumerate(arguments)).get(part)
        if get_origin(each) in (list, dict):
            return arguments[-1]
    return None


def _tag_field(annotation: Any) -> str | None:
    fields = annotation.model_fields if _is_model(annotation) else {}
    return next((name for name in TAGS if name in fields and get_origin(fields[name].annotation) is Literal), None)


def _tag_of(annotation: Any) -> str | None:
    name = _tag_field(annotation)
    tags = get_args(annotation.model_fields[name].annotation) if name else ()
    return str(tags[0]) if len(tags) == 1 else None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
