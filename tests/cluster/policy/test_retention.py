"""What retention deletes, and what it never does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.retention import CheckpointView, best, to_delete, to_delete_next
from paceline.cluster.states import CheckpointState
from paceline.training.schema.checkpoint import CheckpointPolicy

KEEP_TWO = CheckpointPolicy(keep_last=2, keep_best=1)
DAMAGED = CheckpointState.DAMAGED


def saved(step: int, loss: float | None = None, **known: Any) -> CheckpointView:
    metrics = {} if loss is None else {"eval_loss": loss}
    return CheckpointView(f"c{step}", step, known.pop("generation", 1), known.pop("state", CheckpointState.COMMITTED), metrics, **known)


def ids(checkpoints: list[CheckpointView]) -> list[str]:
    return [checkpoint.id for checkpoint in checkpoints]


def test_the_newest_few_and_the_best_stay() -> None:
    assert ids(to_delete([saved(1, 0.5), saved(2, 0.9), saved(3, 0.8), saved(4, 0.7), saved(5, 0.6)], KEEP_TWO)) == ["c2", "c3"]


def test_pinned_and_referenced_ones_stay() -> None:
    assert to_delete([saved(1, pinned=True), saved(2, referenced=True), saved(3), saved(4)], KEEP_TWO) == []


def test_a_damaged_one_does_not_count_as_kept() -> None:
    assert ids(to_delete([saved(1), saved(2), saved(3, state=DAMAGED)], KEEP_TWO)) == []
    assert ids(to_delete([saved(1), saved(2, state=DAMAGED), saved(3)], KEEP_TWO)) == ["c2"]


def test_nan_is_never_the_best() -> None:
    assert ids(best([saved(1, float("nan")), saved(2, 3.0)], KEEP_TWO)) == ["c2"]


def test_max_mode_turns_best_around() -> None:
    assert ids(best([saved(1, 0.1), saved(2, 0.9)], CheckpointPolicy(mode="max"))) == ["c2", "c1"]


def test_what_goes_with_the_next_save() -> None:
    assert ids(to_delete_next([saved(1, 0.9), saved(2, 0.5), saved(3, 0.7)], KEEP_TWO)) == ["c1"]
    assert to_delete_next([], KEEP_TWO) == []


CHECKPOINTS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(CheckpointState), st.none() | st.floats(), st.booleans(), st.booleans()), max_size=9
).map(
    lambda rows: [
        CheckpointView(f"c{i}", step, 1, state, {} if loss is None else {"eval_loss": loss}, pinned, referenced)
        for i, (step, state, loss, pinned, referenced) in enumerate(rows)
    ]
)
POLICIES = st.builds(CheckpointPolicy, keep_last=st.integers(1, 3), keep_best=st.integers(0, 2), mode=st.sampled_from(["min", "max"]))


@given(CHECKPOINTS, POLICIES)
def test_what_is_never_deleted(checkpoints: list[CheckpointView], policy: CheckpointPolicy) -> None:
    doomed = to_delete(checkpoints, policy)
    committed = [each for each in checkpoints if each.state is CheckpointState.COMMITTED]
    left = [each for each in committed if each not in doomed]
    assert not any(each.pinned or each.referenced for each in doomed)
    assert len(left) >= min(policy.keep_last, len(committed))
    if committed:
        assert max(each.step for each in committed) == max(each.step for each in left)
    assert to_delete([each for each in checkpoints if each not in doomed], policy) == []


def test_the_last_checkpoint_from_before_a_nan_stays_whatever_the_policy_keeps() -> None:
    """Three NaN checkpoints took the place of all that could be gone back to."""
    checkpoints = [saved(step) for step in (5, 10, 11, 15, 20)]
    assert ids(to_delete(checkpoints, KEEP_TWO)) == ["c5", "c10", "c11"]
    assert ids(to_delete(checkpoints, KEEP_TWO, not_finite_step=12)) == ["c5", "c11"]  # the update of step 11 has made the loss of 12 so
    assert ids(to_delete(checkpoints, KEEP_TWO, not_finite_step=3)) == ["c5", "c10", "c11"]
    assert ids(to_delete_next(checkpoints, KEEP_TWO, not_finite_step=12)) == ["c5", "c11", "c15"]
