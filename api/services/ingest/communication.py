"""How a job sums its gradients, as its ranks have found out: `communication: auto`."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.db.models.jobs import JobRow

#: In a job's progress: the newest report.
COMMUNICATION = "communication"
#: Longest text that is kept of a rank's, and the options that are.
TEXT_CHARACTERS, MOST_OPTIONS = 500, 32


class ReportedOption(msgspec.Struct, frozen=True):
    name: str
    predicted_seconds: float | None = None
    measured_seconds: float | None = None
    taken: bool = False


class ReportedLink(msgspec.Struct, frozen=True):
    latency_seconds: float
    bytes_per_second: float


class CommunicationReport(msgspec.Struct, frozen=True):
    step: int
    text: str
    links: str
    why: str
    name: str
    waited_seconds: float
    options: list[ReportedOption] = []
    within: ReportedLink | None = None
    between: ReportedLink | None = None


def keep_communication(job: JobRow, told: CommunicationReport) -> dict[str, Any]:
    """Keep a report in the job's progress, and return it as a document. Texts are cut."""
    document: dict[str, Any] = msgspec.to_builtins(told)
    document |= {name: value[:TEXT_CHARACTERS] for name, value in document.items() if isinstance(value, str)}
    document["options"] = [each | {"name": each["name"][:TEXT_CHARACTERS]} for each in document["options"][:MOST_OPTIONS]]
    job.progress = {**(job.progress or {}), COMMUNICATION: document}
    return document
