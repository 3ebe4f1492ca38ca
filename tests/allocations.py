"""How much memory something takes at its fullest moment: what torch's CPU allocator gave out and took back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from paceline.distributed.process_group import Group
from paceline.parallelism.plan import Coordinates
from paceline.training import server_state
from paceline.training.autotune.allocated import measure_memory
from paceline.training.build import make_ready
from paceline.training.builtin import classification_loss, classifier, next_token_loss
from paceline.training.data.feed import open_feed
from paceline.training.elastic import first_assignment
from paceline.training.gradient_sums import gradient_sums
from paceline.training.link import RankPlace
from paceline.training.models.catalog import Model
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt import shard as gpt_shard
from paceline.training.models.gpt import stages as gpt_stages
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.hf import model as hf
from paceline.training.models.hf import shard as hf_shard
from paceline.training.models.hf.config import HfModel
from paceline.training.optim.optimizers import build_optimizer
from paceline.training.schema.data import Cifar10
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState, rebuild_optimizer
from paceline.training.task import Batch, Task

CPU = torch.device("cpu")
CIFAR_IMAGE = (3, 32, 32)
SMALLEST_VOCABULARY = 256  # of the models below
STEPS = 2
NOTHING_WANTED = SimpleNamespace(
    pause_wanted=False, checkpoint_wanted=False, leave_wanted=False, gradients_wanted=False, outcome_bytes=None
)


def peak_bytes(run: Callable[[], object]) -> int:
    """Of all that `run` allocates and holds; it must build what it needs, since nothing from before is counted.

    In one thread, as estimates count: without AVX-512, oneDNN sums a convolution's gradient in a copy for each thread.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measure_memory(run).peak
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Noise:
    """Samples of a model's shape, made when asked for: data that takes no memory of its own."""

    model: Model
    samples: int = 4096

    def __len__(self) -> int:
        return self.samples

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        return self.of(len(indices))

    def of(self, samples: int) -> Batch:
        if isinstance(self.model, GptModel | HfModel):
            return (torch.randint(0, SMALLEST_VOCABULARY, (samples, self.model.context + 1)),)
        return torch.randn(samples, *CIFAR_IMAGE), torch.zeros(samples, dtype=torch.long)


def task_of(model: Model) -> Task:
    if isinstance(model, GptModel):
        noise, context = Noise(model), model.context
        return Task(gpt.build(model), noise, next_token_loss, tokens_per_sample=context, shard=gpt_shard.shard, units=gpt_stages.units)
    if isinstance(model, HfModel):
        return Task(hf.build(model), Noise(model), next_token_loss, tokens_per_sample=model.context, shard=hf_shard.shard)
    return Task(classifier(model, Cifar10(path="/nonexistent")), Noise(model), classification_loss)


def train(spec: JobSpec, group: Group, world: RankPlace | None = None) -> None:
    """Run real steps, enough to have made the optimizer's state and to hold every buffer. `world`: for sums as the job asks for them."""
    assert spec.model is not None
    task = task_of(spec.model)
    # The optimizer has no name here: of a model that is cut it would keep the whole one.
    state = TrainState(task, build_optimizer(spec.optimizer, task.model), CPU, total_steps=STEPS, feed=open_feed(task.train, spec))
    coordinates = Coordinates(spec.parallelism.degrees(group.world_size), group.rank)
    sums = gradient_sums(spec, world, state, group) if world else None
    steps_from = make_ready(spec, state, group, coordinates, reducer=sums.reducer if sums else None)
    rebuild_optimizer(state, spec)
    if coordinates.degrees.servers:
        server_state.take_part(spec, state, coordinates)
    step_runner = steps_from(spec, first_assignment(derived.micro_batches(spec), coordinates, None))
    for _ in range(STEPS):
        step_runner.run(NOTHING_WANTED)
        if sums:
            sums.reducer.commit()
