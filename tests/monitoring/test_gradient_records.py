"""A record of gradients, to its bytes and back; what is damaged or far too large is told."""

from __future__ import annotations

import gzip

import msgspec
import pytest

from paceline.monitoring import gradient_records
from paceline.monitoring.gradient_records import (
    MAX_BINS,
    DamagedRecordError,
    ParameterRecord,
    RecordedGradients,
    compress,
    decode,
    decompress,
)

WEIGHT = ParameterRecord(
    name="head.weight", shape=(2, 2), sharded=False, elements=4, norm=None, zeros=1, nans=1, infs=0, histogram=(0, 0, 0, 0, 2, 0, 0, 0)
)
RECORD = RecordedGradients(step=5, parameters=(WEIGHT,), unused=("head.bias",), edges=(-1.0, -0.1, -1e-12, 0.0, 1e-12, 0.1, 1.0))


def test_a_record_is_the_same_from_its_bytes() -> None:
    assert decode(decompress(compress(RECORD))) == RECORD
    assert decompress(compress(RECORD)) == gzip.decompress(compress(RECORD))
    assert compress(RECORD) == compress(RECORD)


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", compress(RECORD)[:-9], gzip.compress(b"{}"), gzip.compress(b"{")],
    ids=["empty", "text", "cut", "other fields", "no JSON"],
)
def test_what_is_no_record_is_told(content: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        decode(decompress(content))


@pytest.mark.parametrize(
    "content",
    [
        compress(msgspec.structs.replace(RECORD, parameters=(msgspec.structs.replace(WEIGHT, shape=(257,) * 100),))),
        compress(msgspec.structs.replace(RECORD, parameters=(msgspec.structs.replace(WEIGHT, histogram=(257,) * 2000),))),
        compress(msgspec.structs.replace(RECORD, edges=(0.5,) * 2000)),
        compress(msgspec.structs.replace(RECORD, parameters=(WEIGHT,) * 100_001)),
        compress(msgspec.structs.replace(RECORD, unused=("",) * 100_001)),
        gzip.compress(b" " * (65 << 20), compresslevel=1),
    ],
    ids=["dimensions", "bins", "edges", "parameters", "unused", "text"],
)
def test_a_record_of_a_few_kb_does_not_unfold_to_gigabytes(content: bytes) -> None:
    """One of 1.4 MB, a list of numbers, took the reader some 4 GB."""
    with pytest.raises(DamagedRecordError):
        decode(decompress(content))


def test_a_record_with_as_many_bins_as_a_job_may_ask_for_can_be_read() -> None:
    weight = msgspec.structs.replace(WEIGHT, histogram=(257,) * MAX_BINS)
    widest = msgspec.structs.replace(RECORD, parameters=(weight,), edges=(0.5,) * (MAX_BINS + 1))
    assert decode(decompress(compress(widest))) == widest


def test_what_unfolds_without_end_is_not_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_records, "MAX_RECORD_BYTES", 1000)
    with pytest.raises(DamagedRecordError, match="more than 1,000 bytes"):
        decompress(gzip.compress(b" " * 10_000))
