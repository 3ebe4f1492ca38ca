"""Whatever pydantic refuses is told in the words of the document: the field, what it takes, and what may have been meant."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from paceline.training.spec.job import JobSpec
from paceline.training.spec.refusals import in_words, told
from paceline.training.spec.shape import fields_of, kinds_of, place_of

JOB: dict[str, Any] = {"name": "a", "model": {"kind": "mlp"}, "data": {"kind": "digits"}, "training": {"steps": 10}}
SCRIPT: dict[str, Any] = {"name": "a", "script": {"path": "train.py"}}
PYDANTICS_OWN = re.compile(
    r"Input should|[Ii]nput tag|Extra inputs|Unable to extract|valid (tuple|list|dict|string|integer)|Field required"
)


def findings(document: Any) -> list[dict[str, Any]]:
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(document)
    return [dict(error) for error in refused.value.errors(include_url=False)]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            JOB | {"enviroment": {}},
            "`enviroment` is not a field of a job spec; did you mean `environment`? It takes: version, name, project, ",
        ),
        (JOB | {"steps": 3}, "`steps` is not a field of a job spec; did you mean `training.steps`? It takes: version, "),
        (JOB | {"gpus": 4}, "`gpus` is not a field of a job spec; did you mean `resources.slots`? It takes: version, "),
        (JOB | {"env": {}}, "`env` is not a field of a job spec; did you mean `environment`? It takes: version, "),
        (JOB | {"xyz": {}}, "`xyz` is not a field of a job spec. It takes: version, "),
        (
            JOB | {"training": {"steps": 1, "stpes": 1}},
            "`stpes` is not a field of training; did you mean `steps`? It takes: steps, epochs, ",
        ),
        (
            JOB | {"model": {"kind": "mlp", "hiden": [1]}},
            "`hiden` is not a field of model (kind mlp); did you mean `hidden`? It takes: kind, preset, hidden, dropout",
        ),
        (
            JOB | {"optimizer": {"kind": "sgd", "learning_rate": 1}},
            "`learning_rate` is not a field of optimizer (kind sgd); did you mean `lr`? It takes: kind, lr, momentum, nesterov, weight_decay",
        ),
        (
            SCRIPT | {"environment": {"vars": {}}},
            "`vars` is not a field of environment; did you mean `variables`? It takes: variables, secrets, working_directory",
        ),
        (
            SCRIPT | {"script": {"path": "a", "arg": 1}},
            "`arg` is not a field of script; did you mean `args`? It takes: path, module, command, args, ",
        ),
        (JOB | {"model": {}}, "model.kind is required: gpt, mlp, resnet or hf"),
        (JOB | {"model": {"kind": "gtp"}}, "model.kind takes gpt, mlp, resnet or hf; got 'gtp'; did you mean `gpt`?"),
        (JOB | {"model": "gpt"}, "model takes fields, of which kind is gpt, mlp, resnet or hf; got 'gpt'"),
        (
            JOB | {"data": {"kind": "token"}},
            "data.kind takes stdlib_text, tokens, digits, mnist or cifar10; got 'token'; did you mean `tokens`?",
        ),
        (
            JOB | {"optimizer": {"kind": "adam"}},
            "optimizer.kind takes adamw, sgd, nadam, rmsprop or adafactor; got 'adam'; did you mean `adamw`?",
        ),
        (JOB | {"schedule": {"kind": "x"}}, "schedule.kind takes constant, cosine, step or warm_restarts; got 'x'"),
        (
            JOB | {"parallelism": {"strategy": "dpd"}},
            "parallelism.strategy takes single, ddp, fsdp, parameter_server or auto; got 'dpd'; did you mean `ddp`?",
        ),
        (JOB | {"precision": 16}, "precision takes fp32, bf16 or fp16; got 16"),
        (SCRIPT | {"script": {"path": "a", "args": "x"}}, "script.args takes a list, such as [--lr, 0.1]; got 'x'"),
        (SCRIPT | {"script": {"path": "a", "args": [["x"]]}}, "script.args.0 takes a text; got a list"),
        (SCRIPT | {"script": {"path": "a", "args": ["x"] * 1001}}, "script.args takes at most 1000 entries; got 1001"),
        (SCRIPT | {"script": {"path": ""}}, "script.path takes at least 1 character; got 0"),
        (SCRIPT | {"script": "train.py"}, "script takes the fields path, module, command, args, "),
        (SCRIPT | {"environment": {"variables": ["x"]}}, "environment.variables takes a mapping, such as {NCCL_DEBUG: INFO}; got a list"),
        (SCRIPT | {"environment": {"variables": {"A": {}}}}, "environment.variables.A takes a text; got a mapping"),
        (
            SCRIPT | {"resources": {"tolerations": [{"key": "only", "value": "eval"}]}},
            "resources.tolerations.0 takes a text; got a mapping; use a taint's key, or key=value; a key has 1 to 63 letters, digits, ",
        ),
        (
            SCRIPT | {"resources": {"tolerations": {"only": "eval"}}},
            "resources.tolerations takes a list, such as [new, dedicated=vision]; got a mapping",
        ),
        (SCRIPT | {"labels": 3}, "labels takes a mapping, such as {team: vision}; got 3"),
        (SCRIPT | {"description": "x" * 3000}, "description takes at most 2000 characters; got 3000"),
        (JOB | {"model": {"kind": "mlp", "hidden": 3}}, "model.hidden takes a list, such as [128, 128]; got 3"),
        (
            JOB | {"model": {"kind": "mlp", "hidden": ["x"]}},
            "model.hidden.0 takes a whole number, without quotes and without leading zeros; got 'x'",
        ),
        (JOB | {"model": {"kind": "hf", "config": 3}}, "model.config takes a mapping, such as {model_type: llama}; got 3"),
        (JOB | {"optimizer": {"kind": "adamw", "betas": [0.9]}}, "optimizer.betas takes more entries, such as [0.9, 0.95]; got 1"),
        (JOB | {"training": {"steps": 1.5}}, "training.steps takes a whole number, without quotes and without leading zeros; got 1.5"),
        (JOB | {"optimizer": {"kind": "adamw", "lr": True}}, "optimizer.lr takes a number; got True"),
        (JOB | {"compile": "maybe"}, "compile takes true or false; got 'maybe'"),
        (JOB | {"resources": {"nodes": 0}}, "resources.nodes must be 1 or more; got 0"),
        (JOB | {"resources": {"nodes": 10**6}}, "resources.nodes must be 4096 or less; got 1000000"),
        (JOB | {"optimizer": {"kind": "sgd", "momentum": 1}}, "optimizer.momentum must be less than 1; got 1"),
        (JOB | {"profile": {"ranks": []}}, "profile.ranks takes at least 1 entry; got 0"),
        (JOB | {"data": {"kind": "tokens"}}, "data.path is required"),
        (JOB | {"name": None}, "name takes a text; got nothing"),
        ({}, "name is required"),
        ([1], "a job spec takes the fields version, name, "),
    ],
)
def test_each_refusal_names_the_field_and_what_it_takes(document: Any, message: str) -> None:
    said = in_words(findings(document)[0])
    assert said is not None
    assert said.startswith(message)


@pytest.mark.parametrize("part", [0.5, 1.5])
def test_parts_of_a_slot_are_refused_with_the_reason(part: float) -> None:
    (found,) = findings(JOB | {"resources": {"slots_per_node": part}})
    assert found["loc"] == ("resources", "slots_per_node")
    assert found["msg"].startswith(f"{part} is no whole number of slots: a slot is a whole GPU, since ")


def parts(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel], str | None]]:
    """Every part of a spec with its path, and the variants of its unions with their tags."""
    for name, field in model.model_fields.items():
        kinds = kinds_of(field.annotation)
        for tag in kinds or (None,):
            place = place_of(model, (name, tag) if tag else (name,))
            inside = next(
                (each for each in (place.annotation, *getattr(place.annotation, "__args__", ())) if hasattr(each, "model_fields")), None
            )
            if inside is not None:
                yield (*path, name), inside, tag
                if tag is None:  # a part of a variant needs the variant around it; `checkpoint` has the only one, too
                    yield from parts(inside, (*path, name))


PARTS = list(parts(JobSpec))


def test_the_table_below_has_every_part() -> None:
    assert {tag for _, _, tag in PARTS} == {
        None,
        "gpt",
        "mlp",
        "resnet",
        "hf",
        "stdlib_text",
        "tokens",
        "digits",
        "mnist",
        "cifar10",
        "adamw",
        "sgd",
        "nadam",
        "rmsprop",
        "adafactor",
    }
    named = {name for name, field in JobSpec.model_fields.items() if fields_of(field.annotation)}
    assert {path[0] for path, _, _ in PARTS} == named
    assert len(named) >= 12


@pytest.mark.parametrize(("path", "part", "tag"), PARTS, ids=lambda each: str(each) if isinstance(each, tuple) else "")
def test_every_part_says_its_own_fields_and_the_nearest(path: tuple[str, ...], part: type[BaseModel], tag: str | None) -> None:
    """Each field with a slip at its end."""
    names = [name for name in part.model_fields if name != "kind"]
    inside: dict[str, Any] = {"kind": tag} if tag else {}
    for name in names:
        document = JOB | functools.reduce(lambda value, part: {part: value}, reversed(path), inside | {f"{name}z": 1})
        said = [in_words(error) for error in findings(document) if error["type"] == "extra_forbidden"]
        assert said == [
            f"`{name}z` is not a field of {'.'.join(path)}{f' (kind {tag})' if tag else ''}; did you mean `{name}`? It takes: {', '.join(part.model_fields)}"
        ]


@pytest.mark.parametrize("value", ["x", 3, True, 1.5, [1], {"a": 1}, None, [], {}], ids=repr)
@pytest.mark.parametrize(("path", "part", "tag"), PARTS, ids=lambda each: str(each) if isinstance(each, tuple) else "")
def test_no_wrong_value_anywhere_is_told_in_pydantics_words(
    path: tuple[str, ...], part: type[BaseModel], tag: str | None, value: Any
) -> None:
    inside: dict[str, Any] = {"kind": tag} if tag else {}
    for document in (JOB | {path[0]: value}, *(JOB | {path[0]: inside | {name: value}} for name in part.model_fields)):
        try:
            JobSpec.model_validate(document)
        except ValidationError as refused:
            said = told(refused, most=5)
            assert not PYDANTICS_OWN.search(said), said


def test_a_long_name_is_cut_and_compared_with_nothing() -> None:
    (error,) = findings(JOB | {"n" * 5000: 1})
    said = in_words(error)
    assert said is not None
    assert said.startswith(f"`{'n' * 64}` is not a field of a job spec. It takes: ")


def test_several_findings_are_told_in_one_line_with_their_places() -> None:
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(SCRIPT | {"name": "A!", "priority": "x", "labels": 3})
    assert told(refused.value, most=2) == (
        "name: Invalid value 'A!': use 1 to 63 lower-case letters, digits, '.', '_' and '-'; first and last a letter or digit; "
        "labels takes a mapping, such as {team: vision}; got 3; and 1 more"
    )
