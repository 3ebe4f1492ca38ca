"""Rank processes on this machine's devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from paceline.distributed import env
from paceline.training.link import RankOrder, RankPlace
from paceline.training.rank_process import device_of
from paceline.training.spec.stored import StoredSpec
from scripts.gpu_check.machine import Machine
from tests.ranks import run_ranks

TIMEOUT_SECONDS = 600.0  # a row has a limit of its own, and a lower one


def on_ranks(machine: Machine, ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(world, *arguments)` in a process per device; its results by rank."""
    return run_ranks(function, ranks, *arguments, timeout=TIMEOUT_SECONDS, device=machine.device)


def enter(world: RankPlace) -> torch.device:
    """Set up the process as a rank does before it builds anything."""
    env.export_rank(world, world.interface, Path.cwd())
    torch.set_num_threads(env.intra_op_threads())
    return device_of(RankOrder(spec=StoredSpec({}), world=world, folder="", agent_socket=""))
