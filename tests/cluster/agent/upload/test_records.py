"""What a rank may have left in its spool, and what is sent in its place."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.upload.records import read_items
from paceline.monitoring.files import UnfitFileError
from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolWriter

MOST = 1_000
GOOD = b'{"seq":1,"step":5,"time":1.0,"values":{"loss":1.0}}'
#: What the recorder no longer writes, and any script that writes into its rank's folder may.
BAD_METRICS = {
    "step_float": b'{"seq":2,"step":0.5,"time":1.0,"values":{"loss":1.0}}',
    "step_text": b'{"seq":2,"step":"7","time":1.0,"values":{"loss":1.0}}',
    "step_true": b'{"seq":2,"step":true,"time":1.0,"values":{"loss":1.0}}',
    "step_negative": b'{"seq":2,"step":-1,"time":1.0,"values":{"loss":1.0}}',
    "step_huge": b'{"seq":2,"step":9007199254740992,"time":1.0,"values":{"loss":1.0}}',
    "step_2_64": b'{"seq":2,"step":18446744073709551616,"time":1.0,"values":{"loss":1.0}}',
    "no_step": b'{"seq":2,"time":1.0,"values":{"loss":1.0}}',
    "time_impossible": b'{"seq":2,"step":5,"time":1e300,"values":{"loss":1.0}}',
    "value_text": b'{"seq":2,"step":5,"time":1.0,"values":{"loss":"high"}}',
    "no_json": b"\x80\x04K\x05.",
    "no_utf8": b'{"seq":2,"step":5,"time":1.0,"values":{"\xff":1.0}}',
    "too_deep": b'{"seq":2,"step":5,"time":1.0,"values":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
}


def write(path: Path, *payloads: bytes) -> Path:
    writer = SpoolWriter(path)
    for payload in payloads:
        writer.append(payload)
    writer.close()
    return path


@pytest.mark.parametrize("bad", BAD_METRICS.values(), ids=BAD_METRICS)
def test_a_record_that_cannot_be_sent_is_set_aside_alone(tmp_path: Path, bad: bytes) -> None:
    path = write(tmp_path / "metrics.spool", GOOD, bad, GOOD)
    first, note, last = read_items(path, 0, 0, MetricRecord, {}, MOST)
    assert [(item.record.seq, item.record.step, item.set_aside) for item in (first, last)] == [(1, 5, ""), (3, 5, "")]
    assert last.end == path.stat().st_size
    assert (note.record.seq, note.record.values) == (2, {})
    assert note.set_aside
    assert len(note.record.set_aside) <= 400
    sent = msgspec.json.decode(msgspec.json.encode(note.record), type=MetricRecord)
    assert sent.set_aside.startswith(note.set_aside[:100])


def test_an_event_that_cannot_be_read_is_told_as_one_that_is_dropped(tmp_path: Path) -> None:
    good = b'{"seq":1,"time":1.0,"kind":"sample","data":{"step":1}}'
    path = write(tmp_path / "events.spool", good, b'{"seq":2,"time":1.0,"kind":"nonsense","data":{}}', good)
    events = [item.record for item in read_items(path, 0, 0, RankEvent, {}, MOST)]
    assert [(event.seq, event.kind) for event in events] == [(1, "sample"), (2, "data_dropped"), (3, "sample")]
    assert "nonsense" in events[1].data["example"]
    assert "Invalid enum value 'nonsense'" in events[1].data["reason"]


def test_numbers_that_a_record_gives_itself_make_no_hole(tmp_path: Path) -> None:
    """Two processes of one rank that log count by themselves."""
    path = write(tmp_path / "metrics.spool", GOOD, GOOD, GOOD.replace(b'"seq":1', b'"seq":99'))
    assert [item.record.seq for item in read_items(path, 0, 0, MetricRecord, {}, MOST)] == [1, 2, 3]
    (again,) = read_items(path, 2, read_items(path, 0, 0, MetricRecord, {}, MOST)[1].end, MetricRecord, {}, MOST)
    assert again.record.seq == 3


def test_a_pipe_in_the_place_of_a_spool_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.spool")
    with pytest.raises(UnfitFileError, match="is no plain file"):
        read_items(tmp_path / "metrics.spool", 0, 0, MetricRecord, {}, MOST)


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    """A rank that has written a megabyte of short records made its agent hold three times as many as one upload takes."""
    path = write(tmp_path / "metrics.spool", GOOD, GOOD, GOOD)
    assert [item.record.seq for item in read_items(path, 0, 0, MetricRecord, {}, 2)] == [1, 2]
    assert read_items(path, 0, 0, MetricRecord, {}, 0) == []
