from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.ranks import Job


class MakeJob(Protocol):
    def __call__(self, spec: dict[str, Any], name: str = "job") -> Job: ...


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    return lambda spec, name="job": Job(tmp_path / name, spec)
