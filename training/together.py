"""Local work that all ranks do at once, and whose outcome everyone knows: they go on together or fail together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from distributed.process_group import Group
from training.errors import TrainingError

T = TypeVar("T")


def together(group: Group, work: Callable[[], T], failure: type[TrainingError]) -> list[T]:
    """Everyone's result by rank, small and picklable. If the work failed anywhere, everyone raises what the first such rank did;
    what the system refused (OSError) is a `failure`."""
    outcomes = group.gather(attempt(work, failure))
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, TrainingError):
            raise type(outcome)(f"rank {rank}: {outcome}" if group.world_size > 1 else str(outcome))
    return outcomes


def attempt(work: Callable[[], T], failure: type[TrainingError]) -> T | TrainingError:
    try:
        return work()
    except OSError as error:
        return failure(str(error))
    except TrainingError as error:
        return error
