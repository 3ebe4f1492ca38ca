"""What is sent, what is acknowledged, and what a new agent sends again."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.upload import spool_head
from paceline.cluster.agent.upload.parcel import Budget, Parcel
from paceline.cluster.agent.upload.records import SpoolItem
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.protocol import RankKey
from paceline.monitoring.points import HighWater, MetricRecord
from paceline.monitoring.spool import SpoolReader, SpoolWriter
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


def test_a_record_that_is_larger_than_a_ranks_share_is_sent_where_the_upload_has_room_for_it() -> None:
    budget = Budget(100, 1_000, ranks=10)
    large = [SpoolItem(MetricRecord(seq=number, step=number, time=0.0, values={}), number, 600) for number in (1, 2)]
    assert [len(budget.take(large)), len(budget.take(large)), budget.bytes] == [1, 0, 400]


def test_everything_is_sent_until_acknowledged_and_then_never_again(folder: RankFolder) -> None:
    write_steps(folder, 1, 3)
    spool = RankSpool(folder, KEY)
    parcel = collect(spool)
    assert steps(parcel) == steps(collect(spool)) == [1, 2, 3]
    assert spool.acknowledge(parcel, high(metrics=3))
    assert collect(spool).is_empty()
    write_steps(folder, 4, 4)
    assert steps(collect(spool)) == [4]


def test_files_without_news_are_not_opened(folder: RankFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for news five times a second: of two ranks that printed nothing, it took a fifth of the agent's CPU time."""
    write_steps(folder, 1, 3)
    folder.output.write_bytes(b"a line\n")
    spool, opened = RankSpool(folder, KEY), list[str]()
    spool.acknowledge(collect(spool), high(metrics=3, logs=1))
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda name, *rest, **named: opened.append(str(name)) or real_open(name, *rest, **named))
    assert collect(spool).is_empty()
    assert not opened
    write_steps(folder, 4, 4)
    with open(folder.output, "ab") as output:
        output.write(b"another\n")
    opened.clear()
    parcel = collect(spool)
    assert (steps(parcel), [item.record.text for item in parcel.logs]) == ([4], ["another"])
    assert opened == [str(folder.metrics), str(folder.output)]


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


# -- the acknowledged head is given up


def batch_of(spool: RankSpool) -> tuple[list[int], int]:
    """The numbers of the points that would be sent, and up to which one the coordinator is told that none is left."""
    batch = spool.batch(collect(spool, records=10_000))
    return [record.seq for record in batch.metrics], batch.metrics_gone


def test_of_what_is_acknowledged_only_the_newest_bytes_stay(folder: RankFolder) -> None:
    write_steps(folder, 1, 300)
    spool = RankSpool(folder, KEY, kept=4000)
    spool.give_up()
    assert batch_of(spool) == (list(range(1, 301)), 0)  # nothing is acknowledged
    spool.acknowledge(collect(spool, records=10_000), high(metrics=250))
    spool.give_up()
    assert batch_of(spool) == (list(range(251, 301)), 0)
    left = SpoolReader(folder.metrics).read()
    kept = spool.marks.metrics.offset - (folder.metrics.stat().st_size - sum(8 + len(payload) for payload in left))
    assert 50 < len(left) < 300
    assert 4000 <= kept < 5100


@pytest.mark.parametrize("holds", [0, 1, 40])
def test_a_coordinator_that_lost_what_is_gone_is_told_so_with_the_first_record_that_is_left(folder: RankFolder, holds: int) -> None:
    write_steps(folder, 1, 300)
    spool = RankSpool(folder, KEY, kept=4000)
    spool.acknowledge(collect(spool, records=10_000), high(metrics=299))
    spool.give_up()
    assert spool.acknowledge(collect(spool), high(metrics=holds))
    numbers, gone = batch_of(spool)
    assert numbers == list(range(gone + 1, 301))
    assert gone > 40
    assert spool.acknowledge(collect(spool, records=10), high(metrics=gone + 5))
    assert batch_of(spool) == (list(range(gone + 6, 301)), 0)


def test_a_coordinator_that_passes_over_nothing_is_offered_the_same_again(folder: RankFolder, caplog: pytest.LogCaptureFixture) -> None:
    """One of the version before, to which a newer one has been taken back."""
    write_steps(folder, 1, 300)
    spool = RankSpool(folder, KEY, kept=4000)
    spool.acknowledge(collect(spool, records=10_000), high(metrics=299))
    spool.give_up()
    assert spool.acknowledge(collect(spool), high(metrics=3))
    offered = batch_of(spool)
    for _ in range(3):
        assert not spool.acknowledge(collect(spool), high(metrics=3))
        assert batch_of(spool) == offered
    assert caplog.text.count("sending all again") == 1


@pytest.mark.parametrize("saved", [None, 10, 299], ids=["no marks", "marks from before", "the newest marks"])
def test_a_new_agent_begins_behind_what_is_gone(folder: RankFolder, saved: int | None) -> None:
    write_steps(folder, 1, 300)
    spool = RankSpool(folder, KEY, kept=4000)
    if saved:
        spool.acknowledge(collect(spool, records=10_000), high(metrics=saved))
        spool.save()
    spool.acknowledge(collect(spool, records=10_000), high(metrics=299))
    spool.give_up()
    start = len(range(1, 301)) - len(SpoolReader(folder.metrics).read())
    if saved == 299:
        spool.save()
        assert batch_of(RankSpool(folder, KEY)) == ([300], 0)
    else:
        assert batch_of(RankSpool(folder, KEY)) == (list(range(start + 1, 301)), start)
    write_steps(folder, 301, 301)
    assert batch_of(RankSpool(folder, KEY))[0][-1] == 301


def test_halves_of_a_refused_upload_name_the_gap_once(folder: RankFolder) -> None:
    write_steps(folder, 1, 300)
    spool = RankSpool(folder, KEY, kept=4000)
    spool.acknowledge(collect(spool, records=10_000), high(metrics=299))
    spool.give_up()
    spool.acknowledge(collect(spool), high(metrics=3))
    first, second = collect(spool, records=10_000).halves()
    assert spool.batch(first).metrics_gone == spool.batch(first).metrics[0].seq - 1 > 0
    assert spool.batch(second).metrics_gone == 0


def test_a_head_that_cannot_be_given_up_is_told_of_once(
    folder: RankFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(spool_head, "make_hole", refuse)
    write_steps(folder, 1, 300)
    spool = RankSpool(folder, KEY, kept=4000)
    spool.acknowledge(collect(spool, records=10_000), high(metrics=299))
    spool.give_up()
    spool.give_up()
    assert caplog.text.count("Operation not supported") == 1
    assert batch_of(RankSpool(folder, KEY)) == (list(range(1, 301)), 0)
