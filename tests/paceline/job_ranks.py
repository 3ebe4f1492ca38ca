"""Scripts as ranks of a job, without an agent: what each rank has left in its folder."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paceline.distributed.env import RANK_FOLDER, ScriptLaunch, script_environment
from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolReader
from paceline.training.link import RankPlace
from paceline.training.rank_folder import RankFolder
from tests.ports import HOST, free_port

JOB = "job1"
SECONDS = 150


@dataclass(frozen=True)
class Left:
    """What one rank has left."""

    stdout: str
    stderr: str
    records: list[MetricRecord]
    events: list[RankEvent]

    @property
    def points(self) -> list[tuple[int, dict[str, Any]]]:
        return [(record.step, record.values) for record in self.records]

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.kind == kind]


def run_job(folder: Path, script: str, world_size: int = 1) -> list[Left]:
    """Run `script` on each rank, in the working directory `folder`. By rank, what it has left; each must end with code 0."""
    port = free_port()
    ranks = [_start(folder, script, rank, world_size, port) for rank in range(world_size)]
    outputs = [process.communicate(timeout=SECONDS) for process in ranks]
    for process, (_, stderr) in zip(ranks, outputs, strict=True):
        assert process.returncode == 0, stderr
    return [_left(_folder(folder, rank), *output) for rank, output in enumerate(outputs)]


def run_alone(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run `script` outside of any job."""
    environment = {name: value for name, value in os.environ.items() if name != RANK_FOLDER}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True)


def _start(folder: Path, script: str, rank: int, world_size: int, port: int) -> subprocess.Popen[str]:
    place = RankPlace(
        job_id=JOB,
        generation=1,
        rank=rank,
        local_rank=rank,
        local_world_size=world_size,
        node_rank=0,
        world_size=world_size,
        slot=rank,
        device="cpu",
        store_host=HOST,
        store_port=port,
        store_token="t",
        checkpoint_directory=str(folder),
    )
    launch = ScriptLaunch(run_id=JOB, max_restarts=0, master_port=port, error_file=Path(os.devnull))
    spool = _folder(folder, rank)
    spool.path.mkdir(parents=True)
    environment = os.environ | script_environment(place, launch) | {RANK_FOLDER: str(spool.path)}
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _folder(folder: Path, rank: int) -> RankFolder:
    return RankFolder(folder / "agent", JOB, 1, rank)


def _left(folder: RankFolder, stdout: str, stderr: str) -> Left:
    records = [msgspec.json.decode(each, type=MetricRecord) for each in _payloads(folder.metrics)]
    events = [msgspec.json.decode(each, type=RankEvent) for each in _payloads(folder.events)]
    return Left(stdout, stderr, records, events)


def _payloads(path: Path) -> list[bytes]:
    reader, found = SpoolReader(path), []
    while payloads := reader.read():
        found += payloads
    return found
