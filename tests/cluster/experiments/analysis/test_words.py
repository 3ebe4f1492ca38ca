from __future__ import annotations

from paceline.cluster.experiments.analysis.words import duration, listed, number, parameters, percent, size


def test_numbers_have_three_digits() -> None:
    assert [number(each) for each in (0, 1234.5, 0.000021, 4.5678)] == ["0", "1,230", "2.1e-05", "4.57"]


def test_shares_are_percent() -> None:
    assert [percent(each) for each in (0.0912, 0.004, 0, 12.5)] == ["9 %", "0.4 %", "0 %", "1,250 %"]


def test_sizes_and_durations_have_units() -> None:
    assert [size(1.31e9), size(999), size(45_600)] == ["1.31 GB", "999 B", "45.6 kB"]
    assert [duration(2.5), duration(0.0125), duration(0.00002)] == ["2.5 s", "12.5 ms", "20 µs"]


def test_numbers_of_parameters_are_millions_and_billions() -> None:
    assert [parameters(each) for each in (1.317e9, 12.3e9, 999_600_000, 120_400_000, 3_456)] == ["1.3 B", "12 B", "1.0 B", "120 M", "3,500"]


def test_long_lists_are_counted() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b"])] == ["none", "a", "a and b"]
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 others"
