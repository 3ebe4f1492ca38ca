"""Reads the files that one job's scripts write on this node into curves: finds the files, their ranks, and the new entries in them. Reports
the scripts' checkpoints, too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.agent.curves.event_files import EventFileReader
from paceline.cluster.agent.curves.link import Watch
from paceline.cluster.agent.curves.owners import CLOCK_SECONDS, MARK, Processes, Writer, is_alive, writer_of
from paceline.cluster.agent.curves.printed_log import PrintedCurves
from paceline.cluster.agent.curves.rank_curves import RankCurves
from paceline.cluster.agent.curves.runs import Runs
from paceline.cluster.agent.curves.saved_files import SavedFiles, is_saved_file
from paceline.cluster.agent.curves.search import CurveSearch
from paceline.cluster.agent.curves.trainer_state import FILE_NAME, TrainerStates, output_folder
from paceline.monitoring.event_reader import DamagedEventError
from paceline.training.rank_folder import RankFolder

MAX_FILES = 64  # that are followed
MAX_UNDECIDED = 200
#: The most reads of one file in one poll.
READS = 8
#: Between two looks for event files that were there before, and are open now.
OPEN_FILES_SECONDS = 5.0
#: transformers writes its state in place: what cannot be read yet is tried again for so long.
STATE_SECONDS = 30.0
FINISH_SECONDS = 3.0


def is_wanted(name: str) -> bool:
    return MARK in name or name == FILE_NAME or is_saved_file(name)


@dataclass
class FollowedFile:
    file: EventFileReader
    rank: int
    prefix: str


class CurveReader:
    """Reads the files of one generation. `watch` gives the ranks; `poll` reads a little."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._ranks: dict[int, RankCurves] = {}
        self._runs: dict[int, Runs] = {}
        self._processes = Processes()
        folders = {watch.log_folder, *([watch.directory] if watch.directory else (rank.folder for rank in watch.ranks))}
        self._searches = [CurveSearch(folder, is_wanted) for folder in sorted(folders)]
        self._saved = SavedFiles(folders, watch.started)
        self._undecided: dict[str, Writer] = {}
        self._followed: dict[str, FollowedFile] = {}
        self._done: set[str] = set()  # files that are another's, or can be read no further
        self._states: dict[str, float] = {}  # trainer_state.json of ours, by path: when it was last seen to be damaged, or 0
        self._histories: dict[Path, TrainerStates] = {}  # by output folder
        self._state_runs = Runs()
        self._open_files_at = 0.0
        self._printed: PrintedCurves | None = None
        self._files_report = False  # a file gave rank 0, whose curves are drawn, a scalar: files of graphs or texts alone do not
        self.update(watch)

    def update(self, watch: Watch) -> None:
        self._watch = watch
        for rank in watch.ranks:
            if rank.rank not in self._ranks:
                self._ranks[rank.rank], self._runs[rank.rank] = RankCurves(rank.folder), Runs()
        self._processes.update(watch.ranks)

    def poll(self) -> bool:
        """Read a little from each file. Returns whether anything was read."""
        self._processes.look()
        for search in self._searches:
            for path in search.look():
                self._consider(path)
            if search.left_out:
                self._leader.warn(
                    "folders", "too many folders to look for curves in: log to $PACELINE_LOG_DIR", self._watch.directory or ""
                )
        self._find_open_files()
        self._decide()
        for curves in self._ranks.values():
            curves.catch_up()
        read = [self._read(path) for path in list(self._followed)] + [self._read_state(path) for path in list(self._states)]
        read.append(self._read_printed())
        for curves in self._ranks.values():
            curves.write()
        self._report_saved()
        return any(read)

    def finish(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Read all there is, or as much as FINISH_SECONDS allow."""
        deadline = clock() + FINISH_SECONDS
        passes = [search.passes for search in self._searches]
        while clock() < deadline:
            read = self.poll()
            if not read and all(search.passes > before for search, before in zip(self._searches, passes, strict=True)):
                break
        self._report_saved(ended=True)
        for path, writer in self._undecided.items():
            if 0 in self._ranks and writer.here and writer.pid is None and writer.time >= self._watch.started - CLOCK_SECONDS:
                why = "it is not known which process wrote them: log to $PACELINE_LOG_DIR, or with TensorBoard's own writer"
                self._leader.warn("curves of event files", why, path)

    @property
    def _leader(self) -> RankCurves:
        return self._ranks[min(self._ranks)]

    # -- which files

    def _consider(self, path: str) -> None:
        if is_saved_file(os.path.basename(path)):
            self._saved.note(path)
            return
        if path in self._followed or path in self._done or path in self._undecided:
            return
        try:
            changed = os.stat(path, follow_symlinks=False).st_mtime
        except OSError:  # gone already
            return
        if os.path.basename(path) == FILE_NAME:
            self._consider_state(path, changed)
            return
        writer = writer_of(os.path.basename(path))
        is_new = writer is not None and writer.time >= self._watch.started - CLOCK_SECONDS
        if writer is not None and (is_new or changed >= self._watch.started) and len(self._undecided) < MAX_UNDECIDED:
            self._undecided[path] = writer

    def _find_open_files(self) -> None:
        """Find files that ranks have open: an old file that the job goes on writing, or one whose name does not give its process."""
        now = time.monotonic()
        if now < self._open_files_at and not any(writer.pid is None for writer in self._undecided.values()):
            return
        self._open_files_at = now + OPEN_FILES_SECONDS
        for path, rank in self._processes.open_files().items():
            below = any(Path(folder) in Path(path).parents for folder in (self._watch.directory, self._watch.log_folder) if folder)
            if below and path not in self._followed and path not in self._done:
                self._undecided.pop(path, None)
                self._follow(path, rank, "a process of this rank has it open")

    def _decide(self) -> None:
        """Decide about new files in the order in which they were begun: the first folder is the run."""
        for path, writer in sorted(self._undecided.items(), key=lambda each: (each[1].time, each[1].number, each[0])):
            rank, how = self._owner(path, writer)
            if rank is not None:
                self._follow(path, rank, how)
            elif writer.pid is not None and is_alive(writer.pid) and all(rank.pid is not None for rank in self._watch.ranks):
                self._done.add(path)  # another program's
            else:
                continue
            del self._undecided[path]

    def _owner(self, path: str, writer: Writer) -> tuple[int | None, str]:
        """(rank, how that is known) of a file; None while it is not known."""
        if writer.pid is not None and writer.time >= self._watch.started - CLOCK_SECONDS:
            rank = self._processes.rank_of(writer.pid)
            if rank is not None:
                return rank, f"process {writer.pid} of this rank wrote it"
        if Path(self._watch.log_folder) in Path(path).parents:
            return min(self._ranks), "it is in this job's PACELINE_LOG_DIR"
        return None, ""

    def _follow(self, path: str, rank: int, how: str) -> None:
        if len(self._followed) >= MAX_FILES:
            self._done.add(path)
            self._leader.warn("curves of event files", f"over {MAX_FILES} event files at once: write fewer", path)
            return
        prefix = self._runs[rank].prefix(Path(path).parent)
        self._followed[path] = FollowedFile(EventFileReader(Path(path), self._watch.started - CLOCK_SECONDS), rank, prefix)
        self._ranks[rank].report_found(path, how, late=False)

    # -- what is in them

    def _read(self, path: str) -> bool:
        """Read one file. An error is reported, and ends the reading of that file alone."""
        followed, found = self._followed[path], False
        with self._alone(path, followed.rank, "curves of event files"):
            for _ in range(READS):
                scalars = followed.file.read()
                self._ranks[followed.rank].add(scalars, followed.prefix)
                found = found or bool(scalars)
                self._files_report |= bool(scalars) and followed.rank == 0
                if not scalars:
                    break
        return found

    @contextmanager
    def _alone(self, path: str, rank: int, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:  # deleted
            self._followed.pop(path, None)
            self._states.pop(path, None)
        except (DamagedEventError, OSError, ValueError, MemoryError, RecursionError) as error:
            self._followed.pop(path, None)
            self._states.pop(path, None)
            self._done.add(path)
            self._ranks[rank].warn(what, f"{str(error) or type(error).__name__}", path)

    def _read_printed(self) -> bool:
        """Read the lines that rank 0 prints, where no other source gives a curve."""
        zero = next((rank for rank in self._watch.ranks if rank.rank == 0), None)
        if zero is None:
            return False
        if self._printed is None:
            self._printed = PrintedCurves(self._ranks[0], RankFolder.at(Path(zero.folder)).output)
        others_report = self._files_report or any(curves.rank_records for curves in self._ranks.values())
        return self._printed.poll(time.time(), others_report=others_report, ended=zero.exited)

    # -- trainer_state.json: transformers writes it where rank 0 is

    def _consider_state(self, path: str, changed: float) -> None:
        if 0 not in self._ranks or path in self._states:
            return
        history = self._histories.setdefault(output_folder(path), TrainerStates())
        if changed < self._watch.started:
            with self._alone(path, 0, "earlier curves of the Trainer"):
                history.note_earlier(path)
        elif self._is_certain(path):
            if not any(output_folder(known) == output_folder(path) for known in self._states):
                self._ranks[0].report_found(path, "no other job's script runs in this folder", late=True)
            self._states[path] = 0.0
        else:
            why = "another job's script runs in the same folder: give each job a working directory, or report_to='tensorboard'"
            self._ranks[0].warn("curves of trainer_state.json", why, path)

    # -- checkpoints: told where rank 0 is

    def _report_saved(self, *, ended: bool = False) -> None:
        """Report the newest checkpoint in the script's folders. A file does not tell its writer."""
        if 0 in self._ranks and (saved := self._saved.news(time.time(), ended=ended)) is not None:
            self._ranks[0].report_saved(saved)

    def _is_certain(self, path: str) -> bool:
        """Whether the trainer state belongs to this job: no other script runs where the file is, or an event file of this job lies in
        the same output folder."""
        if not any(Path(folder) in Path(path).parents for folder in self._watch.neighbours):
            return True
        return any(output_folder(path) in Path(followed).parents for followed in self._followed)

    def _read_state(self, path: str) -> bool:
        scalars = []
        with self._alone(path, 0, "curves of trainer_state.json"):
            try:
                scalars = self._histories[output_folder(path)].read(path)
                self._states[path] = 0.0
            except ValueError:  # it is being written
                self._states[path] = self._states[path] or time.monotonic()
                if time.monotonic() - self._states[path] > STATE_SECONDS:
                    raise
            if scalars:
                self._files_report = True
                self._ranks[0].add(scalars, self._state_runs.prefix(output_folder(path)))
        return bool(scalars)
