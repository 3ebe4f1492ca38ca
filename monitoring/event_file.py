"""A sink that writes TensorBoard's event files, for training that no coordinator knows of."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from paceline.monitoring import tensorboard
from paceline.monitoring.files import Appender
from paceline.monitoring.sinks import SteppedRecord


class EventFileWriter:
    """A new file in `folder`, which is made where it is missing; TensorBoard reads what is in it while it grows."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        self.path = folder / tensorboard.file_name(now, f"{socket.gethostname()}.{os.getpid()}")
        self._file = Appender(self.path)
        self._file.append(tensorboard.header(now))

    def write(self, measurements: Iterable[SteppedRecord]) -> None:
        self._file.append(b"".join(tensorboard.scalars(measured.step, measured.time, measured.values) for measured in measurements))

    def close(self) -> None:
        self._file.close()
