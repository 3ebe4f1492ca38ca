"""Local work that all ranks do at once, and whose outcome everyone knows: they go on together or fail together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from distributed.process_group import Group
from training.errors import TrainingError

T = TypeVar("T")


def together(group: Group, work: Callable[[], T], failure: type[TrainingError]) -> list[T]:
    """Everyone's result by rank, small and picklable. If the work failed anywhere, everyone raises what the first such rank did;
    what the system refused (OSError) is a `failure`."""
    outcomes = group.gather(attempt(work, failure))
    raise_first(outcomes)
    return outcomes


def each_by_itself(group: Group, work: Callable[[], T], failure: type[TrainingError]) -> T:
    """The same for what is large: one's own result, once everyone has told that there is one."""
    outcome = attempt(work, failure)
    raise_first(group.gather(outcome if isinstance(outcome, TrainingError) else None))
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
