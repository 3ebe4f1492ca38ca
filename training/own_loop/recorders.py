"""Where an own loop's numbers go: to the curves of the job that it runs in, to TensorBoard's files, or nowhere. No torch in here."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

from paceline.distributed.env import Position, rank_folder
from paceline.monitoring.at_end import call_at_end
from paceline.monitoring.event_file import EventFileWriter
from paceline.monitoring.media_recorder import MediaRecorder
from paceline.monitoring.points import EventKind
from paceline.monitoring.recorder import Recorder, recorder_at
from paceline.monitoring.sinks import events_at
from paceline.training.optim.bad_loss import BadLossVerdict
from paceline.training.rank_folder import RankFolder
from paceline.training.schema.bad_loss import what_is_bad, what_is_done


@functools.cache
def job_recorder() -> Recorder | None:
    """Return the recorder of the job that this process is a rank of; None outside a job. Queued records are written when the process
    ends."""
    folder = job_folder()
    if folder is None:
        return None
    recorder = recorder_at(folder.metrics)
    recorder.on_dropped = lambda dropped: events_at(folder.events).emit_dropped(dropped)  # opened when there is something to tell
    return kept_to_the_end(recorder)


@functools.cache
def job_media_recorder() -> MediaRecorder | None:
    """Return what writes the job's images, histograms and tables; None outside a job. What is queued is written when the process ends."""
    recorder = job_recorder()
    if recorder is None:
        return None
    media = MediaRecorder(recorder.drop)
    call_at_end(media.close)  # before the recorder's own end, which tells what was dropped
    return media


def job_folder() -> RankFolder | None:
    """The folder of this process, which is a rank of a job; None outside one."""
    path = rank_folder()
    return None if path is None else RankFolder.at(path)


def emit(kind: EventKind, data: dict[str, Any]) -> None:
    """Tell the coordinator of an event on this rank; outside a job nothing is told."""
    folder = job_folder()
    if folder is not None:
        events_at(folder.events).emit(kind, data)


def report_bad_loss(step: int, bad: BadLossVerdict, rank: int, own_loss: float | None) -> None:
    """Tell of an update that is not applied: rank 0 tells the coordinator, and warns. `own_loss`: the bad loss of this rank's own batches, which
    the rank warns of, since only its loop knows their samples; None: they are good."""
    if rank == 0:
        emit("bad_loss", bad.event_data(step))
        warnings.warn(f"{what_is_bad(bad.kind, step, bad.loss, bad.limit)}: {what_is_done(bad.kind, bad.act)}", stacklevel=6)
    if own_loss is not None:
        warnings.warn(f"the batch of rank {rank} at step {step} has a loss of {own_loss:.4g}", stacklevel=6)


def recorders_for(place: Position, log_folder: Path | None) -> list[Recorder]:
    """Return the recorders of a Trainer: that of the job in which this process is a rank, and TensorBoard's files in `log_folder`."""
    job = job_recorder()
    found = [] if job is None else [job]
    if log_folder is not None:
        found.append(kept_to_the_end(Recorder(EventFileWriter(run_folder(log_folder, place.rank)))))
    return found


def run_folder(log_folder: Path, rank: int) -> Path:
    """Return the folder of one rank's event files. TensorBoard shows each folder as a run: rank 0's is `log_folder` itself, and has the
    curves of the job beside its own."""
    return log_folder if rank == 0 else log_folder / f"rank-{rank}"


def kept_to_the_end(recorder: Recorder) -> Recorder:
    """Close the recorder when the process ends, whatever is queued, and return it."""
    call_at_end(recorder.close)
    return recorder
