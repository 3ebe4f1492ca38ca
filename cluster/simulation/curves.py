"""What a simulated job learns: its loss and what goes with it, at every step. Pure, and a function of job and step alone.

    loss(step) = floor + (start - floor) * (1 + step / pace) ** -EXPONENT, and noise of NOISE

A power law, as losses of language models fall (Kaplan et al. 2020). `start` is the loss of guessing, the logarithm of the number of
classes; `floor` and `pace` are drawn once for each job. So steps that are done again after a fault have the same loss again.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from paceline.training.schema.optimizer import Schedule
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload

EXPONENT, NOISE = 0.7, 0.012
CLASSES = 10  # of what is not known
SPIKE = 3.0  # of a loss that spikes
#: The samples of an epoch of a job whose data has not been looked at.
EPOCH_SAMPLES = 50_000


@dataclass(frozen=True)
class LossCurve:
    """The loss of one job. `eval_share`: how much higher it is on held-out samples at the end."""

    seed: str
    start: float
    floor: float
    pace: float
    eval_share: float

    def loss(self, step: int) -> float:
        return self._mean(step) * (1 + random.Random(f"{self.seed}/{step}").gauss(0.0, NOISE))

    def eval_loss(self, step: int) -> float:
        return self._mean(step) * (1 + self.eval_share * min(1.0, step / (20 * self.pace)))

    def accuracy(self, step: int) -> float:
        """The share of held-out samples that are right: from guessing up to what the loss allows."""
        return math.exp(-self.eval_loss(step) * 0.8)

    def gradient_norm(self, step: int) -> float:
        drawn = random.Random(f"{self.seed}/norm/{step}")
        return (0.25 + 2.0 * math.pow(1 + step / self.pace, -0.6)) * math.exp(drawn.gauss(0.0, 0.08))

    def _mean(self, step: int) -> float:
        return self.floor + (self.start - self.floor) * math.pow(1 + step / self.pace, -EXPONENT)


def curve_of(seed: str, spec: JobSpec, total_steps: int) -> LossCurve:
    """The curve of a job. `seed` names the job; its spec's own seed counts too."""
    seed = f"{seed}/{spec.training.seed if spec.training else 0}"
    drawn, classes = random.Random(seed), CLASSES
    match spec.workload:
        case BuiltinWorkload(model, _):
            classes = getattr(model, "vocab_size", None) or CLASSES
    start = math.log(classes)
    return LossCurve(
        seed=seed,
        start=start,
        floor=start * drawn.uniform(0.12, 0.3),
        pace=max(2.0, math.sqrt(total_steps) * drawn.uniform(0.4, 0.9)),
        eval_share=drawn.uniform(0.01, 0.06),
    )


def learning_rate(peak: float, schedule: Schedule, step: int, total: int) -> float:
    """Warm-up, then the schedule's cosine, or constant; every other kind is drawn as constant."""
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    if schedule.kind != "cosine":
        return peak
    done = min(1.0, (step - schedule.warmup_steps) / max(1, total - schedule.warmup_steps))
    return peak * (schedule.min_ratio + (1 - schedule.min_ratio) * 0.5 * (1 + math.cos(math.pi * done)))
