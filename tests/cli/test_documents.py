"""Reading specs and changing single fields."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.documents import KEYED_BY_PATH, read_spec, with_change, with_changes
from paceline.cli.errors import UsageProblem
from paceline.training.spec.text import MAX_SPEC_BYTES
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import FakeCoordinator, problem


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("a.b=3", {"a": {"b": 3, "c": 1}}),
        ("a.b=true", {"a": {"b": True, "c": 1}}),
        ("a.b=null", {"a": {"b": None, "c": 1}}),
        ("a.b=[1, 2]", {"a": {"b": [1, 2], "c": 1}}),
        ("a.b=x=y", {"a": {"b": "x=y", "c": 1}}),
        ("new.deep.field=1e-3", {"a": {"c": 1}, "new": {"deep": {"field": 0.001}}}),
    ],
)
def test_set_keeps_types_and_neighbours(change: str, expected: dict[str, Any]) -> None:
    assert with_change({"a": {"c": 1}}, change) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "a: [1\nb: :",
            "job.yaml cannot be read as YAML: line 1, column 4: the bracket [ that opens here is not closed; put ] at its end",
        ),
        ("[1, 2]", "job.yaml holds a list, not fields with values"),
        ("5", "job.yaml holds one number, not fields with values"),
        ("", "job.yaml is empty"),
    ],
)
def test_what_is_no_spec_is_told_in_words_with_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    """It was `in "<unicode string>"` and `holds a NoneType`."""
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(text)
    with pytest.raises(UsageProblem) as refused:
        read_spec("job.yaml", [])
    assert refused.value.message.startswith(words)


def test_set_takes_the_rest_as_one_key_where_keys_are_paths() -> None:
    document = {"grid": {"a.b": [1]}, "search": {"trials": 3}}
    changed = with_change(document, "grid.optimizer.lr=[1, 2]", KEYED_BY_PATH)
    assert changed["grid"] == {"a.b": [1], "optimizer.lr": [1, 2]}
    changed = with_change(document, "search.parameters.a.b={low: 0, high: 1}", KEYED_BY_PATH)
    assert changed["search"] == {"trials": 3, "parameters": {"a.b": {"low": 0, "high": 1}}}
    assert with_change(document, "search.trials=4", KEYED_BY_PATH)["search"] == {"trials": 4}


def test_set_keeps_the_spelling_of_arguments_also_in_an_experiment() -> None:
    changed = with_changes({}, ["job.script.args=[--lr, 1e4]", "grid.script.args=[[--lr, 1.10]]"], KEYED_BY_PATH)
    assert changed == {"job": {"script": {"args": ["--lr", "1e4"]}}, "grid": {"script.args": [["--lr", "1.10"]]}}


@pytest.mark.parametrize("change", ["a.b", "=1", "a..b=1", "a.c.d=1", "a=[1"])
def test_set_refuses_what_it_cannot_place(change: str) -> None:
    with pytest.raises(UsageProblem, match="--set"):
        with_change({"a": {"c": 1}}, change)


def test_set_refuses_a_field_that_is_to_have_two_values() -> None:
    assert with_changes({"a": 0}, ["a=1", "a=1", "b=2"]) == {"a": 1, "b": 2}
    with pytest.raises(UsageProblem, match="--set a is given twice, as '1' and '2'"):
        with_changes({"a": 0}, ["a=1", "a=2"])


def test_source_is_not_changed() -> None:
    source: dict[str, Any] = {"a": {"b": 1}}
    with_change(source, "a.b=2")
    assert source == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- 1", "holds a list"),
        ("a: [", "cannot be read as YAML"),
        ("a: &a [*a]", "anchors and aliases are not read here"),
        ("a: 0x" + "f" * 9000, "digits"),
        ("a: 1\na: 2", "'a' on line 2"),
        ("", "is empty"),
        ("a: {b: [1, .inf]}", r"a\.b\.1 is inf; write a finite number"),
        ("a: .nan", "a is nan; write a finite number"),
        ("a: 1e400", "the number 1e400 on line 1 is above the largest one"),
    ],
)
def test_files_that_are_no_spec(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(UsageProblem, match=reason):
        read_spec(str(path), [])


def test_missing_file_is_named() -> None:
    with pytest.raises(UsageProblem, match=r"/no/such\.yaml cannot be read"):
        read_spec("/no/such.yaml", [])


def test_what_never_ends_is_refused() -> None:
    with pytest.raises(UsageProblem, match="/dev/zero is longer than 65,536 bytes, the most that a spec may have"):
        read_spec("/dev/zero", [])


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_a_pipe_is_read_up_to_the_limit(tmp_path: Path, more: int, taken: bool) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    text = b"a: 1\n#".ljust(MAX_SPEC_BYTES + more, b"x")
    with ThreadPoolExecutor(1) as writers:
        writers.submit(path.write_bytes, text)
        if taken:
            assert read_spec(str(path), []) == {"a": 1}
        else:
            with pytest.raises(UsageProblem, match="is longer than 65,536 bytes"):
                read_spec(str(path), [])


FAULTY = "name: Bad Name\nseed: &a 1\npriority: 1000\nlabels: {a: b, a: c}\n"


def test_all_faults_of_a_file_are_told_with_their_lines_those_of_fields_as_the_coordinator_says_them(
    paceline: Paceline, coordinator: FakeCoordinator
) -> None:
    (paceline.folder / "job.yaml").write_text(FAULTY)
    fields = [
        {"pointer": "/priority", "message": "priority must be 100 or less; got 1000"},
        {"pointer": "/labels/a", "message": "of a value that was left out"},
    ]
    coordinator.on("POST", "/training/plan", problem(422, "invalid_spec", "/priority: wrong", errors=fields))
    for command in ("submit", "plan"):
        told = paceline(command, "job.yaml").stderr
        assert "line 2 has the anchor &a" in told
        assert "the key 'a' on line 4 is there already" in told
        assert "/priority (line 3): priority must be 100 or less; got 1000" in told
        assert "left out" not in told
    assert coordinator.sent("POST", "/training/jobs") == []


def test_the_faults_of_a_text_are_told_where_no_coordinator_answers(stranger: Paceline) -> None:
    (stranger.folder / "job.yaml").write_text(FAULTY)
    done = stranger("submit", "job.yaml", "--server", "http://127.0.0.1:9")
    assert (done.returncode, "line 2 has the anchor" in done.stderr, "line 4" in done.stderr) == (2, True, True)


def test_a_refused_field_is_told_with_its_line(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    (paceline.folder / "job.yaml").write_text("name: x\ntraining:\n  steps: many\n")
    fields = [{"pointer": "/training/steps", "message": "takes a whole number"}, {"pointer": "/model", "message": "is required"}]
    coordinator.on(
        "POST", "/training/jobs", problem(422, "invalid_spec", "/training/steps: takes a whole number (and 1 more)", errors=fields)
    )
    told = paceline("submit", "job.yaml").stderr
    assert "/training/steps (line 3): takes a whole number" in told
    assert "/model: is required" in told
