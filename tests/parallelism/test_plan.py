from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelism.estimate import memory
from parallelism.plan import WorldSizeMismatchError, degrees, share


@given(st.integers(0, 200), st.integers(1, 20))
def test_shares_cover_everything_once_in_order_and_differ_by_one_at_most(total: int, replicas: int) -> None:
    shares = [share(total, replica, replicas) for replica in range(replicas)]
    assert [index for part in shares for index in part.indices] == list(range(total))
    assert max(part.count for part in shares) - min(part.count for part in shares) <= 1


def test_degrees_multiply_to_the_world() -> None:
    assert degrees("ddp", 4).world_size == 4
    assert degrees("single", 1).replicate == 1


def test_what_does_not_fit_names_the_way_out() -> None:
    with pytest.raises(WorldSizeMismatchError, match="the world has 2 ranks; use ddp"):
        degrees("single", 2)
    with pytest.raises(WorldSizeMismatchError, match="fsdp is not available yet"):
        degrees("fsdp", 2)


def test_memory_counts_what_lives_between_steps() -> None:
    adamw, sgd = memory(1000, "adamw", "fp32"), memory(1000, "sgd", "bf16")
    assert (adamw.parameters, adamw.gradients, adamw.optimizer, adamw.total) == (4000, 4000, 8000, 16000)
    assert sgd.total == 12000
    fixed_tree = memory(1000, "sgd", "fp32", gradient_buffers=2.5)
    assert fixed_tree.gradients == 10_000
    assert fixed_tree.note.startswith("gradients: 2.5 copies")
    assert "stay fp32" in sgd.note
