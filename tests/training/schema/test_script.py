"""The script of a job spec."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.schema.script import Script
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec, json_schema
from paceline.training.spec.text import load


def test_a_script_may_have_several_sizes_and_starts_with_no_fewer_nodes_than_it_says() -> None:
    spec = JobSpec.model_validate(
        {"name": "mine", "script": {"path": "a.py"}, "resources": {"nodes": 4, "min_nodes": 2, "slots_per_node": 8}}
    )
    assert (derived.is_elastic_script(spec), derived.closes_up(spec), derived.min_ranks(spec)) == (True, False, 16)
    grows = JobSpec.model_validate({"name": "mine", "script": {"path": "a.py"}, "resources": {"nodes": 2, "max_nodes": 3}})
    assert (derived.is_elastic_script(grows), derived.min_ranks(grows)) == (True, 2)
    assert not derived.is_elastic_script(JobSpec.model_validate({"name": "mine", "script": {"path": "a.py"}, "resources": {"nodes": 2}}))


def test_one_process_is_not_elastic() -> None:
    document = {"name": "mine", "script": {"path": "a.py"}, "parallelism": {"strategy": "single"}, "resources": {"max_nodes": 2}}
    with pytest.raises(ValidationError, match=r"resources\.max_nodes=2"):
        JobSpec.model_validate(document)


def script_of(document: Any) -> Script:
    script = JobSpec.model_validate({"name": "mine", "script": document}).script
    assert script is not None
    return script


@pytest.mark.parametrize(
    ("document", "program"),
    [
        ({"path": "train.py", "args": ["--lr", "0.1"]}, ("python", "-u", "train.py", "--lr", "0.1")),
        ({"module": "shop.train", "args": ["a b"]}, ("python", "-u", "-m", "shop.train", "a b")),
        ({"command": ["bash", "run.sh", "a b"]}, ("bash", "run.sh", "a b")),
        ({"command": "bash -c 'echo $RANK' 3"}, ("bash", "-c", "echo $RANK", "3")),
    ],
)
def test_a_script_is_a_file_a_module_or_a_command(document: Any, program: tuple[str, ...]) -> None:
    assert script_of(document).program("python") == program


def test_the_published_schema_takes_a_command_as_one_text() -> None:
    published = json_schema()["$defs"]["Script"]["properties"]["command"]
    assert [each["type"] for each in published["anyOf"]] == ["array", "string", "null"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "give exactly one of script.path, script.module and script.command; got none"),
        ({"path": "a.py", "module": "a"}, "got path, module"),
        ({"path": "run.sh"}, r"script.path=run.sh would be run by Python; use script.command: \[bash, run.sh\]"),
        ({"module": "a-b"}, "the name of a Python module"),
        ({"command": "python 'a"}, "cannot be taken apart: No closing quotation"),
        ({"command": ""}, "at least 1 item"),
        ({"command": ["", "a"]}, "begins with an empty text"),
        ({"command": "a", "args": ["b"]}, "script.args are for path and module: write them into script.command"),
        ({"path": "a.py", "args": [None]}, "valid string"),
        ({"path": "a.py", "args": [["a"]]}, "valid string"),
        ({"path": "a.py", "args": ["a\0"]}, "NUL character"),
    ],
)
def test_what_is_no_script_is_refused_with_the_way_out(document: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        script_of(document)


def test_numbers_and_truths_in_json_are_passed_on_as_text() -> None:
    assert script_of({"path": "a.py", "args": ["--lr", 0.1, 10, True, False]}).args == ("--lr", "0.1", "10", "true", "false")
    spec = JobSpec.model_validate({"name": "mine", "script": {"path": "a.py"}, "environment": {"variables": {"A": 1, "B": 0.5}}})
    assert spec.environment.variables == {"A": "1", "B": "0.5"}


def test_in_yaml_what_a_program_reads_stays_as_it_is_typed() -> None:
    typed = ["0.10", "1e4", ".5", "yes", "True", "010", "12:30", "0x1F", "-1", "1_000"]
    assert load(f"script: {{path: a.py, args: [{', '.join(typed)}]}}")["script"]["args"] == typed
    assert load(f"script: {{command: [{', '.join(typed)}]}}")["script"]["command"] == typed
    assert load("environment: {variables: {A: 1.50, B: yes, C: }}") == {"environment": {"variables": {"A": "1.50", "B": "yes", "C": None}}}
    assert load("{name: 1.50, training: {steps: 1e4}, args: [1.50]}") == {"name": 1.5, "training": {"steps": 1e4}, "args": [1.5]}


@pytest.mark.parametrize(
    ("place", "text", "value"),
    [
        ("environment.variables.OMP_NUM_THREADS", "1", "1"),
        ("script.args", "[1e4, 2.0]", ["1e4", "2.0"]),
        ("script.command", "python a.py 1.0", "python a.py 1.0"),
        ("training.steps", "1e4", 1e4),
        ("script", "{args: [1.0]}", {"args": ["1.0"]}),
    ],
)
def test_a_value_for_one_field_is_read_as_that_field_is(place: str, text: str, value: object) -> None:
    assert load(text, at=tuple(place.split("."))) == value
