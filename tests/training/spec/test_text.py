"""Spec documents as text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.training.spec.text import MOST_FINDINGS, SpecTextError, json_findings, load, read
from tests.cpu_cost import least_seconds

#: What texts mean here and in the dashboard, which is held to the same table (`dashboard/src/lib/spec/yaml.test.ts`).
VALUES = json.loads(Path(__file__).with_name("yaml_values.json").read_text())


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_a_text_means_what_it_means_in_the_dashboard(text: str, value: Any) -> None:
    assert load(text) == value


def test_two_keys_that_differ_in_their_quotes_alone_are_one() -> None:
    with pytest.raises(SpecTextError, match="the key '5' on line 2 is there already, on line 1"):
        load("5: a\n'5': b\n")


def test_numbers_are_read_as_json_reads_them() -> None:
    assert load("{a: 1e-3, b: 1.5E+2, c: 1, d: e3}") == {"a": 0.001, "b": 150.0, "c": 1, "d": "e3"}


def test_a_number_is_what_it_looks_like_and_what_looks_like_none_is_text() -> None:
    """YAML 1.1 reads 010 as eight and 12:30 as 750."""
    assert load("[010, 08, 00, '12:30', 12:30, 1:30.5, 1.2.3, 1e]") == ["010", "08", "00", "12:30", "12:30", "1:30.5", "1.2.3", "1e"]
    assert load("[0, -5, +5, 1_000, 0x10, 0b11]") == [0, -5, 5, 1000, 16, 3]
    assert load("[.5, 1., -1.5e3, 1e4, .0003, 1_000.5, -.inf]") == [0.5, 1.0, -1500.0, 1e4, 0.0003, 1000.5, -math.inf]
    assert [type(each) for each in load("[1e4, 1., 10]")] == [float, float, int]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\ntraining:\n  steps: 1\n  seed: 2\n  steps: 3\n", "the key 'steps' on line 5 is there already, on line 3"),
        ("name: x\nname: x\n", "the key 'name' on line 2 is there already, on line 1"),
        ('{"a": 1, "a": 2}', "the key 'a' on line 1 is there already, on line 1"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_its_lines(text: str, message: str) -> None:
    with pytest.raises(yaml.YAMLError, match=message):
        load(text)


BOMB = "a0: &a0 [x, x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "line 1 has the anchor &a0; anchors and aliases are not read here"),
        ("a: &a [*a]\n", "anchor &a"),
        ("a: *b\n", "line 1 has the alias \\*b"),
        ("[" * 30_000, "nested deeper than 32 levels"),
        ("{a: " * 40 + "1" + "}" * 40, "nested deeper than 32 levels"),
        ("a: " + "9" * 5000, "the number on line 1 has 5000 digits"),
        ("a: 0x" + "f" * 60_000, "digits; at most 20"),
        ("k: " + "x" * 70_000, "has 70003 bytes; a job spec may have 65536"),
        ("a: \ud800", "line 1, column 4: U\\+D800 is no character that YAML may have; remove it"),
        (b"a: \xff", "line 1, column 4: the byte 0xff is no UTF-8"),
        ("a: \0", "line 1, column 4: U\\+0000 is no character that YAML may have; remove it"),
        ("? [a]\n: b\n", "keys are words"),
        ("a: !!binary eA==", "has the tag tag:yaml.org,2002:binary"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: --- ends the document"),
    ],
    ids=[
        "alias bomb", "recursive alias", "alias of nothing", "deep list", "deep mapping", "long number", "long hexadecimal",
        "long document", "surrogate", "no UTF-8", "NUL", "list as key", "tag", "two documents",
    ],
)  # fmt: skip
def test_what_no_spec_needs_is_refused_with_its_line_and_no_other_error(text: str | bytes, message: str) -> None:
    def refuse() -> None:
        with pytest.raises(yaml.YAMLError, match=message):
            load(text)

    assert least_seconds(refuse) < 1


def test_dates_and_merge_keys_are_text_as_in_json() -> None:
    assert load("{name: 2020-99-99, since: 2020-01-01, eq: =}") == {"name": "2020-99-99", "since": "2020-01-01", "eq": "="}


def test_the_longest_document_is_read_in_a_moment() -> None:
    """It was a matter of seconds."""
    text = "".join(f"k{n}: [1, 2, {{a: b}}]\n" for n in range(2600))
    assert len(load(text)) == 2600
    assert least_seconds(lambda: load(text)) < 1


def test_only_plain_data_is_read() -> None:
    with pytest.raises(yaml.YAMLError):
        load("!!python/object:os.system {}")


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_lines_with_what_is_left() -> None:
    with pytest.raises(SpecTextError) as refused:
        load("a: &x 1\nb: *x\nc: {d: 1, d: 2}\ne: !!set {}\nf: 1e400\ng: 123456789012345678901\nh: 7\na: 2\n")
    assert [(each.path, each.line) for each in refused.value.findings] == [
        (("a",), 1), (("b",), 2), (("c",), 3), (("e",), 4), (("f",), 5), (("g",), 6), ((), 8),
    ]  # fmt: skip
    assert refused.value.rest == {"a": 1, "b": None, "c": {"d": 1}, "e": None, "f": None, "g": None, "h": 7}
    assert "the number 1e400 on line 5 is above the largest one that is read" in str(refused.value)
    assert refused.value.lines["h",] == 7


def test_what_was_found_before_a_fault_that_ends_the_reading_is_told_with_it() -> None:
    with pytest.raises(SpecTextError, match=r"anchor &x.*line 2, column 4: the bracket \[ that opens here is not closed"):
        load("a: &x 1\nb: [1\nc: 2\n")


def test_a_text_of_nothing_but_faults_is_told_up_to_a_limit() -> None:
    with pytest.raises(SpecTextError, match="and perhaps more") as refused:
        load("".join(f"a{n}: &a{n} 1\n" for n in range(3000)))
    assert len(refused.value.findings) == MOST_FINDINGS


def test_every_place_has_its_line() -> None:
    found = read("a:\n  b: [1,\n    {c: 2}]\n")
    assert found.value == {"a": {"b": [1, {"c": 2}]}}
    assert found.lines["a", "b", "1", "c"] == 3


def test_a_json_key_that_is_there_twice_is_found_with_its_place() -> None:
    assert json_findings(b'{"a": {"b": 1}}') == ()
    assert json_findings(b"[1,") == ()
    assert json_findings(b"[" * 60_000) == ()
    (found,) = json_findings(b'{"labels":\n {"a": "1", "a": "2"}}')
    assert (found.path, found.line) == (("labels",), 2)
    assert "the key 'a' on line 2 is there already" in found.message
