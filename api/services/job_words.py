"""Small facts about a job that several answers need in the same words."""

from __future__ import annotations

from api.schemas.common import Reason
from cluster import placement
from training.spec import JobSpec


def model_of(spec: JobSpec) -> str:
    if spec.model is not None:
        return spec.model.kind
    return "entrypoint" if spec.entrypoint is not None else "script"


def strategy_of(spec: JobSpec) -> str:
    return "script" if spec.script is not None else spec.parallelism.strategy


def reason_of(reason: placement.Reason) -> Reason:
    return Reason(code=reason.code, text=reason.text, missing=reason.missing, nearest_fit=reason.nearest_fit, next_step=reason.next_step)
