"""What follows from a job spec without being written in it: the micro-batch in samples, the fewest ranks, whether survivors close up. Pure.

`spec.training.micro_batch_size` is what was asked for; `micro_batch_size(spec)` is the number that the ranks use.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.compression.options import CompressionOptions
from paceline.objects.location import place_at
from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.model_shape import ModelShape, NumberFormats
from paceline.training.models.catalog import shape_of
from paceline.training.schema.communication import Communication
from paceline.training.schema.training import TrainingLength
from paceline.training.spec.workload import BuiltinWorkload, ScriptWorkload

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec  # whose validators ask this module

#: Micro-batches of a reproducible job's global batch for each rank of a replica, unless micro_batch_size says otherwise: even on 1, 2, 4 and 8
#: replicas.
DEFAULT_MICRO_BATCHES = 8
#: A pipeline's global batch is cut into so many for each of its ranks: then 1F1B idles for a fifth of a step, or less.
MICRO_BATCHES_PER_RANK = 4


def closes_up(spec: JobSpec) -> bool:
    """Whether survivors of a fault go on without the lost ranks, and ranks may come and go while the job runs."""
    return why_not_close_up(spec) is None


def saves_in_default_folder(spec: JobSpec) -> bool:
    """Whether checkpoints go to the default folder of the nodes: all ranks have to see the same one."""
    return not isinstance(spec.workload, ScriptWorkload) and spec.checkpoint.directory is None


def named_folder(spec: JobSpec) -> str | None:
    """The folder that the spec names for checkpoints, where the mounts of nodes have to tell whether all ranks see the same one. None: it names none, it
    says that all nodes share it, or checkpoints go to an object store."""
    directory = spec.checkpoint.directory
    if isinstance(spec.workload, ScriptWorkload) or directory is None or spec.checkpoint.shared:
        return None
    place = place_at(directory)
    return posixpath.normpath(place) if isinstance(place, Path) else None


def needs_one_folder(spec: JobSpec) -> bool:
    """Whether the ranks of a job have to be on nodes that share a folder: its `named_folder`, or their default one."""
    return saves_in_default_folder(spec) or named_folder(spec) is not None


def why_not_close_up(spec: JobSpec) -> str | None:
    """Return the reason why survivors of this job cannot close up, with the way out. None if they can."""
    if isinstance(spec.workload, ScriptWorkload):
        return "a script is started again as a whole; leave it out, or use an entrypoint or a model"
    if spec.parallelism.strategy == "single":
        return "strategy single is one process; use ddp"
    return None if spec.fault_tolerance.recovery == "close_up" else "set fault_tolerance.recovery to close_up"


def is_elastic_script(spec: JobSpec) -> bool:
    """Whether the job is a script that is started again with another world when nodes are lost or come back, as under torchrun."""
    return isinstance(spec.workload, ScriptWorkload) and spec.resources.is_elastic


def can_resize(spec: JobSpec) -> bool:
    """Whether a user may give the running job another size."""
    return spec.resources.is_elastic if isinstance(spec.workload, ScriptWorkload) else spec.parallelism.strategy != "single"


def saves_when_stopped(spec: JobSpec) -> bool:
    """Whether ranks that are told to stop save first. A script does if its user says so, or if it may be started again at another size."""
    match spec.workload:
        case ScriptWorkload(script):
            return script.saves_on_sigterm or spec.resources.is_elastic
    return True


def min_ranks(spec: JobSpec) -> int:
    """Return the fewest ranks that a job which closes up goes on with, or that an elastic script is started with.

    Unless its user says so, no rank is given more of the model to hold than it has at full size: it might not fit.
    """
    if spec.resources.min_blocks is not None:
        return spec.resources.min_blocks * spec.resources.slots_per_block
    if isinstance(spec.workload, ScriptWorkload):
        return spec.world_size
    return spec.parallelism.ranks_of_replica(spec.world_size)


def is_reproducible(spec: JobSpec) -> bool:
    """Whether losses and parameters are the same to the last bit on any number of ranks.

    Plain replicas are reproducible by default: it costs too little to be worth a question. Parts and stages pay for it with memory, and parts
    of gradients are added up in an order that depends on how many there are. A script adds gradients up by itself.
    """
    if spec.reproducible is not None:
        return spec.reproducible
    return not (isinstance(spec.workload, ScriptWorkload) or spec.parallelism.in_parts or sums_in_buckets(spec))


def sums_in_buckets(spec: JobSpec) -> bool:
    """Whether the job asks for a way to sum gradients that only DDP's buckets and HSDP's replicas have."""
    return spec.communication != Communication()


def leaves_buckets_open(spec: JobSpec) -> bool:
    """Whether gradients go in buckets, and the job does not say of what size."""
    plan = spec.parallelism
    return plan.strategy == "ddp" and not (plan.in_parts or is_reproducible(spec)) and spec.communication.bucket_mb is None


def communication_options(spec: JobSpec) -> CommunicationOptions:
    """Return how the job asks for its gradients to be summed, with the default where it leaves the choice."""
    asked = spec.communication
    kind = "none" if asked.compression == "auto" else asked.compression
    algorithm: Algorithm = "backend" if asked.algorithm == "auto" else asked.algorithm
    compression = CompressionOptions(kind, asked.ratio, asked.threshold, asked.rank, asked.dense_steps)
    return CommunicationOptions(algorithm, compression, asked.exclude, asked.bucket_mb, asked.static_graph)


def training_of(spec: JobSpec) -> TrainingLength:
    """Return the `training` section of a job that Paceline's trainer runs. Raises TypeError for a script, which has none."""
    workload = spec.workload
    if isinstance(workload, ScriptWorkload):
        raise TypeError(f"job {spec.name} runs a script, which has no training section")
    return workload.training


def searches_micro_batch(spec: JobSpec) -> bool:
    """Whether the micro-batch size is still to be found by trying."""
    return spec.training is not None and spec.training.micro_batch_size == "auto"


def micro_batch_size(spec: JobSpec) -> int:
    """Return the samples per forward pass of a job that Paceline's trainer runs. A reproducible job's do not depend on its resources.

    Where the size is to be found by trying (`searches_micro_batch`), ranks build with this one until then.
    """
    training, plan = training_of(spec), spec.parallelism
    if isinstance(training.micro_batch_size, int):
        return training.micro_batch_size
    if is_reproducible(spec):
        parts = DEFAULT_MICRO_BATCHES * (plan.shard or 1) * plan.pipeline
    else:
        parts = data_ranks(spec, spec.resources.most_ranks) * (MICRO_BATCHES_PER_RANK * plan.pipeline if plan.pipeline > 1 else 1)
    return -(-training.global_batch_size // parts)


def micro_batches(spec: JobSpec) -> int:
    """Return the number of micro-batches in one global batch; the last one may be smaller."""
    return -(-training_of(spec).global_batch_size // micro_batch_size(spec))


def data_ranks(spec: JobSpec, ranks: int) -> int:
    """Return how many of `ranks` ranks get micro-batches of their own. Raises WorldSizeMismatchError."""
    return spec.parallelism.degrees(ranks).data


def known_shape(spec: JobSpec, numbers: NumberFormats) -> ModelShape | None:
    """Return the model's shape; None for a user's own model or script, and for some of transformers (`hf/shape.py`)."""
    match spec.workload:
        case BuiltinWorkload(model, data):
            return shape_of(model, data, numbers)
    return None
