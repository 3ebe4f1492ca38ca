from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.gangs import Job


class MakeJob(Protocol):
    def __call__(self, spec: dict[str, Any], name: str = "job") -> Job: ...


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[MakeJob]:
    """Whatever of the jobs still runs when the test ends, ends with it."""
    jobs: list[Job] = []

    def make(spec: dict[str, Any], name: str = "job") -> Job:
        jobs.append(Job(tmp_path / name, spec))
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()
