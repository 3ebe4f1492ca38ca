"""A spool that is opened again is counted to its last whole record, without all of it in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.monitoring import spool
from paceline.monitoring.files import Appender
from paceline.monitoring.spool import SpoolReader, SpoolWriter


def test_a_spool_of_many_megabytes_is_counted_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read as a whole, and a job of weeks leaves gigabytes."""
    writer, largest = SpoolWriter(tmp_path / "spool"), b"x" * spool.MAX_RECORD_BYTES
    for _ in range(9):
        writer.append(largest)
        writer.append(b"small")
    writer.close()
    with open(tmp_path / "spool", "ab") as file:
        file.write(spool.frame(b"torn")[:-1])
    sizes: list[int] = []
    read = Appender.read

    def measured(self: Appender, start: int = 0, most: int | None = None) -> bytes:
        found = read(self, start, most)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(Appender, "read", measured)
    again = SpoolWriter(tmp_path / "spool")
    assert again.records == 18
    assert max(sizes) < spool.COUNTED_BYTES + (1 << 20)
    again.append(b"last")
    again.close()
    reader = SpoolReader(tmp_path / "spool")
    assert [len(record) for _ in range(18) for record in reader.read()][-3:] == [spool.MAX_RECORD_BYTES, 5, 4]


def test_zeros_at_the_end_are_no_records(tmp_path: Path) -> None:
    """As a power cut leaves them: each eight were an empty record, which was told of as one that could not be sent."""
    path = tmp_path / "spool"
    writer = SpoolWriter(path)
    writer.append(b"first")
    writer.close()
    with open(path, "ab") as file:
        file.write(bytes(4096))
    assert SpoolReader(path).read() == [b"first"]
    again = SpoolWriter(path)
    assert again.records == 1
    with pytest.raises(ValueError, match="0 bytes"):
        again.append(b"")
    again.append(b"second")
    again.close()
    assert SpoolReader(path).read() == [b"first", b"second"]
