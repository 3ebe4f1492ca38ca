"""Keep the process groups of scripts alive after their destruction, so that no script deadlocks in its last line.

torch 2.13: a thread of gloo's drops the last collective while it holds the group's lock, and needs the interpreter's lock for that (the
collective keeps the `contextvars` of the backward pass that started it). DistributedDataParallel's reducer, if it holds the last
reference to a group, destroys that group while it holds the interpreter's lock, and needs the group's: a deadlock, once in ten runs of a
small program on two busy cores. A group that is never destroyed cannot deadlock. Source: https://github.com/pytorch/pytorch/issues/56297,
open in 2026-11.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from paceline.distributed import torch_private

_kept: list[object] = []


def keep_destroyed_groups() -> None:
    """Patch `torch.distributed.destroy_process_group` so that it shuts a group down but keeps the object, with its two idle threads.

    For processes that end without clean-up (`os._exit`). Does nothing where torch was not imported.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None:
        return
    c10d = distributed.distributed_c10d
    destroy = c10d.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(group: Any = None) -> None:
        _kept.extend(torch_private.living_groups())  # the lines of the world end with it
        destroy(group)

    distributed.destroy_process_group = c10d.destroy_process_group = destroy_process_group
