"""What ranks write down is seen as they write it, torn tails and removed files included."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.monitoring.points import MetricRecord
from paceline.monitoring.spool import SpoolWriter, frame
from scripts.faults import tails
from scripts.faults.history import Commit
from scripts.faults.observer import BlindError, HangError, Observer
from scripts.faults.spools import spools

TIMEOUT_S = 20.0


def record(step: int, **values: float) -> bytes:
    return msgspec.json.encode(MetricRecord(seq=step, step=step, time=float(step), values={"step_seconds": 0.5, **values}))


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "agents" / "node-1" / "jobs" / "job" / "g2" / "rank1"
    folder.mkdir(parents=True)
    return folder / "metrics.spool"


@pytest.mark.parametrize("list_seconds", [0.0, 3600.0], ids=["noticing", "not noticing yet"])
def test_reads_on_to_the_end_of_a_file_that_is_removed(
    tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch, list_seconds: float
) -> None:
    monkeypatch.setattr(tails, "LIST_SECONDS", list_seconds)
    source = spools(tmp_path, "job")
    assert list(source.read()) == []
    whole, torn = frame(record(1)), frame(record(2))
    with spool.open("ab", buffering=0) as file:
        file.write(whole + torn[:7])
        assert list(source.read()) == [Commit("node-1", 2, 1, 1, 1.0, 0.5)]
        file.write(torn[7:])
        spool.unlink()
        assert [commit.step for commit in source.read()] == [2]
    assert list(source.read()) == []
    source.close()


def test_a_folder_that_is_removed_while_it_is_looked_into_costs_nothing_else(
    tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = spool.parents[1].with_name("g1")
    going.mkdir()
    spool.write_bytes(frame(record(1)))
    scandir = os.scandir

    def remove_first(path: Any = ".") -> Any:
        if not isinstance(path, int) and Path(path).name == going.name and going.exists():
            going.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", remove_first)
    source = spools(tmp_path, "job")
    assert [commit.step for commit in source.read()] == [1]
    assert not going.exists()
    source.close()


def test_what_a_successor_tells_again_is_no_step(tmp_path: Path, spool: Path) -> None:
    writer = SpoolWriter(spool)
    writer.append(msgspec.json.encode(MetricRecord(seq=1, step=7, time=1.0, values={"loss": 2.0})))
    writer.close()
    source = spools(tmp_path, "job")
    assert list(source.read()) == []
    source.close()


class Script:
    """Tells one portion at each look."""

    def __init__(self, *portions: list[Commit]) -> None:
        self.portions = list(portions)

    def read(self) -> Iterable[Commit]:
        return self.portions.pop(0) if self.portions else []

    def close(self) -> None:
        self.portions.clear()


def step(generation: int, rank: int, number: int) -> Commit:
    return Commit(f"node-{rank}", generation, rank, number, float(number), 0.1)


def test_waits_for_a_rank_to_reach_a_step_in_the_newest_generation() -> None:
    with Observer(Script([step(1, 0, 5), step(1, 1, 5)], [], [step(2, 0, 6)], [step(2, 1, 6), step(2, 1, 7)])) as observer:
        assert observer.reach(1, 6, TIMEOUT_S) == step(2, 1, 7)
        assert observer.whole(2, TIMEOUT_S) == 2


def test_a_gang_goes_on_once_its_next_generation_has_come_some_steps_far() -> None:
    with Observer(Script([step(1, 0, 5)], [step(2, 0, 6), step(2, 0, 7)])) as observer:
        assert not observer.resumed(1, 0.2)
    with Observer(Script([step(1, 0, 5)], [step(2, 0, 6), step(2, 0, 7), step(2, 0, 8)])) as observer:
        assert observer.resumed(1, TIMEOUT_S)


class Torn(Script):
    def read(self) -> Iterable[Commit]:
        raise OSError("the disk is gone")


def test_an_observer_that_breaks_says_so_and_blames_no_gang() -> None:
    with Observer(Torn()) as observer, pytest.raises(BlindError, match="the disk is gone"):
        observer.whole(2, TIMEOUT_S)


def test_a_step_that_is_never_reached_names_the_newest_one() -> None:
    with Observer(Script([step(1, 0, 5)])) as observer:
        assert observer.reach(0, 5, TIMEOUT_S) == step(1, 0, 5)
        with pytest.raises(HangError, match=r"rank 0 has not reached step 9 .* the newest step is 5"):
            observer.reach(0, 9, 0.2)
