"""How much data a rank sees. The order of samples is a function of it, so it must be the same on all ranks, and after a pause what it was before."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.distributed.errors import GenerationOverError
from paceline.training.errors import InvalidInputError
from paceline.training.task import Dataset, Stream, Task


def size_of(train: Dataset | Stream) -> str:
    """Return the size of training data in words, such as "60000 samples"."""
    return f"{train.shards} shards" if isinstance(train, Stream) else f"{len(train)} samples"


def sizes_of(task: Task) -> str:
    """Return the sizes of all data of a task in words, such as "60000 samples, 10000 to evaluate with"."""
    held_out = "" if task.evaluation is None else f", {len(task.evaluation)} to evaluate with"
    return size_of(task.train) + held_out


def require_same_on_all(sizes: Sequence[str], generations: Sequence[int], rank: int) -> None:
    """Check that all ranks of a new generation see as much data. `generations`: the newest that each rank's process has begun; 0: it is new.

    New ranks whose data differ from those of the ranks that train end alone: InvalidInputError there, GenerationOverError on the ranks that go on
    without them. Where all ranks are new, InvalidInputError on every rank.
    """
    training = [each for each, generation in enumerate(generations) if generation]
    first = training[0] if training else 0
    different = [each for each, size in enumerate(sizes) if size != sizes[first]]
    if not different:
        return
    if training and rank not in different:
        raise GenerationOverError(f"rank {different[0]}, which was to join, has other data: {sizes[different[0]]}")
    odd = rank if rank in different else different[0]
    raise InvalidInputError(
        f"rank {odd} has {sizes[odd]}, and rank {first} has {sizes[first]}: all ranks must see the same data, or samples are used twice and others never; "
        "give every node the same files, and the same Python where data.kind is stdlib_text"
    )


def require_as_saved(saved: str | None, train: Dataset | Stream, step: int) -> None:
    """Check that a job goes on with as much data as it was saved with. `saved` is the size in the checkpoint of `step`; None: it has none.
    Raises InvalidInputError."""
    now = size_of(train)
    if saved is not None and saved != now:
        raise InvalidInputError(
            f"the data have {now}, and had {saved} when step {step} was saved: in the order of another size, samples would be used twice and others "
            "never; put the data back as they were, or go on with these as a new job: paceline restore"
        )
