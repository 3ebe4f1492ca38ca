"""Optimizers, the learning rate of a step, gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paceline.parallelism.gradients import AxisGroups, clip_by_norm, global_norm, gradients_of
from paceline.training.schema.optimizer import Adafactor, AdamW, NAdam, Optimizer, RmsProp, Schedule, Sgd

#: The default of torch's StepLR too.
DEFAULT_GAMMA = 0.1


def build_optimizer(spec: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay applies to matrices and kernels, not to biases and norms. Fused kernels: the faster ones on CPU and CUDA alike; torch has
    none of SGD for parameters in parts, and none for those that have no numbers yet. Optimizers without fused kernels update one parameter after
    another: temporary tensors of all at once would take as much memory as their state."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": spec.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]] or groups  # a stage of a pipeline may have nothing to learn
    made = not any(parameter.is_meta for parameter in parameters)
    whole = made and not any(isinstance(parameter, DTensor) for parameter in parameters)
    match spec:
        case AdamW():
            return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=made)
        case Sgd():
            return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=whole, foreach=not whole)
        case NAdam():
            decay = spec.momentum_decay
            return torch.optim.NAdam(
                groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, momentum_decay=decay, decoupled_weight_decay=True, foreach=False
            )
        case RmsProp():
            return torch.optim.RMSprop(groups, lr=spec.lr, alpha=spec.alpha, eps=spec.eps, momentum=spec.momentum, foreach=False)
        case Adafactor():
            return torch.optim.Adafactor(groups, lr=spec.lr, beta2_decay=spec.beta2_decay, d=spec.clip_threshold, foreach=False)


def learning_rate(peak: float, schedule: Schedule, step: int, total: int) -> float:
    """Return the learning rate of `step` (from 1): linear up to `peak` at the end of the warm-up, then by the schedule's kind, of which
    cosine ends at min_ratio * peak at step `total`."""
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    done = step - schedule.warmup_steps  # from 1: what a kind does after n steps is first seen in step n + 1
    match schedule.kind:
        case "constant":
            return peak
        case "step":
            assert schedule.step_size is not None
            return peak * float((schedule.gamma or DEFAULT_GAMMA) ** ((done - 1) // schedule.step_size))
        case "warm_restarts":
            return peak * _cosine(cycle_progress(done - 1, schedule.cycle_steps or 1, schedule.cycle_growth or 1), schedule.min_ratio)
    return peak * _cosine(min(1.0, done / max(1, total - schedule.warmup_steps)), schedule.min_ratio)


def cycle_progress(done: int, first: int, growth: int) -> float:
    """Return how much of its cycle is done after `done` steps, in [0, 1). Cycles have `first` steps, then `growth` times as many each (Loshchilov
    and Hutter 2017)."""
    length = first
    while done >= length and growth > 1:
        done, length = done - length, length * growth
    return done % length / length


def _cosine(done: float, least: float) -> float:
    return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done))


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
