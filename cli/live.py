"""A job's progress for people: a panel that redraws itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from paceline.cli.api_types import Job
from paceline.cli.client import RestClient
from paceline.cli.job_facts import has_ended
from paceline.cli.render import formats
from paceline.cli.render.output import plain, print_line
from paceline.cli.settings import plain_output
from paceline.cli.waiting import patient

POLL_S = 0.25
PLAIN_INTERVAL_S = 5.0

Show = Callable[[Job], None]


def watch(client: RestClient, job_id: str) -> Job:
    """Show the job until it has ended; returns it as it ended."""
    with _screen() as show:
        while True:
            job = patient(functools.partial(client.job, job_id))
            show(job)
            if has_ended(job):
                return job
            threading.Event().wait(POLL_S)


def line(job: Job) -> str:
    return "  ".join(f"{name} {value}" for name, value in rows(job))


def rows(job: Job) -> list[tuple[str, str]]:
    progress = job.progress
    return [
        ("state", job.state if job.pending is None else f"{job.state}: {job.pending.text}"),
        ("step", formats.steps(progress.step, progress.total_steps)),
        ("loss", formats.number(progress.loss)),
        ("throughput", formats.throughput(progress.tokens_per_second, progress.samples_per_second)),
        ("ETA", formats.UNKNOWN if has_ended(job) else formats.duration(progress.eta_seconds)),
        ("world", f"{job.world_size} (generation {job.generation})"),
        ("checkpoint", formats.UNKNOWN if progress.last_checkpoint_step is None else f"step {progress.last_checkpoint_step}"),
    ]


@contextlib.contextmanager
def _screen() -> Iterator[Show]:
    if not sys.stdout.isatty() or plain_output():
        yield _PlainLines().show
        return
    with Live(console=Console(), refresh_per_second=8, transient=False) as live:
        yield lambda job: live.update(_panel(job))


def _panel(job: Job) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    for name, value in rows(job):
        grid.add_row(name, Text(plain(value)))
    if job.progress.total_steps:
        grid.add_row("", ProgressBar(total=job.progress.total_steps, completed=job.progress.step, width=40))
    return Panel(grid, title=job.name, title_align="left", expand=False)


class _PlainLines:
    """Progress as plain lines: one at each change of state, and one every few seconds in between."""

    def __init__(self) -> None:
        self._state = ""
        self._next = 0.0

    def show(self, job: Job) -> None:
        if job.state != self._state or time.monotonic() >= self._next:
            self._state, self._next = job.state, time.monotonic() + PLAIN_INTERVAL_S
            print_line(line(job))
