"""What is left to `make test-all` is there, and `make test` has something of each of its modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.release_only import WHERE_DATABASES_DIFFER, WHERE_DATABASES_DO_NOT_DIFFER, WHOLE_MODULES, is_second_run
from tests.release_patterns import PATTERNS

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


@pytest.mark.parametrize("place", [*WHERE_DATABASES_DIFFER, *WHERE_DATABASES_DO_NOT_DIFFER])
def test_each_place_of_tests_on_two_databases_is_there(place: str) -> None:
    assert (HERE / place).exists()


@pytest.mark.parametrize("module", ["integration/test_draining.py", "api/core/test_admission.py"])
def test_a_test_that_there_is_on_postgresql_alone_is_not_left_out(module: str) -> None:
    """No run on SQLite shows what it shows: tests of the coordinator while PostgreSQL is away, and of its replicas, were."""
    runs = {database: f"{module}::test_of_postgresql[{database}-1]" for database in ("sqlite", "postgresql")}
    assert is_second_run(runs["postgresql"], runs.values())
    assert not is_second_run(runs["sqlite"], runs.values())
    assert not is_second_run(runs["postgresql"], [runs["postgresql"]])
