"""The benchmark runner finds every benchmark and prints one table."""

from __future__ import annotations

import importlib
import inspect
import re

import scripts.bench.communication.__main__ as communication
from scripts.bench.__main__ import benchmarks, table
from scripts.bench.communication import auto, hosts, sums
from scripts.bench.communication.sums import CONTESTS
from scripts.bench.edge import PARTS
from scripts.bench.edges.heat_map import RANKS, STEPS, figure_name
from scripts.bench.figures import machine


def test_finds_benchmarks_and_not_their_helpers() -> None:
    found = benchmarks()
    assert {"communication", "first_step", "recorder", "throughput"} <= set(found)
    assert not {"figures", "torchrun_script", "__main__"} & set(found)


def test_one_command_has_all_figures_of_communication_and_gives_each_its_two_options() -> None:
    assert {"overlap", "reproducible"} <= communication.MODULES.keys()
    for module in communication.MODULES.values():
        source = inspect.getsource(importlib.import_module(module))
        assert "run_shortened(" in source or ('"--quick"' in source and '"--json"' in source), module


def test_the_bound_of_each_contest_is_what_crosses_a_hosts_link_by_gloos_ring_over_what_does_by_ours() -> None:
    for contest in CONTESTS:
        if contest.bound is None:
            continue
        placement, size, hosts = contest.placement, len(contest.placement), len(set(contest.placement))
        leaves_host = sum(host == 0 != after for host, after in zip(placement, [*placement[1:], placement[0]], strict=True))
        of_a_ring = 2 * (size - 1) / size  # vectors that each rank sends to the next
        ours = of_a_ring if contest.algorithm == "ring" else 2 * (hosts - 1) / hosts
        assert contest.bound == leaves_host * of_a_ring / ours, contest.name


def test_every_link_is_measured_by_sums_and_by_auto() -> None:
    assert all(vars(each)["RATES"] is hosts.RATES for each in (sums, auto))
    assert hosts.RATES == ("100mbit", "1gbit", "10gbit", None)
    assert sums.MEBIBYTES.keys() == {*hosts.RATES}


def test_figures_say_what_they_were_measured_on() -> None:
    assert re.fullmatch(r".+, \d+ cores?, \w+ \S+", machine())


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
