"""Functions on real rank processes that know their place as under torchrun: by their environment, and meeting at MASTER_PORT."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.distributed.env import ScriptLaunch, script_environment
from paceline.training.link import RankPlace
from tests.ports import free_port
from tests.ranks import run_ranks


def run_launched(function: Callable[..., Any], world_size: int, *arguments: Any) -> list[Any]:
    """`function(*arguments)` in a process per rank; its results by rank. It must be importable, its values picklable."""
    return run_ranks(take_place, world_size, free_port(), function, arguments)


def take_place(world: RankPlace, port: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    launch = ScriptLaunch(run_id=world.job_id, max_restarts=0, master_port=port, error_file=Path(os.devnull))
    os.environ.update(script_environment(world, launch))
    return function(*arguments)
