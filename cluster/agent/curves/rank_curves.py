"""Values from the files of one rank, on their way into the rank's spool."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline.cluster.agent.curves.recorded_steps import RecordedSteps, SpoolWatch
from paceline.cluster.agent.curves.saved_files import ScriptCheckpoint
from paceline.monitoring.event_reader import Scalars
from paceline.monitoring.names import Names
from paceline.monitoring.points import MAX_NAMES, MAX_STEP, DataDropped
from paceline.monitoring.sinks import EventSpool, MetricSpool
from paceline.monitoring.spool import SpoolReader
from paceline.training.rank_folder import RankFolder

MAX_TIME = 253_370_764_800.0  # the end of the year 9998
MAX_VALUES = 1_000  # of one record
#: Measurements that wait for room on the disk.
MAX_WAITING = 20_000
#: Files of which the job's history tells.
MAX_FOUND = 20


@dataclass
class WaitingMeasurement:
    step: int
    time: float
    values: dict[str, float]


class RankCurves:
    def __init__(self, folder: str) -> None:
        self._folder = RankFolder.at(Path(folder))
        self._reported, self._names = RecordedSteps(), Names()
        self._watch = SpoolWatch(self._folder.metrics, self._reported)
        self._waiting: list[WaitingMeasurement] = []
        self._metrics: MetricSpool | None = None
        self._events: EventSpool | None = None
        self._warned: set[str] = set()
        self._found = 0
        self._written = 0  # records of ours

    def add(self, scalars: Iterable[Scalars], prefix: str = "") -> None:
        """Add a value for the next `write`. An earlier value of the same name and step wins."""
        for step, moment, values in scalars:
            if not 0 <= step <= MAX_STEP:
                self.warn("values of event files", f"step {step} is not between 0 and {MAX_STEP}", values[0][0])
                continue
            moment = moment if 0 <= moment <= MAX_TIME else time.time()
            for tag, value in values:
                self._add(step, moment, prefix + tag, value)

    def _add(self, step: int, moment: float, tag: str, value: float) -> None:
        name = self._names.name(tag)
        if name is None:
            self.warn("values of event files", "their names are empty or too long: use shorter ones", tag[:100])
        elif not self._reported.has_room_for(name):
            self.warn("metric names", f"over {MAX_NAMES} distinct names of metrics in one rank: log fewer", name)
        elif self._reported.add(name, step):
            last = self._waiting[-1] if self._waiting else None
            if last is not None and last.step == step and len(last.values) < MAX_VALUES:
                last.values[name] = value
            elif len(self._waiting) < MAX_WAITING:
                self._waiting.append(WaitingMeasurement(step, moment, {name: value}))
            else:
                self.warn("values of event files", "the disk takes none: free some room", f"step {step}")

    def catch_up(self) -> None:
        """Note the values that the rank itself has recorded since the last call."""
        self._watch.catch_up()

    def write(self) -> None:
        """Write the added values to the spool. Raises OSError where the disk does not take them now; they are kept for the next call."""
        if not self._waiting:
            return
        if self._metrics is None:
            self._metrics = MetricSpool(self._folder.metrics)
        self._metrics.write(self._waiting)
        self._written += len(self._waiting)
        self._waiting = []

    @property
    def rank_records(self) -> bool:
        """Whether the rank itself has recorded anything, as `paceline.log` does; as of the last `catch_up`."""
        return self._watch.records > self._written

    def claim_printed(self, how: str) -> bool:
        """Whether an earlier reader of this generation has reported printed lines; then it has reported what is recorded so far."""
        self.catch_up()
        events = SpoolReader(self._folder.events)
        while payloads := events.read():
            if any(b'"curves_found"' in payload and how.encode() in payload for payload in payloads):
                self._written = self._watch.records
                return True
        return False

    def report_printed(self, path: str, how: str) -> None:
        """Note in the job's history that its curves come from the lines it prints."""
        self._event_spool().emit("curves_found", {"path": path, "how": how, "late": True, "printed": True})

    def report_found(self, path: str, how: str, *, late: bool) -> None:
        """Note a file in the job's history, for the first few files. `late`: the file gets a step only some time after the step was
        done."""
        self._found += 1
        if self._found <= MAX_FOUND:
            self._event_spool().emit("curves_found", {"path": path, "how": how, "late": late})

    def report_saved(self, saved: ScriptCheckpoint) -> None:
        """Note a checkpoint in the job's history, and as the job's newest checkpoint."""
        self._event_spool().emit("file_saved", asdict(saved))

    def warn(self, what: str, reason: str, example: str) -> None:
        """Note a warning in the job's history, once for each reason."""
        if reason not in self._warned and len(self._warned) < MAX_FOUND:
            self._warned.add(reason)
            self._event_spool().emit_dropped(DataDropped(what=what, count=1, reason=reason, example=example))

    def _event_spool(self) -> EventSpool:
        if self._events is None:
            self._events = EventSpool(self._folder.events)
        return self._events
