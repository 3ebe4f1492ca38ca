"""Reads the node and its cards once a second, and writes a record every few seconds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.upload.readings_spool import ReadingsStore
from paceline.monitoring.beats import until_beat
from paceline.monitoring.readings import Reading

READING_SECONDS = 1.0
#: Readings of a record: what dies with the agent, and how far behind the stream is.
RECORD_READINGS = 5
#: Readings that wait in memory while the disk takes none: ten minutes of them.
MOST_WAITING = 600

log = logging.getLogger(__name__)


class ReadingRecorder:
    """`take` returns what was read since its last call, and never waits for a driver; `on_record` is called when a record is written."""

    def __init__(self, take: Callable[[], Reading], spool: ReadingsStore, on_record: Callable[[], None], isolation: Isolation) -> None:
        self._take, self._spool, self._on_record, self._isolation = take, spool, on_record, isolation
        self._readings: list[Reading] = []
        self._given_up = 0
        self._writing = threading.Lock()  # one that was cancelled may be at it still

    async def run(self) -> None:
        """Read until cancelled. Seconds in which the machine did not come to it are left out, not made up for."""
        try:
            while True:
                await asyncio.sleep(until_beat(READING_SECONDS, time.monotonic()))
                await self.step_once()
        finally:
            with self._isolation.of("the last readings of the node"):
                self._write()

    async def step_once(self) -> None:
        """Read once, and write the record that is complete by that, outside of the event loop: disks may be slow."""
        reading = self._take()
        if reading.values:
            self._readings.append(reading)
        if len(self._readings) >= RECORD_READINGS:
            with self._isolation.of("readings of the node"):
                await asyncio.to_thread(self._write)
                self._on_record()

    def _write(self) -> None:
        """Write all that waits. Raises OSError where the disk takes nothing: the newest MOST_WAITING readings wait on."""
        with self._writing:
            while self._readings:
                record = self._readings[:RECORD_READINGS]
                del self._readings[:RECORD_READINGS]
                try:
                    self._spool.append(record)
                except OSError:
                    self._keep(record)
                    raise
            if self._given_up:
                log.warning("%d readings of the node found no room on its disk and were given up", self._given_up)
                self._given_up = 0

    def _keep(self, record: list[Reading]) -> None:
        self._readings[:0] = record
        excess = max(0, len(self._readings) - MOST_WAITING)
        del self._readings[:excess]
        self._given_up += excess
