"""Curves from what rank 0 prints: only from lines that have proven themselves, never beside another teller, never more than a little at once."""

from __future__ import annotations

import os
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from paceline.cluster.agent.curves import printed_log
from paceline.cluster.agent.curves.link import Watch, WatchedRank
from paceline.cluster.agent.curves.printed_log import HOLD_SECONDS, HOW, MOST_BEHIND, READ_BYTES, PrintedCurves, PrintedLogTail
from paceline.cluster.agent.curves.rank_curves import RankCurves
from paceline.cluster.agent.curves.reader import CurveReader
from paceline.monitoring.recorder import Measurement
from paceline.monitoring.sinks import MetricSpool
from tests.cluster.agent.curves.test_reader import Job, add, event_file

NOW = 1_000.0
LATER = NOW + HOLD_SECONDS


class Printing(Job):
    """A rank with a log."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rank.output.touch()
        self.printed = self.again()

    def again(self) -> PrintedCurves:
        self.curves = RankCurves(str(self.rank.path))
        return PrintedCurves(self.curves, self.rank.output)

    def prints(self, *lines: str) -> None:
        with self.rank.output.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def poll(self, now: float = LATER, *, ended: bool = False) -> None:
        self.curves.catch_up()
        while self.printed.poll(now, others_report=self.curves.rank_records, ended=ended):
            pass
        self.curves.write()


@pytest.fixture
def job(tmp_path: Path) -> Printing:
    return Printing(tmp_path)


def steps(first: int, last: int, form: str = "step {} loss {}") -> list[str]:
    return [form.format(step, step / 10) for step in range(first, last + 1)]


def test_growing_steps_become_curves_after_others_have_had_their_time(job: Printing) -> None:
    job.prints("loading the data", *steps(1, 3), "loss nan", "  3%| | 3/9 [00:01<00:02, loss=9]", "step 4 lo")
    job.poll(NOW)
    assert job.curve() == []
    job.poll(LATER)
    assert job.curve() == [(1, 0.1), (2, 0.2), (3, 0.3)]
    with job.rank.output.open("a") as file:
        file.write("ss 0.4\r")
    job.prints("", *steps(4, 6))
    job.poll(LATER + 1)
    assert [step for step, _ in job.curve()] == [1, 2, 3, 4, 5, 6]
    (found,) = job.events("curves_found")
    assert (found["path"], found["how"], found["printed"]) == (str(job.rank.output), HOW, True)


def test_two_lines_prove_nothing_and_a_short_run_is_told_at_its_end(job: Printing) -> None:
    job.prints(*steps(1, 2))
    job.poll(NOW, ended=True)
    assert job.events("curves_found") == []
    job.prints(*steps(3, 3))
    job.poll(NOW, ended=True)
    assert len(job.curve()) == 3


def test_steps_that_begin_anew_in_each_epoch_are_no_curve(job: Printing) -> None:
    job.prints(*steps(1, 9, "Epoch 1 Step {} Loss {}"))
    job.poll(NOW)
    job.poll(LATER)
    job.prints(*steps(1, 9, "Epoch 2 Step {} Loss {}"))
    job.poll(LATER + 1)
    job.prints(*steps(10, 90))
    job.poll(LATER + 100, ended=True)
    assert (job.printed.is_over, job.events("curves_found"), job.rank.metrics.exists()) == (True, [], False)
    (dropped,) = job.events("data_dropped")
    assert "their steps go back" in str(dropped["reason"])


def test_steps_that_go_on_over_epochs_are(job: Printing) -> None:
    job.prints(*steps(1, 9, "Epoch 1 Step {} Loss {}"))
    job.poll(NOW)
    job.poll(LATER)
    assert job.curve() == []
    job.prints(*steps(10, 12, "Epoch 2 Step {} Loss {}"))
    job.poll(LATER + 1)
    assert len(job.curve()) == 12


def test_steps_of_an_epoch_that_say_of_how_many_are_those_of_the_run(job: Printing) -> None:
    form = "Epoch [{epoch}/3], Step [{{}}/9], Loss: {{}}"
    for epoch in (1, 2, 3):
        job.prints(*steps(1, 9, form.format(epoch=epoch)))
        job.poll(LATER * epoch)
    assert [step for step, _ in job.curve()] == list(range(1, 28))


OF_HOW_MANY = "Epoch [1/3], Step [{}/10000], Loss: {}"


def test_a_long_first_epoch_that_says_of_how_many_is_told_at_once(job: Printing) -> None:
    """It waited for the second epoch, and after 2,000 lines was never read again."""
    job.prints(*steps(1, 9, OF_HOW_MANY))
    job.poll(NOW)
    job.prints(*steps(10, 20, OF_HOW_MANY))
    job.poll(LATER)
    assert [step for step, _ in job.curve()] == list(range(1, 21))


def test_the_first_epoch_of_a_run_that_was_resumed_is_not(job: Printing) -> None:
    job.prints(*steps(1, 9, "Epoch [2/3], Step [{}/10000], Loss: {}"))
    job.poll(NOW)
    job.poll(LATER)
    assert job.curve() == []


def test_of_more_lines_than_can_wait_every_second_is_left_out(job: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader ended for good, and said nothing."""
    monkeypatch.setattr(printed_log, "MOST_HELD", 20)
    for first in (1, 11, 21, 31):
        job.prints(*steps(first, first + 9, "Epoch 1 Step {} Loss {}"))
        job.poll(NOW)
    job.prints("Epoch 2 Step 41 Loss 4.1")
    job.poll(LATER)
    found = [step for step, _ in job.curve()]
    assert (found[0], found[-1], len(found) <= 21) == (1, 41, True)
    assert max(after - before for before, after in pairwise(found)) <= 4
    (dropped,) = job.events("data_dropped")
    assert "before their steps were certain" in str(dropped["reason"])


def test_a_loss_that_is_not_finite_does_not_wait_for_the_second_epoch(job: Printing) -> None:
    """A run of one epoch could not be stopped at NaN."""
    job.prints(*steps(1, 4, "Epoch 1 Step {} Loss {}"))
    job.poll(NOW)
    job.poll(LATER)
    assert job.curve() == []
    job.prints("Epoch 1 Step 5 Loss nan")
    job.poll(LATER + 1)
    assert [step for step, _ in job.curve()] == [1, 2, 3, 4, 5]


def test_epochs_are_steps_where_no_line_has_one(job: Printing) -> None:
    job.prints(*steps(0, 4, "Epoch {} loss {}"))
    job.poll(NOW, ended=True)
    assert [step for step, _ in job.curve()] == [0, 1, 2, 3, 4]


def test_a_summary_before_the_first_step_does_not_keep_steps_out(job: Printing) -> None:
    job.prints("Epoch 0 val loss 9", *steps(1, 5), "Epoch 1 val loss 2", *steps(6, 9))
    job.poll(NOW, ended=True)
    assert [step for step, _ in job.curve()] == list(range(1, 10))


def test_steps_that_go_back_later_end_it_and_the_history_says_so(job: Printing) -> None:
    job.prints(*steps(1, 9))
    job.poll(NOW)
    job.poll(LATER)
    job.prints("step 8 loss 7", *steps(10, 11), *steps(1, 9))
    job.poll(LATER + 1)
    job.prints(*steps(100, 110))
    job.poll(LATER + 2)
    assert [step for step, _ in job.curve()] == list(range(1, 12))
    (dropped,) = job.events("data_dropped")
    assert "their steps go back" in str(dropped["reason"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_paceline_log_wins(job: Printing, when: str) -> None:
    job.prints(*steps(1, 5))
    spool = MetricSpool(job.rank.metrics)
    if when == "after":
        job.poll(NOW)
        job.poll(LATER)
    spool.write([Measurement(9, time.time(), {"mine": 1.0})])
    job.prints(*steps(6, 9))
    job.poll(LATER + 1)
    job.poll(LATER + 100)
    spool.close()
    assert [step for step, _ in job.curve()] == ([] if when == "before" else [1, 2, 3, 4, 5])
    assert job.printed.is_over


@pytest.mark.parametrize("has_scalars", [True, False])
def test_event_files_win_where_they_have_scalars(job: Printing, has_scalars: bool) -> None:
    """A writer that was made for a graph or a text alone ended the printed curves for good."""
    file = event_file(job.work, os.getpid())
    if has_scalars:
        add(file, 1, other=1.0)
    job.prints(*steps(1, 5))
    reader = CurveReader(
        Watch(
            ranks=(WatchedRank(0, str(job.rank.path), os.getpid(), exited=True),),
            directory=str(job.work),
            log_folder=str(job.rank.logs),
            started=job.started,
        )
    )
    reader.finish()
    assert (job.curve("other"), len(job.curve())) == (([(1, 1.0)], 0) if has_scalars else ([], 5))


def test_the_reader_tells_printed_lines_where_nothing_else_does(job: Printing) -> None:
    job.prints(*steps(1, 5))
    watch = Watch(
        ranks=(WatchedRank(0, str(job.rank.path), os.getpid(), exited=True),),
        directory=str(job.work),
        log_folder=str(job.rank.logs),
        started=job.started,
    )
    CurveReader(watch).finish()
    assert len(job.curve()) == 5
    job.prints(*steps(6, 7))
    CurveReader(watch).finish()  # of an agent that was started anew
    assert [step for step, _ in job.curve()] == [1, 2, 3, 4, 5, 6, 7]
    assert len(job.events("curves_found")) == 1


def test_a_flood_is_thinned_and_said_to_be(job: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_log, "MOST_TOLD", 1_000)
    job.prints(*steps(1, 3))
    job.poll(NOW)
    job.prints(*steps(4, 50_000))
    job.poll(LATER)
    assert 1_000 < len(job.curve()) <= 1_400
    assert job.printed.is_over
    reasons = [str(event["reason"]) for event in job.events("data_dropped")]
    assert len(reasons) == 2
    assert "lines a second" in reasons[0]


def test_a_log_with_a_hole_of_a_gigabyte_costs_neither_time_nor_memory(tmp_path: Path) -> None:
    """As the agent leaves one in the middle of a long output."""
    path = tmp_path / "output.log"
    path.write_text("step 1 loss 1\n")
    tail = PrintedLogTail(path)
    assert tail.read() == ["step 1 loss 1"]
    with path.open("r+b") as file:
        file.seek(1 << 30)
        file.write(b"\nstep 2 loss 2\n")
    tracemalloc.start()
    reads = 0
    found: list[str] = []
    while not tail.is_at_end:
        found, reads = found + tail.read(), reads + 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == ["step 2 loss 2"]
    assert reads <= MOST_BEHIND // READ_BYTES
    assert peak < 8 * READ_BYTES


def test_what_a_script_makes_of_its_log_ends_nothing(job: Printing) -> None:
    job.prints("x" * 3_000_000 + "loss", *steps(1, 3))
    job.poll(NOW)
    job.rank.output.write_text("step 4 loss 0.4\n")  # shorter
    job.poll(LATER)
    assert [step for step, _ in job.curve()] == [1, 2, 3, 4]
    job.rank.output.unlink()
    job.rank.output.mkdir()
    job.poll(LATER + 1)
    assert job.printed.is_over
