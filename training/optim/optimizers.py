"""Optimizers, the learning rate of a step, gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paceline.parallelism.gradients import AxisGroups, clip_by_norm, global_norm, gradients_of
from paceline.training.schema.optimizer import AdamW, Optimizer, Schedule


def build_optimizer(spec: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay applies to matrices and kernels, not to biases and norms. Fused kernels: the faster ones on CPU and CUDA alike; torch has
    none of SGD for parameters in parts, and none for those that have no numbers yet."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": spec.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]] or groups  # a stage of a pipeline may have nothing to learn
    made = not any(parameter.is_meta for parameter in parameters)
    if isinstance(spec, AdamW):
        return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=made)
    whole = made and not any(isinstance(parameter, DTensor) for parameter in parameters)
    return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=whole, foreach=not whole)


def learning_rate(peak: float, schedule: Schedule, step: int, total: int) -> float:
    """Return the learning rate of `step` (from 1): linear up to `peak` at the end of the warm-up, then down to min_ratio * peak at
    `total`."""
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    if schedule.kind == "constant":
        return peak
    done = (step - schedule.warmup_steps) / max(1, total - schedule.warmup_steps)
    return peak * (schedule.min_ratio + (1 - schedule.min_ratio) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def set_learning_rates(optimizer: torch.optim.Optimizer, peaks: Sequence[float], schedule: Schedule, step: int, total: int) -> float:
    """Set the learning rate of `step` in all groups, each from its own peak. Returns the first group's."""
    rates = [learning_rate(peak, schedule, step, total) for peak in peaks]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    return rates[0]


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], limit: float | None, lines: AxisGroups = MappingProxyType({})) -> Tensor:
    """The norm of all gradients together, before it is cut to `limit`; `lines`: of the axes that they may be cut along."""
    gradients = gradients_of(parameters)
    norm = global_norm(gradients, lines)
    clip_by_norm(gradients, norm, limit)
    return norm
