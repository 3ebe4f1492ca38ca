"""Train a model of Paceline's, or of your own, in a loop of its own: in one process, under torchrun, on one machine or several.

    python scripts/production_train.py --epochs 10 --checkpoint-dir checkpoints
    torchrun --nproc-per-node 4 scripts/production_train.py --strategy fsdp --batch-size 32 --mixed-precision --activation-checkpointing
    scripts/launch_training.sh 4 ddp 32 scripts/production_train.py --config examples/cifar10_resnet.yaml

Started again with the same --checkpoint-dir, it goes on where it was, whatever --resume names. What is trained comes from --config, a job spec
with a built-in model or an entrypoint, or from --model and --data. Options that are given win over the spec. What only a job can do for a spec
is refused where the numbers depend on it, and told of where they do not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from torch import nn
from yaml import YAMLError

sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: in a checkout that is not installed

import paceline
from paceline.training.builtin import builtin_task
from paceline.training.data.sampler import evaluation_indices
from paceline.training.entrypoint import load_entrypoint
from paceline.training.errors import TrainingError
from paceline.training.models.mlp.presets import PRESETS as MLPS
from paceline.training.models.resnet.presets import PRESETS as RESNETS
from paceline.training.optim.optimizers import build_optimizer, set_learning_rates
from paceline.training.own_loop.batches import TaskLoss
from paceline.training.own_loop.foreign import is_foreign, read_foreign
from paceline.training.own_loop.job_spec import refusals, told
from paceline.training.own_loop.loader import ShardedLoader
from paceline.training.own_loop.saves import newest_first
from paceline.training.own_loop.trainer import Trainer
from paceline.training.schema.parallelism import OF_SHARDING
from paceline.training.schema.training import TrainingLength
from paceline.training.spec import text
from paceline.training.spec.job import JobSpec
from paceline.training.spec.refusals import in_words
from paceline.training.spec.workload import BuiltinWorkload, EntrypointWorkload
from paceline.training.task import Dataset, Task

CACHE = Path("~/.cache/paceline/data")
#: What stands for a field of the spec where there is none.
OPTION_OF = {"data.path": "--data-dir", "data.fallback to digits": "--data to digits"}
#: Samples of a rank in a batch, where neither an option nor a spec says.
BATCH_SIZE = 32
BATCHES_BETWEEN_LINES = 50


@dataclass(frozen=True)
class Run:
    """A run of the script, as its options and the spec together ask for it."""

    spec: JobSpec
    batch_size: int  # of each rank
    accumulation: int  # batches in an update
    epochs: int | None
    updates: int | None  # one of the two is given
    clip: float | None
    eval_every: int | None  # updates between evaluations; None: at the ends of epochs only
    eval_samples: int | None  # None: all
    save_every: int | None  # updates between checkpoints; None: at the ends of epochs only

    def is_turn(self, every: int | None, update: int) -> bool:
        return every is not None and update % every == 0

    def left(self, per_update: int, samples: int, trained: int) -> int:
        """Return the updates that are left after `trained` samples, which others may have cut into updates of another size; `samples` are those
        of an epoch. The last update is filled up from the epoch that would follow."""
        if self.updates is not None:
            return max(0, self.updates - trained // per_update)
        return max(0, -((trained - (self.epochs or 1) * samples) // per_update))


def main() -> None:
    options = arguments()
    try:
        train(options)
    except ValidationError as error:
        sys.exit(f"error: {'; '.join(refusal(each) for each in error.errors(include_url=False))}")
    except (TrainingError, YAMLError, OSError) as error:
        sys.exit(f"error: {error if options.config else in_options(str(error))}")


def in_options(message: str) -> str:
    """The message with options in the place of the fields of a spec."""
    for field, option in OPTION_OF.items():
        message = message.replace(field, option)
    return message


def refusal(error: ErrorDetails) -> str:
    """One error of a spec in a line, as the coordinator words it."""
    place = ".".join(map(str, error["loc"])) or "the spec"
    return in_words(error, JobSpec) or f"{place}: {error['msg']}; got {error['input']!r}"


def train(options: argparse.Namespace) -> None:
    run = read_run(options)
    torch.manual_seed(run.spec.training.seed if run.spec.training else 0)
    task = task_of(run.spec)
    data = task.train
    if not isinstance(data, Dataset):
        raise SystemExit("error: a stream has no samples by number to share out in epochs; submit the spec as a job")
    trainer = trainer_of(task.model, run, options)
    leads = paceline.world().rank == 0
    if leads and options.config and (others := told(run.spec)):
        print(f"for jobs alone: {', '.join(others)}", flush=True)
    if leads and trainer.strategy is not None:
        print(f"strategy {trainer.strategy.name}: {trainer.strategy.reason}", flush=True)
    optimizer = build_optimizer(run.spec.optimizer, trainer.model) if task.optimizer is None else task.optimizer(trainer.model)
    batch_size = run.batch_size
    if options.auto_batch_size:
        batch_size = trainer.find_batch_size(
            lambda samples: data.batch(torch.arange(samples) % len(data), None),
            optimizer,
            TaskLoss(task.loss),
            largest=options.max_batch_size,
        )
    loader = paceline.loader(data, batch_size, seed=run.spec.training.seed if run.spec.training else 0)
    peaks = [float(group["lr"]) for group in optimizer.param_groups]  # a checkpoint brings the rates of its last update
    resume(trainer, optimizer, loader, options)
    if leads:
        found = ", as much as fits" if options.auto_batch_size else ""
        print(
            f"batches of {batch_size} on each of {paceline.world().world_size} ranks{found}; from step {trainer.next_step} on", flush=True
        )
    fit(trainer, optimizer, loader, task, run, peaks, saves=options.checkpoint_dir is not None)
    trainer.close()


def fit(
    trainer: Trainer, optimizer: torch.optim.Optimizer, loader: ShardedLoader, task: Task, run: Run, peaks: Sequence[float], *, saves: bool
) -> None:
    """Train to the end, with an evaluation and a checkpoint after each epoch, and as often as the spec says. `peaks`: the learning rates that the
    schedule scales."""
    leads, criterion = paceline.world().rank == 0, TaskLoss(task.loss)
    per_update = loader.per_step * run.accumulation
    epoch, done = loader.epoch, loader.samples // per_update
    total = done + run.left(per_update, loader.samples_of_epoch, loader.samples)
    for batch in endless(loader) if done < total else ():
        set_learning_rates(optimizer, peaks, run.spec.schedule, done + 1, total)
        update = trainer.train_step(batch, optimizer, criterion, trainer.next_step)
        if update is None:
            continue
        done += 1
        if leads and (done == 1 or done % BATCHES_BETWEEN_LINES == 0):
            rate = trainer.performance_metrics()["samples_per_second"]
            print(f"update {done}/{total} (step {update.step}): loss {update.loss:.5f}, {rate:.0f} samples/s", flush=True)
        ends = loader.epoch > epoch or done == total
        saves_now = saves and (ends or run.is_turn(run.save_every, done))
        if ends and leads:
            print(f"epoch {loader.epoch}: loss {update.loss:.5f}", flush=True)
        epoch = loader.epoch
        measured: dict[str, float] = {}
        if ends or saves_now or run.is_turn(run.eval_every, done):  # what is saved says how good it is
            measured = evaluate(trainer, task, loader.batch_size, run.eval_samples)
            if leads and measured:
                paceline.log(update.step, **measured)
        if saves_now:
            trainer.save_checkpoint(optimizer, metrics={"loss": update.loss} | measured, loader=loader)
        if done == total:
            break


def endless(loader: ShardedLoader) -> Iterator[Any]:
    while True:
        yield from loader


def evaluate(trainer: Trainer, task: Task, batch_size: int, samples: int | None) -> dict[str, float]:
    """Return means over the held-out data, or the `samples` of it that a job would take, eval_loss first; empty where the task has none. All
    ranks make equally many passes."""
    held_out = task.evaluation
    if held_out is None:
        return {}
    chosen = evaluation_indices(len(held_out), samples)
    place, total = paceline.world(), len(chosen)
    every = batch_size * place.world_size
    sums: dict[str, float] = {}
    with trainer.evaluation() as model:
        for first in range(place.rank * batch_size, -(-total // every) * every, every):
            indices = chosen[first : first + batch_size] if first < total else chosen[:1]
            weight = len(indices) if first < total else 0
            batch = tuple(part.to(trainer.device) for part in held_out.batch(indices, None))
            loss, means = task.loss(model, batch)
            for name, value in {"loss": loss, **means}.items():
                sums[name] = sums.get(name, 0.0) + value.item() * weight
    return {f"eval_{name}": value / total for name, value in trainer.sum_over_ranks(sums).items()}


def resume(trainer: Trainer, optimizer: torch.optim.Optimizer, loader: ShardedLoader, options: argparse.Namespace) -> None:
    """Go on from what --resume names, or from the newest checkpoint in --checkpoint-dir."""
    saved = newest_first(Path(options.checkpoint_dir)) if options.checkpoint_dir is not None else []
    path = named_checkpoint(options, saved)
    if path is not None:
        trainer.load_checkpoint(optimizer, path, loader=loader)
        if is_foreign(path):
            epoch = read_foreign(path).epoch
            loader.load_state_dict({"samples": 0 if epoch is None else (epoch + 1) * loader.samples_of_epoch})
    elif saved:
        trainer.load_checkpoint(optimizer, loader=loader)


def named_checkpoint(options: argparse.Namespace, saved: list[Path]) -> Path | None:
    """Return what --resume names. None once the run has `saved` checkpoints of its own: started again with the same options, as torchrun does
    after a fault, it goes on from those. Where --resume names one of them, it means that one."""
    if options.resume is None:
        return None
    path = Path(options.resume)
    if not saved or path.resolve() in [folder.resolve() for folder in saved]:
        return path
    if paceline.world().rank == 0:
        print(
            f"{saved[0]} goes before --resume {path}, which began this run; give another --checkpoint-dir to begin there again", flush=True
        )
    return None


def trainer_of(model: nn.Module, run: Run, options: argparse.Namespace) -> Trainer:
    spec = run.spec
    return Trainer(
        model,
        strategy=strategy_of(spec, options.strategy),
        mixed_precision=run.spec.precision if options.mixed_precision is None else options.mixed_precision,
        gradient_accumulation_steps=run.accumulation,
        gradient_clip_val=run.clip,
        on_nan=spec.fault_tolerance.on_nan,
        on_spike=spec.fault_tolerance.on_spike,
        activation_checkpointing=options.activation_checkpointing or spec.parallelism.activation_checkpointing,
        cpu_offload=options.cpu_offload,
        checkpoint_dir=options.checkpoint_dir,
        keep_last=run.spec.checkpoint.keep_last,
        keep_best=run.spec.checkpoint.keep_best,
        best_metric=run.spec.checkpoint.metric,
        best_mode=run.spec.checkpoint.mode,
        log_dir=options.log_dir,
        seed=spec.training.seed if spec.training else 0,
    )


def strategy_of(spec: JobSpec, option: str | None) -> str | dict[str, Any]:
    """Return the strategy that is asked for, with what the spec says besides. An option in its place keeps only what it has a meaning for."""
    if (option or spec.parallelism.strategy) == "auto":
        return "auto"
    given = spec.parallelism.model_dump(exclude_unset=True) | ({"strategy": option} if option else {})
    return given if given.get("strategy") == "fsdp" else {name: value for name, value in given.items() if name not in OF_SHARDING}


def task_of(spec: JobSpec) -> Task:
    match spec.workload:
        case BuiltinWorkload(model, data):
            return builtin_task(model, data, CACHE.expanduser())
        case EntrypointWorkload(entrypoint):
            return load_entrypoint(entrypoint, spec)
    raise SystemExit("error: the spec runs a script, which trains by itself: submit it, or start that script")


def read_run(options: argparse.Namespace) -> Run:
    """Raise ValidationError for a spec that is none, and exit where options cannot be."""
    spec = JobSpec.model_validate(text.load(Path(options.config).read_bytes()) if options.config else default_document(options))
    training = spec.training
    for name in ("batch_size", "epochs", "gradient_accumulation_steps", "max_batch_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise SystemExit(f"error: --{name.replace('_', '-')} {value} is less than 1")
    if problems := refusals(spec):
        raise SystemExit(f"error: {'; '.join(problems)}")
    batch_size, accumulation = portions(options, training, paceline.world().world_size)
    return Run(
        spec=spec,
        batch_size=batch_size,
        accumulation=accumulation,
        epochs=options.epochs or (training.epochs if training else None),
        updates=None if options.epochs or training is None else training.steps,
        clip=options.gradient_clip if options.gradient_clip is not None else training.gradient_clip_norm if training else None,
        eval_every=training.eval_every_steps if training else None,
        eval_samples=training.eval_samples if training else None,
        save_every=spec.checkpoint.every_steps,
    )


def portions(options: argparse.Namespace, training: TrainingLength | None, world_size: int) -> tuple[int, int]:
    """Return the samples of a rank's batch, and the batches of an update. A spec's update stays as large as it is in a job, and is cut into equal
    batches of at most its micro-batches where it gives their size."""
    if training is None or not options.config:
        return options.batch_size or BATCH_SIZE, options.gradient_accumulation_steps or 1
    share = -(-training.global_batch_size // world_size)
    if options.batch_size is not None or options.gradient_accumulation_steps is not None:
        accumulation = options.gradient_accumulation_steps or 1
        return options.batch_size or -(-share // accumulation), accumulation
    micro = training.micro_batch_size if isinstance(training.micro_batch_size, int) else share
    accumulation = -(-share // micro)
    return -(-share // accumulation), accumulation


def default_document(options: argparse.Namespace) -> dict[str, Any]:
    """Return the spec that --model and --data make."""
    kind = "resnet" if options.model in RESNETS else "mlp"
    data = {"kind": options.data} | ({"path": str(Path(options.data_dir).resolve())} if options.data_dir else {})
    return {
        "name": "production-train",
        "model": {"kind": kind, "preset": options.model},
        "data": data,
        "optimizer": {"kind": "adamw", "lr": 1e-3 if options.lr is None else options.lr},
        "training": {"epochs": options.epochs or 5, "gradient_clip_norm": None, "eval_every_steps": None, "eval_samples": None},
        "checkpoint": {"every_steps": None},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what is trained")
    what.add_argument(
        "--config", help="a job spec (YAML or JSON): its model, data, optimizer, schedule, parallelism, precision, training and checkpoint"
    )
    what.add_argument("--model", default="mlp-small", choices=[*MLPS, *RESNETS], help="without --config (default: %(default)s)")
    what.add_argument("--data", default="digits", choices=["digits", "mnist", "cifar10"], help="without --config (default: %(default)s)")
    what.add_argument("--data-dir", help="folder with the files of --data")
    what.add_argument("--lr", type=float, help="learning rate of AdamW, without --config (default: 0.001)")
    how = parser.add_argument_group("how")
    how.add_argument("--strategy", help="single, ddp, fsdp or auto (default: the spec's, else ddp)")
    how.add_argument(
        "--batch-size", type=int, help=f"samples of each rank in a batch (default: the spec's share of a rank, else {BATCH_SIZE})"
    )
    how.add_argument(
        "--auto-batch-size", action="store_true", help="the largest batch that fits each rank's memory, in place of --batch-size"
    )
    how.add_argument("--max-batch-size", type=int, default=1024, help="limit of --auto-batch-size (default: %(default)s)")
    how.add_argument("--epochs", type=int, help="default: the spec's, else 5")
    how.add_argument("--gradient-accumulation-steps", type=int, metavar="N", help="batches in one update")
    how.add_argument("--gradient-clip", type=float, metavar="NORM", help="largest norm of all gradients (default: the spec's, else none)")
    how.add_argument(
        "--mixed-precision", nargs="?", const=True, metavar="PRECISION", help="bf16 or fp16; without a value the one that this machine has"
    )
    how.add_argument("--activation-checkpointing", nargs="?", const="full", metavar="WHAT", help="full or selective; without a value full")
    how.add_argument("--cpu-offload", action="store_true", help="parameters and optimizer state in the host's memory (fsdp)")
    files = parser.add_argument_group("files")
    files.add_argument(
        "--checkpoint-dir",
        help="save here after each epoch and at the spec's checkpoint.every_steps, and go on from what is here; a folder that every rank sees",
    )
    files.add_argument(
        "--resume",
        metavar="PATH",
        help="begin with this checkpoint, until --checkpoint-dir has one: a folder of ours, or a .pt file of another program",
    )
    files.add_argument("--log-dir", help="TensorBoard's event files of every rank")
    return parser.parse_args()


if __name__ == "__main__":
    main()
