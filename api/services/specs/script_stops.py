"""Finds the entries in a job's progress that end a script by its policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.cluster.policy.views import PolicyStop
from paceline.cluster.states import EndReason
from paceline.db.models.jobs import JobRow
from paceline.monitoring.loss_watch import BadLossKind

#: The key in `jobs.progress` of the newest step whose loss was bad.
BAD_LOSS = "bad_loss"
_REASONS: Mapping[BadLossKind, EndReason] = {"not_finite": EndReason.LOSS_NOT_FINITE, "spike": EndReason.LOSS_SPIKE}


def stop_stands(progress: Mapping[str, Any], generation: int) -> bool:
    """Whether a bad loss that ends the job, of this generation or a later one, is in its `progress`. No other takes its place."""
    known = progress.get(BAD_LOSS)
    return isinstance(known, dict) and known["act"] == "stop" and bool(known["generation"] >= generation)


def stop_of(job: JobRow) -> PolicyStop | None:
    """Why a script is to be ended now. A trainer of ours ends by itself."""
    known = (job.progress or {}).get(BAD_LOSS)
    if not isinstance(known, dict) or known["generation"] != job.generation or known["act"] != "stop" or not job.spec.is_script:
        return None
    return PolicyStop(_REASONS[known["kind"]], known["what"], known["step"])
