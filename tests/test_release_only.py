"""What is left to `make test-all` is there, and `make test` has something of each of its modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.release_only import PATTERNS, WHOLE_MODULES

HERE = Path(__file__).parent


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_names_a_test_of_a_module(pattern: str) -> None:
    module, _, test = pattern.partition("::")
    source = (HERE / module).read_text()
    name = test.partition("[")[0].rstrip("*")
    if name.startswith("test_"):
        assert re.search(rf"^(?:async )?def {name}", source, re.MULTILINE), f"{module} has no {name}"
    assert "[" in test or len(re.findall(r"^(?:async )?def test_", source, re.MULTILINE)) > 1


@pytest.mark.parametrize("module", WHOLE_MODULES)
def test_each_module_that_is_left_out_as_a_whole_is_there_and_has_no_patterns_beside(module: str) -> None:
    assert "def test_" in (HERE / module).read_text()
    assert not any(pattern.startswith(module) for pattern in PATTERNS)
