"""`DistributedMonitor`: numbers of a loop that measures itself, to TensorBoard's event files and to the curves of its job."""

from __future__ import annotations

import math
from pathlib import Path
from types import TracebackType

from paceline.distributed.env import position
from paceline.monitoring.event_file import EventFileWriter
from paceline.monitoring.recorder import Recorder
from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.options import read_folder
from paceline.training.own_loop.recorders import job_recorder, kept_to_the_end, run_folder


class DistributedMonitor:
    """Every rank makes one and logs its own steps. Rank 0's files are in `log_dir`, those of rank N in `log_dir/rank-N`.

    In a job the numbers are curves of it too, unless a Trainer in the same process records them by itself.
    """

    def __init__(self, log_dir: str | Path = "./logs") -> None:
        folder = read_folder(log_dir)
        assert folder is not None
        self._place, self._step, self._closed = position(), 0, False
        self._files = kept_to_the_end(Recorder(EventFileWriter(run_folder(folder, self._place.rank))))

    def log_training_step(self, loss: float, batch_size: int, step_time: float, comm_time: float = 0.0, *, step: int | None = None) -> None:
        """Record one step of this rank: its loss, its samples, and the seconds of the step and of the communication in it.

        `step` counts on by itself if it is not given. A `comm_time` of NaN is not known, and not recorded. Raises InvalidInputError for a
        batch without samples, for a time that is not positive, for communication that takes longer than its step, and after `close`.
        """
        if self._closed:
            raise InvalidInputError("the monitor is closed, so that nothing would be written; close it after the last step")
        if not batch_size > 0:
            raise InvalidInputError(f"batch_size={batch_size} is less than 1; give the samples of this rank in the step")
        if not step_time > 0:
            raise InvalidInputError(f"step_time={step_time} is not positive; give the seconds that the step took")
        if comm_time < 0 or comm_time > step_time:
            raise InvalidInputError(f"comm_time={comm_time} is not between 0 and step_time={step_time}; give the seconds that ranks waited")
        self._step = self._step + 1 if step is None else step
        values = {
            "loss": float(loss),
            "samples_per_second": batch_size / step_time,
            "step_seconds": step_time,
            **({} if math.isnan(comm_time) else {"communication_seconds": comm_time}),
        }
        self._files.record(self._step, values)
        job = job_recorder()
        if job is not None and not job.is_reserved(values):
            job.record_own(self._step, values)

    def close(self) -> None:
        """Write what is queued. A second call does nothing."""
        self._closed = True
        self._files.close()

    def __enter__(self) -> DistributedMonitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
