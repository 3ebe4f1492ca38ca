"""What the spawner does once so that no rank has to: import everything, warm what is lazy, start no thread, touch no CUDA."""

from __future__ import annotations

import importlib

import torch

from paceline.distributed import env
from paceline.distributed.cuda_driver import require_cuda_unstarted
from paceline.distributed.heap import keep_freed_blocks
from paceline.training.optim.optimizers import build_optimizer, clip_gradients
from paceline.training.schema.optimizer import AdamW, Optimizer, Sgd

#: What torch, and we, would import in the middle of the first step or save.
LAZY_MODULES = (
    "torch._dynamo",
    "torch.distributed.checkpoint.planner_helpers",
    "torch.distributed._shard.sharded_tensor",
    "torch.distributed.fsdp",
)


def preload() -> None:
    """Fork-safe. A backward pass is left out on purpose: autograd would start threads, which a fork does not carry over."""
    env.never_touch_cuda()
    keep_freed_blocks()
    torch.set_num_threads(1)
    for module in LAZY_MODULES:
        importlib.import_module(module)
    with env.no_card_visible():
        for spec in (AdamW(), Sgd()):
            warm_up(spec)
    require_cuda_unstarted()


def warm_up(spec: Optimizer) -> None:
    """The first step of an optimizer imports a second's worth of modules."""
    model = torch.nn.Linear(2, 2)
    optimizer = build_optimizer(spec, model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    clip_gradients(model.parameters(), 1.0)
    optimizer.step()
