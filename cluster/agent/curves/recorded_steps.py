"""The steps that a rank has recorded of each metric, so that no value is recorded twice: neither by two files, nor by a file and
`paceline.log`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.monitoring.points import MAX_NAMES, MetricRecord
from paceline.monitoring.spool import SpoolReader

#: Steps that are remembered of all names together. Beyond, a name's older half counts as told.
MAX_STEPS = 500_000


class RecordedSteps:
    """The recorded steps by metric name, in bounded memory: of a very long series only the newest steps are known one by one."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self._most = most
        self._steps: dict[str, set[int]] = {}
        self._floors: dict[str, int] = {}  # all steps below are told
        self._floor = 0  # the same, of every name
        self._count = 0
        self.newest = -1

    def add(self, name: str, step: int) -> bool:
        """Note a step of a metric. Returns False where it was recorded before."""
        steps = self._steps.setdefault(name, set())
        if step in steps or step < max(self._floor, self._floors.get(name, 0)):
            return False
        steps.add(step)
        self._count += 1
        self.newest = max(self.newest, step)
        if self._count > self._most:
            self._forget()
        return True

    def count_as_told(self, step: int) -> None:
        """Count all steps before `step` as recorded, of every metric."""
        self._floor = max(self._floor, step)

    def has_room_for(self, name: str) -> bool:
        return name in self._steps or len(self._steps) < MAX_NAMES

    def _forget(self) -> None:
        name, steps = max(self._steps.items(), key=lambda each: len(each[1]))
        floor = sorted(steps)[len(steps) // 2]
        kept = {step for step in steps if step >= floor}
        self._count -= len(steps) - len(kept)
        self._steps[name], self._floors[name] = kept, floor


class SpoolWatch:
    """Reads everything that is written into a rank's spool, by whichever process. Where its head is gone, the steps before the first one that is
    left count as recorded: which of them were cannot be known any more."""

    def __init__(self, path: Path, recorded_steps: RecordedSteps) -> None:
        self._reader, self._reported = SpoolReader(path), recorded_steps
        self._is_behind_gap = False

    @property
    def records(self) -> int:
        """The records that were written up to the last look, by all writers."""
        return self._reader.records

    def catch_up(self) -> None:
        before = self.records
        while payloads := self._reader.read():
            self._is_behind_gap |= self.records - len(payloads) > before
            before = self.records
            for payload in payloads:
                self._note(payload)

    def _note(self, payload: bytes) -> None:
        try:
            record = _decoder.decode(payload)
        except (ValueError, RecursionError):  # the rank's own doing: the uploader tells of it
            return
        if self._is_behind_gap:
            self._reported.count_as_told(record.step)
            self._is_behind_gap = False
        for name in record.values:
            self._reported.add(name, record.step)


_decoder = msgspec.json.Decoder(MetricRecord)
