"""A log has an end, and its writer does not notice."""

from __future__ import annotations

from pathlib import Path

from paceline.monitoring.log_file import cut


def test_a_log_that_is_too_large_is_cut_while_its_process_writes_on(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.log"
    with open(path, "ab", buffering=0) as log:
        log.write(b"".join(b"line %d\n" % number for number in range(1_000)))
        assert cut(path, limit=4_000, kept=500)
        log.write(b"and on\n")
        assert not cut(path, limit=4_000, kept=500)
    assert path.read_bytes() == b"and on\n"
    tail = (tmp_path / "coordinator.log.1").read_bytes()
    assert (len(tail), tail.endswith(b"line 999\n")) == (500, True)


def test_a_log_that_is_not_there_is_left_alone(tmp_path: Path) -> None:
    assert not cut(tmp_path / "none.log")
