"""One job's reader over real files: whose they are, what is told of them, and what never is."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.curves.link import Watch, WatchedRank
from paceline.cluster.agent.curves.reader import CurveReader
from paceline.monitoring import tensorboard
from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.recorder import Measurement
from paceline.monitoring.sinks import MetricSpool
from paceline.monitoring.spool import SpoolReader
from paceline.training.rank_folder import RankFolder

HOST = socket.gethostname()


class Job:
    """A reader of one rank, whose process is this one."""

    def __init__(self, path: Path, *neighbours: Path, directory: Path | None = None) -> None:
        self.rank = RankFolder(path / "agent", "job", 1, 0)
        self.rank.path.mkdir(parents=True)
        self.rank.logs.mkdir()
        self.work = directory or path / "work"
        self.work.mkdir(exist_ok=True)
        self.rank.order.touch()
        self.started = self.rank.order.stat().st_mtime  # as the agent has it: a file's clock is a few milliseconds behind `time.time()`
        self._neighbours = tuple(map(str, neighbours))
        self.reader = self.begin()

    def begin(self, pid: int | None = None) -> CurveReader:
        watched = WatchedRank(0, str(self.rank.path), pid or os.getpid())
        return CurveReader(
            Watch(
                ranks=(watched,),
                directory=str(self.work),
                log_folder=str(self.rank.logs),
                started=self.started,
                neighbours=self._neighbours,
            )
        )

    def curve(self, name: str = "loss") -> list[tuple[int, float]]:
        return [(record.step, float(record.values[name])) for record in self.records() if name in record.values]

    def records(self) -> list[MetricRecord]:
        found = [msgspec.json.decode(payload, type=MetricRecord) for payload in SpoolReader(self.rank.metrics).read()]
        assert [record.seq for record in found] == list(range(1, len(found) + 1))
        return found

    def events(self, kind: str) -> list[dict[str, object]]:
        found = [msgspec.json.decode(payload, type=RankEvent) for payload in SpoolReader(self.rank.events).read()]
        return [event.data for event in found if event.kind == kind]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def event_file(folder: Path, pid: int | None, *, at: float | None = None, number: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    at = at or time.time()
    path = folder / tensorboard.file_name(at, HOST if pid is None else f"{HOST}.{pid}.{number}")
    path.write_bytes(tensorboard.header(at))
    return path


def add(path: Path, step: int, at: float | None = None, **values: float) -> None:
    with path.open("ab") as file:
        file.write(tensorboard.scalars(step, at or time.time(), values))


def test_a_growing_file_is_told_once_and_on_and_on(job: Job) -> None:
    path = event_file(job.work / "runs" / "a", os.getpid())
    add(path, 1, **{"train/loss": 2.0, "lr-AdamW": 0.1, "my own": 7.0})
    job.reader.poll()
    add(path, 2, **{"train/loss": math.nan})
    with path.open("ab") as file:
        whole = tensorboard.scalars(3, time.time(), {"train/loss": 1.0})
        file.write(whole[:-3])
    job.reader.poll()
    assert [step for step, _ in job.curve()] == [1, 2]
    assert math.isnan(job.curve()[1][1])
    with path.open("ab") as file:
        file.write(whole[-3:])
    job.reader.poll()
    job.reader.poll()
    assert job.curve()[2:] == [(3, 1.0)]
    assert (job.curve("learning_rate"), job.curve("my own")) == ([(1, pytest.approx(0.1))], [(1, 7.0)])
    (found,) = job.events("curves_found")
    assert (found["path"], found["how"]) == (str(path), f"process {os.getpid()} of this rank wrote it")


def test_a_new_reader_tells_nothing_twice(job: Job) -> None:
    """As after an agent was started anew."""
    path = event_file(job.work, os.getpid())
    add(path, 1, loss=1.0)
    job.reader.poll()
    add(path, 2, loss=2.0)
    job.begin().poll()
    assert job.curve() == [(1, 1.0), (2, 2.0)]


def test_files_of_other_programs_and_of_other_times_are_not_the_jobs(job: Job) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    theirs = event_file(job.work, other.pid)
    old = event_file(job.work / "old", os.getpid(), at=job.started - 100)
    elsewhere = job.work / f"events.out.tfevents.{int(time.time())}.other-host.{os.getpid()}.0"
    elsewhere.write_bytes(tensorboard.header(time.time()))
    for path in (theirs, old, elsewhere):
        add(path, 1, loss=1.0)
    job.reader.finish()
    other.communicate(b"\n", timeout=10)
    assert not job.rank.metrics.exists()


def test_a_process_that_left_the_session_is_known_by_its_environment(job: Job) -> None:
    environment = {**os.environ, "PACELINE_RANK_FOLDER": str(job.rank.path)}
    reader = job.begin(pid=1)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True, env=environment)
    deadline = time.monotonic() + 5
    while b"PACELINE_RANK_FOLDER" not in Path(f"/proc/{child.pid}/environ").read_bytes() and time.monotonic() < deadline:
        time.sleep(0.01)
    add(event_file(job.work, child.pid), 1, loss=1.0)
    reader.poll()
    child.communicate(b"\n", timeout=10)
    assert job.curve() == [(1, 1.0)]


def test_a_file_without_a_process_in_its_name_belongs_to_the_rank_that_has_it_open(job: Job) -> None:
    path = event_file(job.work, None)
    add(path, 1, loss=1.0)
    job.reader.poll()
    assert not job.rank.metrics.exists()
    with path.open("ab"):
        job.reader.poll()
    assert job.curve() == [(1, 1.0)]


def test_an_unknown_writer_is_reported_and_not_guessed(job: Job) -> None:
    path = event_file(job.work, None)
    add(path, 1, loss=1.0)
    job.reader.finish()
    (dropped,) = job.events("data_dropped")
    assert dropped["example"] == str(path)
    assert not job.rank.metrics.exists()


def test_whatever_lies_in_the_jobs_own_log_folder_is_its_own(job: Job) -> None:
    add(event_file(job.rank.logs / "run", None), 1, loss=1.0)
    job.reader.poll()
    assert job.curve() == [(1, 1.0)]


def test_paceline_log_wins(job: Job) -> None:
    path = event_file(job.work, os.getpid())
    spool = MetricSpool(job.rank.metrics)
    spool.write([Measurement(1, time.time(), {"loss": 5.0})])
    add(path, 1, loss=1.0, accuracy=0.5)
    job.reader.poll()
    spool.write([Measurement(2, time.time(), {"loss": 6.0})])
    assert (job.curve(), job.curve("accuracy")) == ([(1, 5.0), (2, 6.0)], [(1, 0.5)])
    spool.close()


def test_writers_with_the_same_tags_stay_apart(job: Job) -> None:
    main, below = event_file(job.work / "a", os.getpid()), event_file(job.work / "a" / "both_x", os.getpid(), number=1)
    beside = event_file(job.work / "val", os.getpid(), number=2)
    for path, value in ((main, 1.0), (below, 2.0), (beside, 3.0)):
        add(path, 1, loss=value)
    job.reader.poll()
    assert (job.curve(), job.curve("both_x/loss"), job.curve("eval_loss")) == ([(1, 1.0)], [(1, 2.0)], [(1, 3.0)])


def test_a_bad_file_ends_no_other(job: Job) -> None:
    good, bad, gone = (event_file(job.work / name, os.getpid(), number=number) for number, name in enumerate(("good", "bad", "gone")))
    bad.write_bytes(os.urandom(10_000))
    (job.work / "link").symlink_to(job.work)
    (job.work / f"events.out.tfevents.{int(time.time())}.{HOST}.{os.getpid()}.9").symlink_to("/dev/zero")
    job.reader.poll()
    gone.unlink()
    add(good, 1, loss=1.0)
    job.reader.poll()
    assert job.curve() == [(1, 1.0)]


def state(path: Path, *entries: tuple[int, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    history = [{"step": step, "loss": loss, "learning_rate": 0.1, "eval_accuracy": math.nan} for step, loss in entries]
    path.write_text(json.dumps({"global_step": entries[-1][0], "log_history": history}))


def test_the_trainers_own_history_is_told_but_for_what_lay_there_before(tmp_path: Path) -> None:
    """It was saved at step 10, and resumed from there."""
    earlier = tmp_path / "work" / "out" / "checkpoint-10" / "trainer_state.json"
    state(earlier, (5, 5.0), (10, 4.0))
    os.utime(earlier, (1.0, 1.0))
    job = Job(tmp_path)
    job.reader.poll()
    now = job.work / "out" / "checkpoint-20" / "trainer_state.json"
    now.parent.mkdir()
    now.write_text('{"log_history": [{"step"')  # transformers is about to write it
    job.reader.poll()
    state(now, (5, 5.0), (10, 4.0), (15, 3.0), (20, math.nan))
    job.reader.poll()
    assert [step for step, _ in job.curve()] == [15, 20]
    assert [step for step, _ in job.curve("eval/accuracy")] == [15, 20]


def test_event_files_and_the_trainers_history_tell_each_step_once(job: Job) -> None:
    path = event_file(job.work / "out" / "runs" / "now", os.getpid())
    add(path, 5, **{"train/loss": 5.0, "train/epoch": 1.0})
    job.reader.poll()
    state(job.work / "out" / "checkpoint-5" / "trainer_state.json", (5, 5.0))
    job.reader.poll()
    assert job.curve() == [(5, 5.0)]


def test_two_jobs_in_one_folder_do_not_get_each_others_history(tmp_path: Path) -> None:
    job = Job(tmp_path, tmp_path / "work")
    state(job.work / "theirs" / "checkpoint-5" / "trainer_state.json", (5, 5.0))
    add(event_file(job.work / "mine" / "runs", os.getpid()), 1, **{"train/loss": 2.0})
    job.reader.poll()
    state(job.work / "mine" / "checkpoint-5" / "trainer_state.json", (5, 1.0))
    job.reader.poll()
    job.reader.poll()
    assert job.curve() == [(1, 2.0), (5, 1.0)]
    assert "another job's script runs in the same folder" in str(job.events("data_dropped"))


def test_the_newest_checkpoint_is_told_at_the_end_at_the_latest(job: Job) -> None:
    (job.work / "epoch=0-step=10.ckpt").mkdir()
    for name in ("__0_0.distcp", ".metadata"):
        (job.work / "epoch=0-step=10.ckpt" / name).write_bytes(b"1234")
    job.reader.poll()
    assert job.events("file_saved") == [], "it may still be written"
    job.reader.finish()
    (saved,) = job.events("file_saved")
    assert (saved["path"], saved["step"], saved["bytes"]) == (str(job.work / "epoch=0-step=10.ckpt"), 10, 8)


def test_the_newest_checkpoint_is_told_also_where_another_jobs_script_runs(tmp_path: Path) -> None:
    """It was kept back, and the page said that there was none."""
    job = Job(tmp_path, tmp_path / "work")
    (job.work / "model.pt").write_bytes(b"1234")
    job.reader.finish()
    assert [saved["path"] for saved in job.events("file_saved")] == [str(job.work / "model.pt")]
