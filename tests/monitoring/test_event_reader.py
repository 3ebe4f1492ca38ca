"""Files that real writers wrote, read without their libraries."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from torch.utils.tensorboard import SummaryWriter

from paceline.monitoring import tensorboard
from paceline.monitoring.event_reader import MAX_PAYLOAD_BYTES, DamagedEventError, PayloadSplitter, Scalars, scalars_of


def read(content: bytes, pieces: PayloadSplitter | None = None) -> list[Scalars]:
    pieces = pieces or PayloadSplitter()
    return [found for payload in pieces.take(content[pieces.offset :]) if (found := scalars_of(payload)) is not None]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[SummaryWriter, Path]]:
    writer = SummaryWriter(str(tmp_path))
    yield writer, next(tmp_path.iterdir())
    writer.close()


def test_scalars_of_torchs_writer_are_read_with_step_and_time(written: tuple[SummaryWriter, Path]) -> None:
    writer, path = written
    writer.add_scalar("train/loss", 0.5, 7, walltime=123.5)
    writer.add_scalar("train/loss", math.nan, 8)
    writer.add_scalar("new style", 1.5, 9, new_style=True, double_precision=True)
    writer.add_histogram("weights", numpy.arange(10), 9)
    writer.flush()
    first, second, third = read(path.read_bytes())
    assert first == Scalars(7, 123.5, [("train/loss", 0.5)])
    assert math.isnan(second.values[0][1])
    assert (third.step, third.values) == (9, [("new style", 1.5)])


def test_scalars_of_tensorflow_2_are_tensors() -> None:
    event = Event(wall_time=1.0, step=3, summary=scalar_pb("accuracy", 0.25))
    assert read(tensorboard.record(event.SerializeToString())) == [Scalars(3, 1.0, [("accuracy", 0.25)])]


def test_a_file_that_grows_byte_by_byte_is_read_once() -> None:
    content = tensorboard.header(1.0) + b"".join(tensorboard.scalars(step, 2.0, {"loss": float(step)}) for step in range(5))
    pieces = PayloadSplitter()
    found = [each for end in range(len(content) + 1) for each in read(content[:end], pieces)]
    assert [(each.step, each.values) for each in found] == [(step, [("loss", float(step))]) for step in range(5)]


def test_a_large_record_is_passed_over_without_its_bytes() -> None:
    image = Event(
        step=1, summary=Summary(value=[Summary.Value(tag="image", image=Summary.Image(encoded_image_string=b"x" * MAX_PAYLOAD_BYTES))])
    )
    large = tensorboard.record(image.SerializeToString())
    pieces = PayloadSplitter()
    assert list(pieces.take(large[:100])) == []
    assert (pieces.offset, pieces.passed_over) == (len(large), 1)
    assert read(large + tensorboard.scalars(2, 1.0, {"loss": 1.0}), pieces) == [Scalars(2, 1.0, [("loss", 1.0)])]


def test_a_damaged_payload_is_passed_over_and_damaged_framing_is_told() -> None:
    good = tensorboard.scalars(1, 1.0, {"loss": 1.0})
    damaged = bytearray(good)
    damaged[20] ^= 1
    pieces = PayloadSplitter()
    assert len(read(bytes(damaged) + good, pieces)) == 1
    assert pieces.passed_over == 1
    with pytest.raises(DamagedEventError, match="no record begins at byte 0"):
        read(b"garbage that is no event file at all")


@pytest.mark.parametrize(
    "payload",
    [b"\x0a", b"\xff" * 20, b"\x2a\x7f", b"\x09\x00", b"\x0b\x0c", b"\x2a\x02\x0a\x7f", struct.pack("<B", 0x80)],
)
def test_what_is_no_event_raises_one_error(payload: bytes) -> None:
    with pytest.raises(DamagedEventError):
        scalars_of(payload)


def test_a_negative_step_stays_negative_so_that_it_can_be_refused() -> None:
    found = scalars_of(Event(step=-5, summary=Summary(value=[Summary.Value(tag="loss", simple_value=1.0)])).SerializeToString())
    assert found is not None
    assert found.step == -5
