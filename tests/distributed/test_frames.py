"""Objects gathered as frames: short ones in one call, long ones in two, whatever the lengths of the ranks."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from torch import Tensor

from paceline.distributed.frames import OPENING_BYTES, gather_objects

ROOT = Path(__file__).parents[2]
#: What a pickle has called.
ran: list[str] = []


class Ranks:
    """Ranks as threads that gather tensors of one length over shared memory."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls = [0] * count
        self._barrier, self._slots = Barrier(count, timeout=10), list[Tensor | None]([None] * count)

    def gather(self, values: list[Any]) -> list[list[Any]]:
        with ThreadPoolExecutor(self.count) as threads:
            return list(threads.map(self._rank, range(self.count), values))

    def _rank(self, rank: int, value: Any) -> list[Any]:
        def gather(tensor: Tensor) -> list[Tensor]:
            self.calls[rank] += 1
            self._slots[rank] = tensor
            self._barrier.wait()
            found = [part for part in self._slots if part is not None]
            self._barrier.wait()
            assert len({part.shape for part in found}) == 1, "a gather takes tensors of one length"
            return found

        return gather_objects(value, gather)


@pytest.mark.parametrize(
    ("values", "calls"),
    [
        ([None, True, False], 1),
        ([{"step": 7}, {"step": 7, "loss": 0.25}], 1),
        ([None, b"x" * 10_000], 2),
        ([b"y" * 10_000, None, "z" * 300], 2),
        ([list(range(1_000))], 2),
    ],
)
def test_every_rank_gets_what_every_rank_gave(values: list[Any], calls: int) -> None:
    ranks = Ranks(len(values))
    assert ranks.gather(values) == [values] * len(values)
    assert ranks.calls == [calls] * len(values)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_lengths_about_the_opening_are_whole(beyond: int) -> None:
    head = OPENING_BYTES - 8 - len(pickle.dumps(b"x" * 200)) + 200
    values = [b"x" * (head + beyond), b""]
    ranks = Ranks(2)
    assert ranks.gather(values) == [values] * 2
    assert ranks.calls == ([2, 2] if beyond > 0 else [1, 1])


class RunsCode:
    """An object whose pickle has a call in it."""

    def __reduce__(self) -> Any:
        return note, ("anything",)


def note(word: str) -> None:
    ran.append(word)


def test_a_rank_runs_what_another_one_sends_and_the_table_of_trust_says_so() -> None:
    """It said that ranks believe what they exchange, which could be read as wrong numbers alone."""
    Ranks(2).gather([RunsCode(), None])
    assert ran == ["anything"] * 2
    (row,) = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| the network between the ranks")]
    assert "unpickle" in row
    assert "runs code in the ranks" in row
