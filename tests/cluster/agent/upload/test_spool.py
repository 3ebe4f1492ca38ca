"""What is sent, what is acknowledged, and what a new agent sends again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.upload.parcel import Budget, Parcel
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.protocol import RankKey
from paceline.monitoring.points import HighWater, MetricRecord
from paceline.monitoring.spool import SpoolWriter
from paceline.training.rank_folder import RankFolder

KEY = RankKey("job", 1, 0)


@pytest.fixture
def folder(tmp_path: Path) -> RankFolder:
    return RankFolder.at(tmp_path)


def write_steps(folder: RankFolder, first: int, last: int) -> None:
    writer = SpoolWriter(folder.metrics)
    for step in range(first, last + 1):
        writer.append(msgspec.json.encode(MetricRecord(seq=step, step=step, time=0.0, values={"loss": float("1.5")})))
    writer.close()


def collect(spool: RankSpool, records: int = 100, bytes_: int = 1 << 20) -> Parcel:
    parcel, budget = Parcel(), Budget(records, bytes_)
    spool.collect_events(parcel, budget)
    spool.collect_metrics(parcel, budget)
    spool.collect_logs(parcel, budget, 0.0, final=False)
    return parcel


def steps(parcel: Parcel) -> list[int]:
    return [item.record.step for item in parcel.metrics]


def high(metrics: int = 0, logs: int = 0) -> HighWater:
    return HighWater(job_id="job", generation=1, rank=0, metrics=metrics, logs=logs)


def test_everything_is_sent_until_acknowledged_and_then_never_again(folder: RankFolder) -> None:
    write_steps(folder, 1, 3)
    spool = RankSpool(folder, KEY)
    parcel = collect(spool)
    assert steps(parcel) == steps(collect(spool)) == [1, 2, 3]
    assert spool.acknowledge(parcel, high(metrics=3))
    assert collect(spool).is_empty()
    write_steps(folder, 4, 4)
    assert steps(collect(spool)) == [4]


def test_a_part_acknowledged_moves_the_mark_that_far(folder: RankFolder) -> None:
    write_steps(folder, 1, 5)
    spool = RankSpool(folder, KEY)
    assert spool.acknowledge(collect(spool), high(metrics=2))
    assert steps(collect(spool)) == [3, 4, 5]


def test_an_answer_that_acknowledges_nothing_moves_nothing(folder: RankFolder) -> None:
    write_steps(folder, 1, 2)
    spool = RankSpool(folder, KEY)
    assert not spool.acknowledge(collect(spool), high())


def test_a_coordinator_that_lost_what_it_had_is_sent_everything_again(folder: RankFolder) -> None:
    write_steps(folder, 1, 3)
    spool = RankSpool(folder, KEY)
    spool.acknowledge(collect(spool), high(metrics=3))
    write_steps(folder, 4, 5)
    assert spool.acknowledge(collect(spool), high(metrics=1))
    assert steps(collect(spool)) == [1, 2, 3, 4, 5]


def test_a_stream_of_which_nothing_was_sent_is_not_sent_again(folder: RankFolder) -> None:
    write_steps(folder, 1, 3)
    spool = RankSpool(folder, KEY)
    spool.acknowledge(collect(spool), high(metrics=3))
    folder.output.write_text("only a line\n")
    spool.acknowledge(collect(spool), high(logs=1))
    assert collect(spool).is_empty()


def test_a_new_agent_goes_on_from_the_saved_mark(folder: RankFolder) -> None:
    write_steps(folder, 1, 5)
    folder.output.write_text("one\ntwo\nthree\n")
    spool = RankSpool(folder, KEY)
    spool.acknowledge(collect(spool), high(metrics=3, logs=2))
    spool.save()
    parcel = collect(RankSpool(folder, KEY))
    assert steps(parcel) == [4, 5]
    assert [(item.record.seq, item.record.text) for item in parcel.logs] == [(3, "three")]


def test_a_torn_tail_is_left_alone_until_it_is_whole(folder: RankFolder) -> None:
    write_steps(folder, 1, 2)
    whole = folder.metrics.read_bytes()
    folder.metrics.write_bytes(whole[:-3])
    spool = RankSpool(folder, KEY)
    parcel = collect(spool)
    assert steps(parcel) == [1]
    spool.acknowledge(parcel, high(metrics=1))
    assert collect(spool).is_empty()
    folder.metrics.write_bytes(whole)
    assert steps(collect(spool)) == [2]


def test_a_parcel_keeps_to_its_budget(folder: RankFolder) -> None:
    write_steps(folder, 1, 50)
    spool = RankSpool(folder, KEY)
    assert steps(collect(spool, records=10)) == list(range(1, 11))
    size = collect(spool).metrics[0].size
    assert len(collect(spool, bytes_=5 * size + 1).metrics) <= 5


def test_a_cut_line_is_remembered_before_it_is_sent(folder: RankFolder) -> None:
    folder.output.write_text("half")
    spool = RankSpool(folder, KEY)
    collect(spool)
    parcel = Parcel()
    spool.collect_logs(parcel, Budget(10, 1 << 20), 1.0, final=False)
    assert [item.record.text for item in parcel.logs] == ["half"]
    folder.output.write_text("half a line\n")
    after = Parcel()
    RankSpool(folder, KEY).collect_logs(after, Budget(10, 1 << 20), 2.0, final=False)
    assert [item.record.text for item in after.logs] == ["half", " a line"]


def test_backlog_falls_to_zero(folder: RankFolder) -> None:
    write_steps(folder, 1, 100)
    spool = RankSpool(folder, KEY)
    assert spool.backlog() > 0
    spool.acknowledge(collect(spool), high(metrics=50))
    assert 45 <= spool.backlog() <= 55
    spool.acknowledge(collect(spool), high(metrics=100))
    assert spool.backlog() == 0
