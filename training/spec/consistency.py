"""What the sections of a job spec cannot be together: every reason at once, each with its way out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from paceline.training.models.catalog import MODEL_DATA
from paceline.training.spec import derived
from paceline.training.spec.conflicts import (
    enough_micro_batches,
    too_few_micro_batches,
    too_many_micro_batches,
    why_not_auto,
    why_not_together,
)
from paceline.training.spec.staging import why_not_in_stages
from paceline.training.spec.workload import BuiltinWorkload

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec

#: Between the reasons, where they are told in one sentence.
ALSO = "; also: "


def inconsistencies(spec: JobSpec) -> list[str]:
    """Return all reasons; none: the sections fit. Of the sizes of a world the first, since the others follow from it."""
    found = [*_workload(spec), *why_not_together(spec), *_elasticity(spec)]
    if (reason := why_not_auto(spec)) is not None:
        found.append(reason)
    if (reason := next(_world_size(spec), None)) is not None:
        found.append(reason)
    return list(dict.fromkeys(found))


def _workload(spec: JobSpec) -> Iterator[str]:
    match spec.workload:
        case BuiltinWorkload(model, data) if data.kind not in MODEL_DATA[model.kind]:
            yield f"model {model.kind} does not train on data {data.kind}; it takes {', '.join(sorted(MODEL_DATA[model.kind]))}"


def _elasticity(spec: JobSpec) -> Iterator[str]:
    way_out, asked = derived.why_not_close_up(spec), spec.resources
    if way_out is None:
        return
    if asked.is_elastic and not derived.is_elastic_script(spec):
        least, most, unit = asked.min_blocks, asked.max_blocks, asked.unit
        name, value = (f"max_{unit}", most) if most not in (None, asked.blocks) else (f"min_{unit}", least)
        yield f"resources.{name}={value} is for jobs that close up: {way_out}"
    if spec.fault_tolerance.spares:
        yield f"fault_tolerance.spares={spec.fault_tolerance.spares} is for jobs that close up: {way_out}"


def _world_size(spec: JobSpec) -> Iterator[str]:
    """Reasons against a number of ranks. A plan that auto is to choose is checked once it is chosen."""
    plan, asked = spec.parallelism, spec.resources
    if plan.is_auto:
        return
    if plan.strategy == "single" and spec.world_size != 1:
        yield f"strategy single is one process, but resources ask for {spec.world_size} slots; use ddp or one slot"
    if misfit := why_not_in_stages(spec) or plan.misfit(spec.world_size):
        yield misfit
    for name, blocks in ((f"min_{asked.unit}", asked.min_blocks), (f"max_{asked.unit}", asked.max_blocks)):
        if blocks is not None and (misfit := plan.misfit(blocks * asked.slots_per_block)):
            yield f"resources.{name}={blocks}: {misfit}; or leave {name} out"
    if reason := too_many_micro_batches(spec):
        yield reason
    if reason := too_few_micro_batches(spec, asked.most_ranks):
        elastic = f" (resources.max_{asked.unit})" if asked.most_ranks > spec.world_size else ""
        yield f"{reason}{elastic}; {enough_micro_batches(spec)}"
