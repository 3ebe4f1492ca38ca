"""Small facts about a job, in the same words for several answers."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from paceline.api.schemas.common import Reason
from paceline.cluster.policy import placement
from paceline.parallelism.plan import Coordinates, Degrees
from paceline.training.schema.secret_names import readable_secrets
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload, EntrypointWorkload, ScriptWorkload

#: Events of a script's job: a file of its own becomes curves; so does what it prints.
CURVES_FOUND, CURVES_PRINTED = "job.curves_found", "job.curves_printed"
#: How a rank ended, by the kind of its failure; the dashboard has them from `api/constants.py`. Kinds that are not here are told by what else is known.
FAILURE_WORDS = {
    "out_of_memory": "ran out of memory",
    "peer_lost": "lost the connection to another rank",
    "node_lost": "was lost with its node",
    "node_removed": "ended with its node",
    "hang": "stopped making progress",
    "start_timeout": "did not start in time",
    "stop_timeout": "did not stop in time",
    "checkpoint_failed": "could not save or restore a checkpoint",
    "invalid_input": "has an invalid configuration",
    "loss_not_finite": "has a loss that is not finite",
    "loss_spike": "has a spike of the loss",
    "rolled_back": "goes back to the newest checkpoint because of its loss",
}


def model_of(spec: JobSpec) -> str:
    match spec.workload:
        case BuiltinWorkload(model):
            return model.kind
        case EntrypointWorkload():
            return "entrypoint"
        case ScriptWorkload():
            return "script"


def strategy_of(spec: JobSpec, world_size: int) -> str:
    """The strategy with the axes of its mesh, where it has any but replicas: "fsdp, tensor 2 x shard 2 x replicate 2"."""
    if isinstance(spec.workload, ScriptWorkload):
        return "script"
    sizes = spec.parallelism.degrees(world_size).sizes
    if not spec.parallelism.shards and set(sizes) <= {"replicate"}:
        return f"parameter_server, server {spec.parallelism.servers}" if spec.parallelism.has_servers else spec.parallelism.strategy
    axes = [f"{axis} {size}" for axis, size in reversed(sizes.items())]
    return f"{spec.parallelism.strategy}, {' x '.join(axes) or 'shard 1'}"


def places_in_mesh(spec: JobSpec, world_size: int) -> Sequence[dict[str, int]]:
    """By rank, its coordinates along each axis of more than one rank, or its number as a server or a worker. Empty for a script, which arranges its ranks by itself."""
    if isinstance(spec.workload, ScriptWorkload):
        return ()
    degrees = spec.parallelism.degrees(world_size)
    if degrees.servers:
        servers, workers = range(degrees.servers), range(degrees.replicate)
        return [*({"server": number} for number in servers), *({"worker": number} for number in workers)]
    return _coordinates(degrees, world_size)


@functools.lru_cache(maxsize=64)
def _coordinates(degrees: Degrees, world_size: int) -> Sequence[dict[str, int]]:
    """Kept, as every look at a job of hundreds of ranks asks for them, and they follow from its plan."""
    return [{str(axis): place for axis, place in Coordinates(degrees, rank).by_axis.items()} for rank in range(world_size)]


def reason_of(reason: placement.PlacementReason) -> Reason:
    return Reason(code=reason.code, text=reason.text, missing=reason.missing, nearest_fit=reason.nearest_fit, next_step=reason.next_step)


def readable_secrets_warning(spec: JobSpec) -> str | None:
    """The warning about variables of a job whose names are those of secrets."""
    if not (names := readable_secrets(spec.environment.variables)):
        return None
    first = f"`paceline secret set {names[0]}`"
    return (
        f"environment.variables has {', '.join(names)}: everybody who sees the job can read a variable, and it is stored as it is; "
        f"keep secrets with {first} and name them in environment.secrets"
    )
