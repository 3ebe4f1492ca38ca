"""Named steps with visible progress, and stamps that skip what has not changed. Standard library only: it runs before anything is installed."""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
PROGRESS_INTERVAL_S = 5.0
TAIL_LINES = 40


class StepError(Exception):
    """A step that did not work; the message says what to do."""


def say(message: str) -> None:
    print(f"==> {message}", flush=True)


def run(title: str, command: Sequence[str | Path], cwd: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    """Run a long command: its output goes to a log, a line of progress to the terminal every few seconds; its end is shown if it fails.

    Each line names the command, since another may run beside it.
    """
    say(title)
    log = CACHE / "logs" / f"{'-'.join(title.lower().split()[:4])}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        tail = _follow(process, title, log, began)
    if process.returncode != 0:
        sys.stdout.write("".join(tail))
        raise StepError(f"{title}: exit {process.returncode}; everything it said is in {log.relative_to(ROOT)}")
    print(f"    done in {time.monotonic() - began:.1f} s: {title}", flush=True)


def _follow(process: subprocess.Popen[str], title: str, log: Path, began: float) -> list[str]:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    assert process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    tail: list[str] = []
    shown = time.monotonic()
    with log.open("w") as file:
        while True:
            try:
                line = lines.get(timeout=PROGRESS_INTERVAL_S)
            except queue.Empty:
                line = ""
            if line is None:
                return tail
            if line:
                file.write(line)
                tail = [*tail[-TAIL_LINES:], line]
            if time.monotonic() - shown >= PROGRESS_INTERVAL_S:
                shown = time.monotonic()
                print(f"    {shown - began:4.0f} s  {title}: {_newest(tail)}", flush=True)


def _newest(lines: list[str]) -> str:
    """The last line that tells how far it is."""
    telling = (line.strip()[:100] for line in reversed(lines) if line.strip() and "warn" not in line.lower())
    return next(telling, "...")


def _read(pipe: TextIO, lines: queue.SimpleQueue[str | None]) -> None:
    for line in pipe:
        lines.put(line)
    lines.put(None)


class Stamp:
    """Remembers the content that a step last worked on."""

    def __init__(self, name: str, inputs: Iterable[Path], extra: str = "") -> None:
        self._path = CACHE / "stamps" / name
        self._hash = content_hash(inputs, extra)

    def fresh(self, *outputs: Path) -> bool:
        """Return whether the step ran on the same content and its outputs still exist."""
        return all(path.exists() for path in outputs) and self._path.exists() and self._path.read_text() == self._hash

    def set(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self._hash)


def content_hash(inputs: Iterable[Path], extra: str = "") -> str:
    """Return a hash over the names and contents of all files below the inputs, in a fixed order."""
    digest = hashlib.sha256(extra.encode())
    for path in inputs:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
