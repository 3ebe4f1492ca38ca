"""A Redis server that a test may kill and start again, always on the same port."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import redis

from tests.ports import HOST, free_port

START_SECONDS = 10.0
POLL_SECONDS = 0.02


@dataclass
class PrivateRedis:
    program: str
    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def start(self) -> None:
        command = [self.program, "--bind", HOST, "--port", str(self.port), "--dir", str(self.folder), "--save", ""]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, f"redis-server did not answer on port {self.port} within {START_SECONDS:.0f} s"
            assert self._process.poll() is None, f"redis-server ended with {self._process.returncode}"
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
            self._process = None

    def _answers(self) -> bool:
        try:
            with redis.Redis(host=HOST, port=self.port, socket_timeout=1, socket_connect_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
