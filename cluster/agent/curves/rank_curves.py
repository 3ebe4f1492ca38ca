"""What the files of one rank have told, on its way into the rank's spool."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster.agent.curves.names import Names
from cluster.agent.curves.told import SpoolWatch, Told
from monitoring.event_reader import Scalars
from monitoring.points import MAX_NAMES, MAX_STEP, DataDropped
from monitoring.sinks import EventSpool, MetricSpool
from training.link import RankFolder

MAX_TIME = 253_370_764_800.0  # the end of the year 9998
MAX_VALUES = 1_000  # of one record
#: Measurements that wait for room on the disk.
MAX_WAITING = 20_000
#: Files of which the job's history tells.
MAX_FOUND = 20


@dataclass
class Measurement:
    step: int
    time: float
    values: dict[str, float]


class RankCurves:
    def __init__(self, folder: str) -> None:
        self._folder = RankFolder.at(Path(folder))
        self._told, self._names = Told(), Names()
        self._watch = SpoolWatch(self._folder.metrics, self._told)
        self._waiting: list[Measurement] = []
        self._metrics: MetricSpool | None = None
        self._events: EventSpool | None = None
        self._warned: set[str] = set()
        self._found = 0

    def add(self, scalars: Iterable[Scalars], prefix: str = "") -> None:
        """To be written by `write`. What was told of the same name and step before wins."""
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
        elif not self._told.has_room_for(name):
            self.warn("metric names", f"over {MAX_NAMES} distinct names of metrics in one rank: log fewer", name)
        elif self._told.add(name, step):
            last = self._waiting[-1] if self._waiting else None
            if last is not None and last.step == step and len(last.values) < MAX_VALUES:
                last.values[name] = value
            elif len(self._waiting) < MAX_WAITING:
                self._waiting.append(Measurement(step, moment, {name: value}))
            else:
                self.warn("values of event files", "the disk takes none: free some room", f"step {step}")

    def catch_up(self) -> None:
        """With what the rank itself has told meanwhile."""
        self._watch.catch_up()

    def write(self) -> None:
        """Raises OSError where the disk does not take it now; then it is kept."""
        if not self._waiting:
            return
        if self._metrics is None:
            self._metrics = MetricSpool(self._folder.metrics)
        self._metrics.write(self._waiting)
        self._waiting = []

    def tell_found(self, path: str, how: str, *, late: bool) -> None:
        """In the job's history, of the first few files. `late`: the file has a step only some time after it was done."""
        self._found += 1
        if self._found <= MAX_FOUND:
            self._event_spool().emit("curves_found", {"path": path, "how": how, "late": late})

    def warn(self, what: str, reason: str, example: str) -> None:
        """In the job's history, once for each reason."""
        if reason not in self._warned and len(self._warned) < MAX_FOUND:
            self._warned.add(reason)
            self._event_spool().tell_dropped(DataDropped(what=what, count=1, reason=reason, example=example))

    def _event_spool(self) -> EventSpool:
        if self._events is None:
            self._events = EventSpool(self._folder.events)
        return self._events
