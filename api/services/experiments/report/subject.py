"""What a report is about: an experiment, what was asked of it, and the analysis that is written up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paceline.cluster.experiments.findings import Analysis


@dataclass(frozen=True)
class ReportSubject:
    experiment_id: str
    name: str
    project: str
    description: str
    made_at: datetime  # of the analysis
    complete: bool  # no trial can still change it
    seconds: float  # that the analysis took
    spec: Mapping[str, Any]  # as it was submitted
    analysis: Analysis

    @property
    def metric(self) -> str:
        """The name of the experiment's metric."""
        return str((self.spec.get("metric") or {}).get("name", "loss"))

    @property
    def minimizes(self) -> bool:
        return bool((self.spec.get("metric") or {}).get("goal", "minimize") == "minimize")

    @property
    def scaling(self) -> str:
        """`strong` or `weak`, as the spec says it."""
        return str(self.spec.get("scaling", "strong"))
