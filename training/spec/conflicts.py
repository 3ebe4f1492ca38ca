"""What a job cannot ask for together, said at submit: each with its reason and the way out. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.distributed.timeouts import COLLECTIVE_SECONDS
from paceline.objects import location
from paceline.parallelism.model_shape import NumberFormats
from paceline.parallelism.pipelines.schedules import SCHEDULES
from paceline.training.models.gpt import limits as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.hf import limits as hf
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.shape import FAMILIES
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.schema.bad_loss import NEED_A_TRAINER
from paceline.training.schema.communication import Communication
from paceline.training.schema.data import Mnist
from paceline.training.schema.optimizer import Adafactor
from paceline.training.schema.parallelism import Parallelism
from paceline.training.schema.profile_window import beyond_world
from paceline.training.spec import derived
from paceline.training.spec.workload import ScriptWorkload

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec

#: What means something to some kinds of compression only.
OF_COMPRESSION = {
    "ratio": ("top_k",),
    "threshold": ("top_k",),
    "rank": ("power_sgd",),
    "dense_steps": ("top_k", "power_sgd"),
    "exclude": ("top_k", "power_sgd"),
}
#: What a script may do instead.
_IN_A_LOOP = {"skip_update": "; a loop with paceline.Trainer has {name}='skip_update' of its own"}
#: The most micro-batches of a global batch. Each is dealt out, and with `reproducible` is a leaf of the tree that adds gradients up.
MOST_MICRO_BATCHES = 1 << 16


def why_not_together(spec: JobSpec) -> list[str]:
    """All reasons; none: nothing is in the way. Of a script that asks for what needs the trainer, only these are told."""
    if isinstance(spec.workload, ScriptWorkload) and (own := why_not_with_a_script(spec)):
        return own
    return [reason for check in _CHECKS if (reason := check(spec)) is not None]


def why_not_with_a_script(spec: JobSpec) -> list[str]:
    found = []
    if spec.parallelism not in (Parallelism(), Parallelism(strategy="single")):
        found.append("a script arranges its ranks by itself: leave parallelism out, or use model or entrypoint")
    if spec.reproducible:
        found.append("reproducible=true needs Paceline's trainer: leave it out for script, or use model or entrypoint")
    if spec.compile:
        found.append("compile=true needs Paceline's trainer: leave it out for script, which compiles by itself")
    found += [
        f"fault_tolerance.{name}={policy} needs Paceline's trainer, which asks before it updates: use stop or warn for script, or use an "
        f"entrypoint or a model{_IN_A_LOOP.get(policy, '').format(name=name)}"
        for name in ("on_nan", "on_spike")
        if (policy := getattr(spec.fault_tolerance, name)) in NEED_A_TRAINER
    ]
    if spec.profile is not None:
        found.append("profile needs Paceline's trainer, which knows where a step begins: leave it out for script")
    if spec.gradients is not None:
        found.append(
            "gradients needs Paceline's trainer, which has the gradients: leave it out for script, and look at them in its own loop with "
            "paceline.intercept_gradients (docs/gradients.md), or use an entrypoint or a model"
        )
    if spec.initial_weights is not None:
        found.append(f"initial_weights={spec.initial_weights} needs Paceline's trainer: leave it out for script, which loads them itself")
    return found


def why_not_other_digits(spec: JobSpec) -> str | None:
    """Every rank decides by itself, and all must train on the same."""
    if isinstance(spec.data, Mnist) and spec.data.fallback is not None and max(spec.resources.nodes, spec.resources.max_nodes or 1) > 1:
        return "data.fallback=digits is for jobs on one node, since another node may have MNIST; leave it out, or use data.kind=digits"
    return None


def why_not_normed(spec: JobSpec) -> str | None:
    """Return why batch norm cannot train on a micro-batch of one sample, with the way out, or None. Images of all data have at most 32 pixels a
    side, of which the five halvings of the ImageNet form leave one value per channel and sample."""
    if not isinstance(spec.model, ResnetModel) or spec.model.form != "imagenet" or spec.training is None or spec.parallelism.is_auto:
        return None
    total, asked = spec.training.global_batch_size, derived.micro_batch_size(spec)
    if derived.searches_micro_batch(spec) or (total % asked or asked) > 1:
        return None
    fitting = next((size for size in range(max(2, asked), total + 1) if total % size != 1), None)
    way_out = f"set training.micro_batch_size={fitting}" if fitting else "use training.global_batch_size=2 or more"
    return (
        f"global_batch_size={total} in micro-batches of {asked} has one of 1 sample, of which batch norm has a single value per channel at the end "
        f"of a resnet of the ImageNet form; {way_out}"
    )


def why_not_these_packages(spec: JobSpec) -> str | None:
    """Return what only a program of the user's own can have: another torch, or a container. None where nothing is in the way."""
    if isinstance(spec.workload, ScriptWorkload):
        return None
    if spec.environment.own_torch:
        return "environment.own_torch=true is for scripts: Paceline's trainer uses the node's torch; leave it out, or use script"
    if spec.environment.image is not None:
        return (
            f"environment.image={spec.environment.image} is for scripts: a rank of Paceline's trainer is forked on the node; use script, or "
            "environment.requirements"
        )
    return None


def why_not_this_optimizer(spec: JobSpec) -> str | None:
    plan = spec.parallelism
    if not isinstance(spec.optimizer, Adafactor) or not (plan.shards or plan.tensor > 1):
        return None
    cut = "strategy=fsdp" if plan.shards else plan.model_parallel_sizes
    return (
        f"optimizer.kind=adafactor with {cut} is not offered: its state is a row and a column of each whole matrix, of which a rank has only a "
        "part; use ddp or a pipeline, or adamw, nadam, rmsprop or sgd, whose state is cut as the parameters are"
    )


def why_not_with_servers(spec: JobSpec) -> str | None:
    """Return what a job with parameter servers cannot ask for, with the way out, or None."""
    if not spec.parallelism.has_servers:
        return None
    if spec.precision == "fp16":
        return (
            "precision=fp16 with strategy parameter_server is not offered: a server that finishes a step after a fault has its gradients, but not "
            "the loss scale that they were computed with; use bf16 or fp32, or ddp"
        )
    if derived.searches_micro_batch(spec):
        return (
            "micro_batch_size=auto with strategy parameter_server is not offered: every rank tries the same step, and a server computes none; "
            "give a number, or leave it out"
        )
    return None


def why_not_rolled_back(spec: JobSpec) -> str | None:
    """Going back is a restart, of which there is to be one at least."""
    for name in ("on_nan", "on_spike"):
        if getattr(spec.fault_tolerance, name) == "roll_back" and spec.fault_tolerance.max_restarts == 0:
            return (
                f"fault_tolerance.{name}=roll_back goes back at most fault_tolerance.max_restarts=0 times: set it to 1 or more, or use stop or "
                "skip_update"
            )
    return None


def why_hang_never_comes(spec: JobSpec) -> str | None:
    seconds = spec.fault_tolerance.hang_seconds
    if isinstance(spec.workload, ScriptWorkload) or seconds is None or seconds < COLLECTIVE_SECONDS:
        return None
    return (
        f"hang_seconds={seconds:g} never comes: the communication itself gives up after {COLLECTIVE_SECONDS:g} s; use less, or leave it out"
    )


def why_not_communicated(spec: JobSpec) -> str | None:
    """Return why the job cannot send gradients as `communication` asks: only replicas do."""
    plan = spec.parallelism
    if not derived.sums_in_buckets(spec):
        return None
    if isinstance(spec.workload, ScriptWorkload):
        return "communication needs Paceline's trainer: leave it out for script, which sums gradients by itself, or use an entrypoint or a model"
    if spec.reproducible:
        return (
            "reproducible=true sums gradients in an order of its own, and communication asks for another way: leave one of the two out, or set "
            "reproducible to false"
        )
    if plan.strategy not in ("ddp", "fsdp"):
        return f"communication is between replicas that a job names: use strategy ddp, or fsdp with replicate, not {plan.strategy}"
    if plan.is_model_parallel:
        return f"communication with {plan.model_parallel_sizes} is not offered: gradients are summed in one message there; leave one of the two out"
    return why_not_in_buckets(spec) or why_not_compressed(spec)


def why_not_in_buckets(spec: JobSpec) -> str | None:
    """DDP has buckets and looks at the graph; sharded models sum once after backward."""
    asked = spec.communication
    for name, value in (("bucket_mb", asked.bucket_mb), ("static_graph", asked.static_graph)):
        if spec.parallelism.shards and value:
            return f"communication.{name}={str(value).lower()} is an option of ddp: leave it out for fsdp, which has no buckets"
    return None


def why_not_compressed(spec: JobSpec) -> str | None:
    asked = spec.communication
    for name, takes in OF_COMPRESSION.items():
        value = getattr(asked, name)
        if value != getattr(Communication(), name) and asked.compression not in (*takes, "auto"):
            told = f"{value:g}" if isinstance(value, float) else value
            return f"communication.{name}={told} is for compression {' and '.join(takes)}, not {asked.compression}: leave it out, or use {takes[0]}"
    if asked.lossy and asked.compression != "auto":
        return f"communication.lossy=true is for compression auto, not {asked.compression}: leave it out, or use auto"
    if spec.precision == "fp16" and asked.compression in ("top_k", "power_sgd"):
        return (
            f"communication.compression={asked.compression} with precision=fp16 is not offered: what is not sent would be kept at a scale of the loss "
            "that changes; use precision bf16 or fp32, or compression bf16 or fp16"
        )
    if asked.compression == "auto" and asked.algorithm == "ring":
        return "communication.algorithm=ring sums gradients whole, so that compression=auto has nothing to choose: leave one of the two out"
    if asked.compresses and asked.algorithm == "ring":
        return (
            f"communication.algorithm=ring sums gradients whole, and compression={asked.compression} does not: leave one of the two out, or use "
            "algorithm hierarchical, which compresses what goes between machines"
        )
    return why_not_between_replicas(spec)


def why_not_between_replicas(spec: JobSpec) -> str | None:
    asked, plan = spec.communication, spec.parallelism
    if not plan.shards or plan.replicate not in (None, 1):
        return None
    for name, value, default in (("compression", asked.compression, "none"), ("algorithm", asked.algorithm, "backend")):
        if value != default:
            return f"communication.{name}={value} is between replicas, and fsdp without replicate has one: set parallelism.replicate to 2 or more, or use ddp"
    return None


def why_not_reproducible(spec: JobSpec) -> str | None:
    """Only what is added up over replicas has an order that their number does not change: all else that a sum is made of must stay as it is."""
    if not spec.reproducible:
        return None
    plan = spec.parallelism
    if plan.tensor * plan.context > 1:
        return (
            f"reproducible=true needs each micro-batch's gradients whole: with {plan.model_parallel_sizes} every rank finds a part of them, "
            "and rounds otherwise than one process; leave it out, or use replicas of a model, of its shards or of a pipeline"
        )
    if plan.shards and plan.pipeline > 1:
        return "reproducible=true with both fsdp and a pipeline is not offered; leave it out, or use one of them"
    if plan.shards and plan.shard is None:
        return (
            "reproducible=true with strategy fsdp needs parallelism.shard: parts of gradients are added up in an order that depends on how many "
            "there are, and without it that changes with the number of ranks; set it, leave reproducible out, or use ddp"
        )
    if plan.pipeline > 1 and not plan.has_fixed_partition:
        return "reproducible=true with stages_by=time would have other stages in each generation, whose norms round otherwise; leave one of them out"
    return None


def why_not_compiled(spec: JobSpec) -> str | None:
    if not spec.compile:
        return None
    plan = spec.parallelism
    if plan.tensor * plan.context > 1:
        return (
            f"compile=true with {plan.model_parallel_sizes} is not offered: blocks that wait for other ranks inside would be compiled in "
            "pieces; leave it out, or use replicas, fsdp or a pipeline alone"
        )
    if plan.pipeline > 1 and SCHEDULES[plan.pipeline_schedule].splits_backward:
        return (
            f"compile=true with pipeline_schedule={plan.pipeline_schedule} is not offered: layers that put off the gradients of their weights are "
            "called one by one, which a compiled block does not do; leave it out, or use gpipe, 1f1b or interleaved_1f1b"
        )
    if spec.parallelism.activation_checkpointing == "selective":
        return (
            "compile=true with activation_checkpointing=selective would not be compiled: what chooses the activations to keep sees single "
            "operations only; use full or none"
        )
    return None


def why_not_these_weights(spec: JobSpec) -> str | None:
    path, model = spec.initial_weights, spec.model
    if path is None:
        return None
    if (why := location.refusal(path)) is not None:
        return f"initial_weights={path} {why}"
    if model is not None and model.kind == "hf" and model.path is not None:
        return f"initial_weights={path} and model.path={model.path}: give one of them"
    return None


def why_not_traced(spec: JobSpec) -> str | None:
    most_ranks = spec.resources.most_ranks
    if spec.profile is None or not (beyond := beyond_world(spec.profile.ranks, most_ranks)):
        return None
    return f"profile.ranks names {beyond}, but ranks go from 0 to {most_ranks - 1}"


def too_many_gradients(spec: JobSpec) -> str | None:
    """Return why the job would record gradients at too many steps, or at none. Where its length is in epochs, only a rank can tell."""
    if spec.gradients is None or spec.training is None or spec.training.steps is None:
        return None
    return spec.gradients.why_no_step(spec.training.steps) or spec.gradients.why_too_many_steps(spec.training.steps)


def too_many_micro_batches(spec: JobSpec) -> str | None:
    """Return why the global batch makes too many micro-batches, with the way out, or None. The spec's axes must fit its world."""
    if isinstance(spec.workload, ScriptWorkload) or derived.micro_batches(spec) <= MOST_MICRO_BATCHES:
        return None
    enough = -(-spec.workload.training.global_batch_size // MOST_MICRO_BATCHES)
    return (
        f"{micro_batches_in_words(spec)}; at most {MOST_MICRO_BATCHES} are dealt out: use micro_batch_size={enough} or more (a batch is counted in "
        "samples, not in tokens)"
    )


def too_few_micro_batches(spec: JobSpec, ranks: int) -> str | None:
    """Return why this many ranks, which fit the axes, are too many: each data rank needs a micro-batch of its own. None if they are not.

    A script shares its work out by itself.
    """
    if isinstance(spec.workload, ScriptWorkload):
        return None
    data_ranks = derived.data_ranks(spec, ranks)
    if derived.micro_batches(spec) >= data_ranks:
        return None
    return f"{micro_batches_in_words(spec)}, fewer than {data_ranks} {'ranks' if data_ranks == ranks else 'data ranks'}"


def enough_micro_batches(spec: JobSpec) -> str:
    """Return what to change so that every data rank of the largest world has a micro-batch."""
    total, most = derived.training_of(spec).global_batch_size, derived.data_ranks(spec, spec.resources.most_ranks)
    return f"use micro_batch_size={total // most}" if total >= most else f"use global_batch_size={most} or more"


def micro_batches_in_words(spec: JobSpec) -> str:
    """Describe the division of a global batch, as in "global_batch_size=8 in micro-batches of 2 makes 4"."""
    total = derived.training_of(spec).global_batch_size
    return f"global_batch_size={total} in micro-batches of {derived.micro_batch_size(spec)} makes {derived.micro_batches(spec)}"


def why_model_is_not_sharded(spec: JobSpec) -> str | None:
    """Return why the model cannot be sharded over tensor and context, with the way out; None if it can, or if only a rank can tell."""
    model, tensor, context = spec.model, spec.parallelism.tensor, spec.parallelism.context
    if isinstance(spec.workload, ScriptWorkload):
        return None
    if isinstance(model, GptModel):
        return gpt.why_not_sharded(model, tensor=tensor, context=context)
    if tensor * context == 1:
        return None
    if isinstance(model, HfModel) and context == 1:
        return hf.why_not_sharded(model.config, tensor) if model.config is not None else None
    if isinstance(model, HfModel):
        return f"context={context} is for model gpt; models of transformers attend to whole sequences: leave it at 1"
    whose = f"model {model.kind}" if model else "an entrypoint's model"
    return (
        f"{spec.parallelism.model_parallel_sizes} is for models gpt and hf, which say how they are cut; {whose} does not: leave both at 1, "
        "or use fsdp for its size"
    )


def why_not_auto(spec: JobSpec) -> str | None:
    """Return why the plan, or the micro-batch size, cannot be left to Paceline, with the way out, or None."""
    if spec.parallelism.is_auto and derived.known_shape(spec, NumberFormats()) is None:
        whose = "this model of transformers" if spec.model else "an entrypoint's"
        return (
            f"strategy auto goes by what a model will need, which is known of gpt, mlp, resnet and, by their model.config, {', '.join(FAMILIES)} with "
            f"their usual attention, not of {whose}; use ddp or fsdp"
        )
    if derived.searches_micro_batch(spec) and spec.parallelism.pipeline != 1:
        return "micro_batch_size=auto tries steps of whole models, not of a pipeline's stages; give a number, or leave it out"
    return None


_CHECKS: tuple[Callable[[JobSpec], str | None], ...] = (
    why_hang_never_comes,
    why_model_is_not_sharded,
    why_not_these_packages,
    why_not_this_optimizer,
    why_not_with_servers,
    why_not_other_digits,
    why_not_normed,
    why_not_rolled_back,
    why_not_reproducible,
    why_not_communicated,
    why_not_compiled,
    why_not_these_weights,
    why_not_traced,
    too_many_gradients,
)
