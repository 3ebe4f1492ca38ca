"""Local work that all ranks do at once and whose outcome all know, so that they go on together or fail together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from paceline.distributed.process_group import Group
from paceline.training.errors import TrainingError

T = TypeVar("T")


def run_on_all_ranks(group: Group, work: Callable[[], T], failure: type[TrainingError]) -> list[T]:
    """Run `work` on every rank and return all results by rank; results are small and picklable.

    If it failed on any rank, all ranks raise the error of the first such rank. An OSError becomes a `failure`.
    """
    outcomes = group.all_gather_object(attempt(work, failure))
    raise_first(outcomes)
    return outcomes


def run_on_each_rank(group: Group, work: Callable[[], T], failure: type[TrainingError]) -> T:
    """Run `work` on every rank and return this rank's own result, which may be large. Raises as `run_on_all_ranks` does."""
    outcome = attempt(work, failure)
    raise_first(group.all_gather_object(outcome if isinstance(outcome, TrainingError) else None))
    assert not isinstance(outcome, TrainingError)
    return outcome


def raise_first(outcomes: Iterable[object]) -> None:
    of_ranks = list(outcomes)
    for rank, outcome in enumerate(of_ranks):
        if isinstance(outcome, TrainingError):
            raise type(outcome)(f"rank {rank}: {outcome}" if len(of_ranks) > 1 else str(outcome))


def attempt(work: Callable[[], T], failure: type[TrainingError]) -> T | TrainingError:
    try:
        return work()
    except OSError as error:
        return failure(str(error))
    except TrainingError as error:
        return error
