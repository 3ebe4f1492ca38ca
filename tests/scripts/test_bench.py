"""The benchmark runner finds every benchmark and prints one table."""

from __future__ import annotations

from scripts.bench.__main__ import benchmarks, table


def test_finds_benchmarks_and_not_their_helpers() -> None:
    found = benchmarks()
    assert {"communication", "first_step", "recorder", "throughput"} <= set(found)
    assert not {"figures", "torchrun_script", "__main__"} & set(found)


def test_table_lines_up_and_shows_what_is_missing() -> None:
    figure = {"figure": "recorder_us", "unit": "us", "median": 1.23456, "p95": 250000.0, "n": 200, "reference": None}
    header, row = table([figure]).splitlines()
    assert row.split() == ["recorder_us", "us", "1.235", "250,000", "200", "-"]
    assert header.index("median") == row.index("1.235")
