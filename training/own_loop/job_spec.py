"""What a loop of one's own does with a job spec: every field is followed, told of as a job's own affair, or refused. None is dropped in silence.

A field with its default value asks for nothing. `scripts/production_train.py --config` goes by this; tests hold that all fields are in a list.
"""

from __future__ import annotations

from pydantic import BaseModel

from paceline.training.spec.job import JobSpec

#: What the loop does as a job would.
FOLLOWED = frozenset(
    {
        *("version", "model", "data", "entrypoint", "optimizer", "schedule", "precision"),
        *("parallelism.strategy", "parallelism.replicate", "parallelism.shard", "parallelism.reshard_after_forward"),
        *("parallelism.cpu_offload", "parallelism.activation_checkpointing"),
        *("training.steps", "training.epochs", "training.global_batch_size", "training.micro_batch_size", "training.gradient_clip_norm"),
        *("training.eval_every_steps", "training.eval_samples", "training.seed"),
        *("fault_tolerance.on_nan", "fault_tolerance.on_spike"),
        *("checkpoint.every_steps", "checkpoint.keep_last", "checkpoint.keep_best", "checkpoint.metric", "checkpoint.mode"),
    }
)
#: What names and files a job. Nothing depends on it here.
NAMES = frozenset({"name", "project", "description", "labels", "priority"})
#: What becomes of the rest, where a spec asks for it: the launcher has decided it, or the run goes without. The numbers stay the same.
LEFT_TO_JOBS = {
    "resources": "the launcher starts the ranks",
    "environment": "the ranks have this shell's variables, folder and packages",
    "time_limit": "nothing ends the run",
    "checkpoint.directory": "--checkpoint-dir says where",
    "checkpoint.options": "--checkpoint-dir says where",
    "checkpoint.shared": "--checkpoint-dir says where",
    "checkpoint.asynchronous": "training waits for each write",
    "fault_tolerance.max_restarts": "the launcher restarts the ranks, as torchrun --max-restarts does",
    "fault_tolerance.recovery": "the launcher restarts the ranks, as torchrun --max-restarts does",
    "fault_tolerance.spares": "the launcher restarts the ranks, as torchrun --max-restarts does",
    "fault_tolerance.hang_seconds": "nothing looks out for ranks that hang",
    "training.data_workers": "batches are made between the steps",
    "training.generate_tokens": "no text is generated",
    "parallelism.pipeline_schedule": "there is no pipeline",
    "parallelism.stages_per_rank": "there is no pipeline",
    "parallelism.stages_by": "there is no pipeline",
    "parallelism.servers": "there are no parameter servers",
}
#: What would make another run of it if it were left out, with the way out besides submitting the spec.
REFUSED = {
    "script": "start that script",
    "initial_weights": "leave it out, or give a checkpoint to --resume",
    "compile": "leave it out",
    "reproducible": "leave it out: this loop's numbers depend on the number of ranks",
    "communication": "leave it out: gradients are summed by Gloo or NCCL",
    "profile": "leave it out",
    "gradients": "leave it out",
    "training.pause_at_steps": "leave it out",
    "parallelism.tensor": "use fsdp: no axis that knows the model's insides",
    "parallelism.pipeline": "use fsdp: no axis that knows the model's insides",
    "parallelism.context": "use fsdp: no axis that knows the model's insides",
}


def refusals(spec: JobSpec) -> list[str]:
    """Say, of each field that asks for what only a job does, so and what else to do. `reproducible: false` asks for nothing."""
    asked = asked_for(spec)
    found = [f"{name} of the spec is for jobs: submit it, or {REFUSED[name]}" for name in REFUSED if name in asked]
    return [each for each in found if not (each.startswith("reproducible") and spec.reproducible is False)]


def told(spec: JobSpec) -> list[str]:
    """Say what becomes of each field that is left to jobs, where the spec asks for something."""
    asked = asked_for(spec)
    found = [f"{name} ({LEFT_TO_JOBS[name]})" for name in LEFT_TO_JOBS if name in asked]
    searches = spec.training is not None and spec.training.micro_batch_size == "auto"
    return [*found, "training.micro_batch_size=auto (--auto-batch-size finds the largest)"] if searches else found


def asked_for(spec: JobSpec) -> frozenset[str]:
    """Return the names of the fields whose values are not their defaults: of sections of the spec as `section.field`, or, where a list above has the
    section as a whole, the section."""
    found: set[str] = set()
    for name in changed(spec):
        section = getattr(spec, name)
        whole = name in FOLLOWED or name in NAMES or name in LEFT_TO_JOBS or name in REFUSED
        found |= {name} if whole else {f"{name}.{field}" for field in changed(section)}
    return frozenset(found)


def changed(part: BaseModel) -> list[str]:
    return [
        name
        for name, field in type(part).model_fields.items()
        if field.is_required() or getattr(part, name) != field.get_default(call_default_factory=True)
    ]
