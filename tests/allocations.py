"""How much memory something takes at its fullest moment: what torch's CPU allocator gave out and took back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile

from distributed.process_group import Group
from parallelism.apply import parallelize
from parallelism.plan import degrees, even_deal
from training.builtin import classification_loss, classifier, next_token_loss
from training.data.feed import open_feed
from training.models.gpt import model as gpt
from training.optim import build_optimizer
from training.spec import JobSpec
from training.state import TrainState
from training.step import Stepper
from training.task import Batch, Task
from training.workload import Cifar10, GptModel, Model

CPU = torch.device("cpu")
CIFAR_IMAGE = (3, 32, 32)
STEPS = 2
NOTHING_WANTED = SimpleNamespace(pause_wanted=False, checkpoint_wanted=False, leave_wanted=False)


def peak_bytes(run: Callable[[], object]) -> int:
    """Of all that `run` allocates and holds; it must build what it needs, since nothing from before is counted.

    The allocator's own record, as `max_memory_allocated` is on a GPU: it includes what operators allocate inside.
    """
    with profile(profile_memory=True) as recorded:
        run()
    assert recorded.kineto_results is not None
    events: list[Any] = [event for event in recorded.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    sizes: list[int] = [event.nbytes() for event in events]
    return max(accumulate(sizes, initial=0))


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
        if isinstance(self.model, GptModel):
            return (torch.randint(0, self.model.vocab_size, (samples, self.model.context + 1)),)
        return torch.randn(samples, *CIFAR_IMAGE), torch.zeros(samples, dtype=torch.long)


def task_of(model: Model) -> Task:
    if isinstance(model, GptModel):
        return Task(gpt.build(model), Noise(model), next_token_loss, tokens_per_sample=model.context)
    return Task(classifier(model, Cifar10(path="/nonexistent")), Noise(model), classification_loss)


def train(spec: JobSpec, group: Group, prepare: Callable[[nn.Module], None] = lambda model: None) -> None:
    """Real steps, enough to have made the optimizer's state and to hold every buffer. `prepare` may change the built model."""
    assert spec.model is not None
    task = task_of(spec.model)
    prepare(task.model)
    optimizer = build_optimizer(spec.optimizer, task.model)
    state = TrainState(task, optimizer, CPU, total_steps=STEPS, feed=open_feed(task.train, spec))
    sizes = degrees(spec.parallelism.strategy, group.world_size)
    wrapped = parallelize(task.model, sizes, CPU, group, reproducible=spec.is_reproducible)
    stepper = Stepper(spec, state, group, wrapped, even_deal(spec.micro_batches, group.world_size, group.rank))
    for _ in range(STEPS):
        stepper.run(NOTHING_WANTED)
