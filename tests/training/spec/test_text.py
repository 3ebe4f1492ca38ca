"""Spec documents as text."""

from __future__ import annotations

import pytest
import yaml

from training.spec.text import load


def test_numbers_are_read_as_json_reads_them() -> None:
    assert load("{a: 1e-3, b: 1.5E+2, c: 1, d: e3}") == {"a": 0.001, "b": 150.0, "c": 1, "d": "e3"}


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


def test_a_merged_key_may_be_overridden() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {<<: *base, b: 3}\nmost: {<<: *more, a: 4}\n"
    assert load(text)["most"] == {"a": 4, "b": 3}


def test_only_plain_data_is_read() -> None:
    with pytest.raises(yaml.YAMLError):
        load("!!python/object:os.system {}")
