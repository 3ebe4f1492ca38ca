"""What pydantic refuses, in the words of the document: which field, what it takes, and what may have been meant. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from paceline.training.schema.parallelism import AXIS_ALIASES
from paceline.training.schema.parts import shown
from paceline.training.schema.spelling import SpellingRule
from paceline.training.spec.job import JobSpec
from paceline.training.spec.shape import FieldPath, fields_of, kinds_of, place_of, tag_of_kinds

#: How alike two names must be for one to be offered in the place of the other, from 0 to 1.
LIKENESS = 0.6
#: Longer ones than any field has are compared with nothing, which would take long, and shown by their beginning.
LONGEST_NAME = 64
#: Letters of a name's beginning by which it is recognized.
SHORTEST_BEGINNING = 3
#: What is shown of lists and mappings, by the name of the field.
_EXAMPLES = {
    "args": "[--lr, 0.1]",
    "command": "[bash, run.sh]",
    "hidden": "[128, 128]",
    "betas": "[0.9, 0.95]",
    "ranks": "[0, 1]",
    "steps": "[100, 200]",
    "names": "['*.weight']",
    "variables": "{NCCL_DEBUG: INFO}",
    "labels": "{team: vision}",
    "tolerations": "[new, dedicated=vision]",
    "tolerate": "[nvidia.com/gpu]",
    "taints": "{dedicated: vision}",
    "config": "{model_type: llama}",
}
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_BOUNDS = {
    "greater_than": ("gt", "must be more than {}"),
    "greater_than_equal": ("ge", "must be {} or more"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be {} or less"),
}
_TEXT, _WHOLE, _NUMBER, _TRUTH = (
    "takes a text",
    "takes a whole number, without quotes and without leading zeros",
    "takes a number",
    "takes true or false",
)
_KINDS = {
    "string_type": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "takes a finite number",
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
}


#: What fields are called elsewhere.
_ALIASES = AXIS_ALIASES | {
    "learning_rate": "lr",
    "gpus": "slots",
    "env": "variables",
    "cwd": "working_directory",
    "workdir": "working_directory",
}


class _Refusal(NamedTuple):
    place: FieldPath
    value: Any  # what was given there
    context: Mapping[str, Any]


def in_words(error: Mapping[str, Any], model: type[BaseModel] = JobSpec) -> str | None:
    """One of `ValidationError.errors()` as a sentence that names the field; None: it is in our own words already, or of a kind that no spec
    meets. `model` is what was validated."""
    kind, refusal = str(error["type"]), _Refusal(place_of(model, error["loc"]), error.get("input"), error.get("ctx") or {})
    if (words := _WORDS.get(kind)) and (sentence := words(refusal)):
        return sentence
    if kind == "string_type":
        return f"{refusal.place.spoken} {_TEXT}; got {_got(refusal.value)}{_spelled(refusal.place.annotation)}"
    if kind in _KINDS:
        return f"{refusal.place.spoken} {_KINDS[kind]}; got {_got(refusal.value)}{_with_a_point(refusal.value)}"
    if kind in _BOUNDS:
        name, sentence = _BOUNDS[kind]
        return f"{refusal.place.spoken} {sentence.format(_number(refusal.context[name]))}; got {_got(refusal.value)}"
    return None


def _spelled(annotation: Any) -> str:
    """Say how a text of this type is written, where it is an entry that has a form; nothing for others."""
    spelling = next((each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, SpellingRule)), None)
    return f"; use {spelling.rule}; for example {spelling.example}" if spelling else ""


def _with_a_point(value: Any) -> str:
    """Say how a number with a decimal comma is written; nothing for anything else."""
    return f"; write {value.replace(',', '.')}" if isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value) else ""


def parameter_in_words(error: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a parameter of a request, which comes as a text, without its name. None: pydantic's own words will do."""
    kind, context, given = str(error["type"]), error.get("ctx") or {}, str(error.get("input"))
    got = given if given.lstrip("-").isdecimal() else shown(given)
    if kind in _BOUNDS:
        name, sentence = _BOUNDS[kind]
        return f"{sentence.format(_number(context[name]))}; got {got}"
    if kind in ("literal_error", "enum"):
        return f"takes {str(context['expected']).replace(chr(39), '')}; got {got}"
    if kind == "string_too_long":
        return f"takes at most {context['max_length']} characters; got {len(given)}"
    words = {"int_parsing": "takes a whole number", "missing": "is required"}.get(kind) or _KINDS.get(kind)
    return words if kind == "missing" or words is None else f"{words}; got {got}"


def told(error: ValidationError, most: int) -> str:
    """The first `most` findings in one line, each with its place."""
    wrong = error.errors(include_url=False)
    rest = f"; and {len(wrong) - most} more" if len(wrong) > most else ""
    return f"{'; '.join(map(_with_place, wrong[:most]))}{rest}"


def _with_place(error: Mapping[str, Any]) -> str:
    return in_words(error) or f"{place_of(JobSpec, error['loc']).spoken}: {error['msg']}"


def _unknown_field(refusal: _Refusal) -> str:
    part, name = refusal.place.parent, refusal.place.name
    known = fields_of(part.annotation)
    meant = _nearest(name, known) or _elsewhere(name, refusal.place.root)
    return f"`{name[:LONGEST_NAME]}` is not a field of {part.spoken}{_offer(meant)} It takes: {_listed(known)}"


def _elsewhere(name: str, root: type[BaseModel]) -> str | None:
    """The part of a spec that has this field."""
    wanted = {name, _ALIASES.get(name)}
    found = [f"{part}.{each}" for part, field in fields_of(root).items() for each in fields_of(field.annotation) if each in wanted]
    return found[0] if found else None


def _no_mapping(refusal: _Refusal) -> str:
    known, kinds = fields_of(refusal.place.annotation), kinds_of(refusal.place.annotation)
    if kinds:
        return f"{refusal.place.spoken} takes fields, of which {tag_of_kinds(refusal.place.annotation)} is {_one_of(kinds)}; got {_got(refusal.value)}"
    return f"{refusal.place.spoken} takes the fields {_listed(known)}; got {_got(refusal.value)}"


def _no_kind(refusal: _Refusal) -> str:
    kinds = refusal.place.annotation
    return f"{refusal.place.spoken}.{tag_of_kinds(kinds)} is required: {_one_of(kinds_of(kinds))}"


def _wrong_kind(refusal: _Refusal) -> str:
    kinds, given = kinds_of(refusal.place.annotation), str(refusal.context["tag"])
    return f"{refusal.place.spoken}.{tag_of_kinds(refusal.place.annotation)} takes {_one_of(kinds)}; got {shown(given)}{_offer(_nearest(given, kinds), '')}"


def _wrong_choice(refusal: _Refusal) -> str:
    expected = str(refusal.context["expected"]).replace("'", "")
    choices = expected.replace(" or ", ", ").split(", ")
    return f"{refusal.place.spoken} takes {expected}; got {_got(refusal.value)}{_offer(_nearest(str(refusal.value), choices), '')}"


def _no_list(refusal: _Refusal) -> str:
    return f"{refusal.place.spoken} takes a list{_example(refusal)}; got {_got(refusal.value)}"


def _no_dictionary(refusal: _Refusal) -> str:
    return f"{refusal.place.spoken} takes a mapping{_example(refusal)}; got {_got(refusal.value)}"


def _wrong_length(refusal: _Refusal) -> str | None:
    """None where `at_most` of the parts says it."""
    context = refusal.context
    limit = ("at least", context["min_length"]) if "min_length" in context else ("at most", context.get("max_length"))
    if limit[1] is None:
        return None
    unit, plural = ("character", "characters") if isinstance(refusal.value, str) else ("entry", "entries")
    given = len(refusal.value) if isinstance(refusal.value, Sized) else "more"
    return f"{refusal.place.spoken} takes {limit[0]} {limit[1]} {unit if limit[1] == 1 else plural}; got {given}"


def _missing(refusal: _Refusal) -> str:
    if refusal.place.name.isdecimal():
        return f"{refusal.place.parent.spoken} takes more entries{_example(_Refusal(refusal.place.parent, None, {}))}; got {refusal.place.name}"
    return f"{refusal.place.spoken} is required"


def _wrong_key(refusal: _Refusal) -> str:
    return f"keys of {refusal.place.parent.spoken} are texts; got {_got(refusal.value)}"


_WORDS: dict[str, Callable[[_Refusal], str | None]] = {
    "extra_forbidden": _unknown_field,
    "union_tag_not_found": _no_kind,
    "union_tag_invalid": _wrong_kind,
    "literal_error": _wrong_choice,
    "model_type": _no_mapping,
    "model_attributes_type": _no_mapping,
    "dict_type": _no_dictionary,
    "list_type": _no_list,
    "tuple_type": _no_list,
    "too_short": _wrong_length,
    "too_long": _wrong_length,
    "string_too_short": _wrong_length,
    "string_too_long": _wrong_length,
    "missing": _missing,
    "invalid_key": _wrong_key,
}


def _listed(known: Mapping[str, FieldInfo]) -> str:
    return ", ".join(known) or "nothing"


def _offer(name: str | None, end: str = ".") -> str:
    return f"; did you mean `{name}`?" if name else end


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that may have been meant: by another word for it, by its beginning, or by a slip."""
    known = list(names)
    if len(name) > LONGEST_NAME:
        return None
    if _ALIASES.get(name) in known:
        return _ALIASES[name]
    begun = [each for each in known if len(name) >= SHORTEST_BEGINNING and each.startswith(name)]
    return next(iter(begun or difflib.get_close_matches(name, known, 1, LIKENESS)), None)


def _one_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _example(refusal: _Refusal) -> str:
    example = _EXAMPLES.get(refusal.place.name)
    return f", such as {example}" if example else ""


def _got(value: Any) -> str:
    """The value that was given, in words; a list or a mapping, which may be long, is only called so."""
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else "nothing" if value is None else shown(value)


def _number(limit: Any) -> str:
    return str(int(limit)) if isinstance(limit, int | float) and limit == int(limit) else str(limit)
