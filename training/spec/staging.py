"""What cannot be trained in stages, said at submit: each with its reason and the nearest plan that works. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.parallelism.model_shape import NumberFormats
from paceline.parallelism.pipelines.stages import chain_of
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.limits import IN_STAGES, without_stages
from paceline.training.spec.derived import known_shape

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec


def why_not_in_stages(spec: JobSpec) -> str | None:
    """Return why the model cannot be split into stages, with the way out; None if no reason is known. Only a rank knows a user's own
    model."""
    if spec.parallelism.pipeline == 1:
        return None
    if isinstance(spec.model, HfModel) and spec.model.config is not None:
        family = str(spec.model.config["model_type"])
        if family not in IN_STAGES:
            return without_stages(family)
    return too_many_stages(spec)


def too_many_stages(spec: JobSpec) -> str | None:
    shape, plan = known_shape(spec, NumberFormats()), spec.parallelism
    units = len(chain_of(shape.layers)) if shape else plan.stages
    if plan.stages <= units:
        return None
    each = plan.stages_on_each_rank
    way_out = f"use pipeline={units // each} or fewer" if units >= 2 * each else "use ddp or fsdp without a pipeline"
    return (
        f"pipeline={plan.pipeline} with {each} stages on each rank makes {plan.stages} stages, but this model can be cut into {units} at most (blocks, and "
        f"what comes before and after them); {way_out}"
    )
