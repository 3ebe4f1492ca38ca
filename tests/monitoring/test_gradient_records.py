"""A record of gradients, to its bytes and back; what is damaged or far too large is told."""

from __future__ import annotations

import gzip

import pytest

from paceline.monitoring import gradient_records
from paceline.monitoring.gradient_records import DamagedRecordError, ParameterRecord, RecordedGradients, compress, decompress

WEIGHT = ParameterRecord(
    name="head.weight", shape=(2, 2), sharded=False, elements=4, norm=None, zeros=1, nans=1, infs=0, histogram=(0, 0, 0, 0, 2, 0, 0, 0)
)
RECORD = RecordedGradients(step=5, parameters=(WEIGHT,), unused=("head.bias",), edges=(-1.0, -0.1, -1e-12, 0.0, 1e-12, 0.1, 1.0))


def test_a_record_is_the_same_from_its_bytes() -> None:
    record, size = decompress(compress(RECORD))
    assert (record, size) == (RECORD, len(gzip.decompress(compress(RECORD))))
    assert compress(RECORD) == compress(RECORD)


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", compress(RECORD)[:-9], gzip.compress(b"{}"), gzip.compress(b"{")],
    ids=["empty", "text", "cut", "other fields", "no JSON"],
)
def test_what_is_no_record_is_told(content: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        decompress(content)


def test_what_unfolds_without_end_is_not_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_records, "MAX_RECORD_BYTES", 1000)
    with pytest.raises(DamagedRecordError, match="more than 1,000 bytes"):
        decompress(gzip.compress(b" " * 10_000))
