"""What a configuration may hold, and what of it goes into the history."""

from __future__ import annotations

import argparse
import math
from enum import Enum

import pytest

from paceline.configuration import MAX_CHARACTERS, MAX_ENTRIES, as_mapping, plain, shown


class Kind(Enum):
    FAST = "fast"


def test_values_become_those_that_json_has() -> None:
    given = {"lr": 0.1, "big": 10**30, "nan": math.nan, "on": True, "none": None, "kind": Kind.FAST, "list": [1, 2], "model": {"layers": 2}}
    wanted = {"lr": 0.1, "big": str(10**30), "nan": "nan", "on": True, "none": None, "kind": "fast", "list": "[1, 2]", "model/layers": 2}
    assert plain(given) == wanted
    assert shown(plain({"lr": 1 / 3, "seed": 3})) == "lr=0.333333, seed=3"


def test_a_configuration_is_bounded() -> None:
    found = plain({f"{number}" + "x" * 1_000: "y" * 1_000 for number in range(1_000)})
    assert len(found) == MAX_ENTRIES
    assert all(len(name) == len(str(value)) == MAX_CHARACTERS for name, value in found.items())


def test_objects_with_attributes_are_configurations_and_other_things_are_not() -> None:
    assert as_mapping(argparse.Namespace(lr=0.1)) == {"lr": 0.1}
    assert as_mapping(None) == {}
    with pytest.raises(TypeError, match=r"'config.yaml' \(str\) is no configuration: pass a dictionary, or an argparse.Namespace"):
        as_mapping("config.yaml")
