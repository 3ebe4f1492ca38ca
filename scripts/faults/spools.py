"""Reads the metric spools of a job's ranks on this machine: every step of every rank, also of one that is fenced off or dead.

The coordinator stores the same records later, but refuses those of a generation that has ended: what such a rank still did is only here.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.monitoring.points import MetricRecord
from paceline.monitoring.spool import parse
from scripts.faults.history import Commit
from scripts.faults.tails import Tails

_decoder = msgspec.json.Decoder(MetricRecord)


def spools(data: Path, job_id: str) -> Tails:
    """Return the tails of all ranks' spools of one job on the stack in this folder, over all its generations."""
    return Tails(data, f"agents/*/jobs/{job_id}/g*/rank*/metrics.spool", take)


def take(path: Path, unread: bytes) -> tuple[list[Commit], int]:
    """Parse the unread bytes of the spool at `path`; return its commits, and how many bytes they took. `path` is
    agents/<node>/jobs/<job>/g<generation>/rank<rank>/metrics.spool."""
    folder = path.parent
    member, generation, rank = folder.parents[3].name, int(folder.parent.name[1:]), int(folder.name.removeprefix("rank"))
    payloads, taken = parse(unread)
    return [
        Commit(member, generation, rank, record.step, record.time, float(record.values["step_seconds"]))
        for record in map(_decoder.decode, payloads)
        if "step_seconds" in record.values  # a successor of rank 0 tells its last moments again, without having done them
    ], taken
