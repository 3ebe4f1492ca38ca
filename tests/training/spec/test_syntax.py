"""Usual mistakes in YAML: those of `yaml_mistakes.json`, which the dashboard is held to as well."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.training.spec.syntax import Mistake, find_mistake
from paceline.training.spec.text import SpecTextError, load
from tests.cpu_cost import least_seconds

CASES = json.loads(Path(__file__).with_name("yaml_mistakes.json").read_text())


@pytest.mark.parametrize("case", CASES["mistakes"], ids=lambda case: case["text"])
def test_a_mistake_is_told_with_its_place_and_the_way_out(case: dict[str, Any]) -> None:
    found = Mistake(case["line"], case["column"], case["message"])
    assert find_mistake(case["text"]) == found
    with pytest.raises(SpecTextError) as refused:
        load(case["text"])
    assert str(refused.value) == str(found)
    assert [each.line for each in refused.value.findings] == [case["line"]]


@pytest.mark.parametrize("text", CASES["right"], ids=repr)
def test_what_the_parser_takes_has_none(text: str) -> None:
    yaml.compose(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert find_mistake(text) is None


def test_the_examples_have_none() -> None:
    examples = sorted(Path("examples").rglob("*.yaml"))
    assert examples
    assert [find_mistake(each.read_text()) for each in examples] == [None] * len(examples)


def test_the_parsers_words_are_kept_where_there_are_no_better_ones() -> None:
    with pytest.raises(SpecTextError, match=r"^line 1, column 4: mapping keys are not allowed"):
        load("a: ? b\n")


@pytest.mark.parametrize(
    ("begin", "again", "count"),
    [("", "[", 60_000), ("", "[a\n", 20_000), ('"', '"', 60_000), ("", "a:\n b", 12_000), ("", "- ", 30_000), ("a: [\n", "b: {\n", 12_000)],
    ids=["brackets", "items", "quotes", "names", "dashes", "fields in brackets"],
)
def test_a_mistake_takes_as_long_to_find_as_its_text_is_long(begin: str, again: str, count: int) -> None:
    """What is read again for each thing in a text takes sixteen times as long for four times as many."""
    short, long = (least_seconds(partial(find_mistake, begin + again * length)) for length in (count // 4, count))
    assert long < 1
    assert long < 8 * short
