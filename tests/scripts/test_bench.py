"""The benchmark runner finds every benchmark and prints one table."""

from __future__ import annotations

import importlib
import inspect

import scripts.bench.communication.__main__ as communication
from scripts.bench.__main__ import benchmarks, table
from scripts.bench.edge import PARTS
from scripts.bench.edges.heat_map import RANKS, STEPS, figure_name


def test_finds_benchmarks_and_not_their_helpers() -> None:
    found = benchmarks()
    assert {"communication", "first_step", "recorder", "throughput"} <= set(found)
    assert not {"figures", "torchrun_script", "__main__"} & set(found)


def test_one_command_has_all_figures_of_communication_and_gives_each_its_two_options() -> None:
    assert {"overlap", "reproducible"} <= communication.MODULES.keys()
    for module in communication.MODULES.values():
        source = inspect.getsource(importlib.import_module(module))
        assert "run_shortened(" in source or ('"--quick"' in source and '"--json"' in source), module


def test_table_lines_up_and_shows_what_is_missing() -> None:
    figure = {"figure": "recorder_us", "unit": "us", "median": 1.23456, "p95": 250000.0, "n": 200, "reference": None}
    header, row = table([figure]).splitlines()
    assert row.split() == ["recorder_us", "us", "1.235", "250,000", "200", "-"]
    assert header.index("median") == row.index("1.235")


def test_the_heat_map_is_measured_in_the_size_that_its_goal_is_for() -> None:
    """`make bench` measured 128 ranks under the name of 1,024."""
    part = PARTS["heat_map"]
    assert not {"--ranks", "--steps"} & {*part.full, *part.quick}
    assert (RANKS, STEPS, figure_name(RANKS, STEPS)) == (1_024, 100_000, "heat_map_p95_ms")
    assert figure_name(128, STEPS) == "heat_map_128x100000_p95_ms"
