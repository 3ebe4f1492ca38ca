"""Where an own loop's numbers go: to the curves of the job that it runs in, to TensorBoard's files, or nowhere. No torch in here."""

from __future__ import annotations

import atexit
import functools
from pathlib import Path

from distributed.env import Position, rank_folder
from monitoring.event_file import EventFile
from monitoring.recorder import Recorder, recorder_at
from monitoring.sinks import events_at
from training.link import RankFolder


@functools.cache
def job_recorder() -> Recorder | None:
    """Of the job that this process is a rank of; None outside one. What it was given is written when the process ends."""
    path = rank_folder()
    if path is None:
        return None
    folder = RankFolder.at(path)
    recorder = recorder_at(folder.metrics)
    recorder.tell = lambda dropped: events_at(folder.events).tell_dropped(dropped)  # opened when there is something to tell
    return kept_to_the_end(recorder)


def recorders_for(place: Position, log_folder: Path | None) -> list[Recorder]:
    """Of every rank in a job; TensorBoard's files are written by rank 0 alone."""
    job = job_recorder()
    found = [] if job is None else [job]
    if log_folder is not None and place.rank == 0:
        found.append(kept_to_the_end(Recorder(EventFile(log_folder))))
    return found


def kept_to_the_end(recorder: Recorder) -> Recorder:
    """Its thread ends with the process, whatever is queued."""
    atexit.register(recorder.close)
    return recorder
