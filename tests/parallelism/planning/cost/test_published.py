"""Published rows as their sources have them."""

from __future__ import annotations

from itertools import groupby, pairwise

from paceline.parallelism.planning.cost.published import DLPERF_BERT, SOURCES, TORCHTITAN, published


def test_every_row_belongs_to_a_source_that_was_read() -> None:
    rows = published()
    assert {row.source for row in rows} == set(SOURCES)
    assert all(row.source.where.count("/") >= 1 for row in rows)
    assert len({(row.source.name, row.row, row.degrees) for row in rows}) == len(rows)


def test_batches_divide_over_micro_batches() -> None:
    assert all(row.samples % row.micro_batches == 0 for row in published())


def test_rates_are_those_of_one_device() -> None:
    for row in published():
        if row.source is DLPERF_BERT:
            assert 80 < row.rate < 470, row


def test_throughput_of_a_device_falls_with_their_number_in_each_table() -> None:
    rows = sorted((row for row in published() if row.context <= 8192), key=lambda row: (row.source.name, row.row, row.degrees.world_size))
    for _, group in groupby(rows, key=lambda row: (row.source.name, row.row)):
        rates = [row.rate for row in group]
        assert all(later < 1.01 * earlier for earlier, later in pairwise(rates))


def test_torchtitans_tables_go_from_8_to_512_devices() -> None:
    worlds = {row.degrees.world_size for row in published() if row.source is TORCHTITAN}
    assert worlds == {8, 128, 256, 512}


def test_one_row_calibrates() -> None:
    assert [row.row for row in published() if row.calibrates] == ["no ddp"]
