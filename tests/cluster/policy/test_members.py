"""Of whom the next generation is made where ranks hold parts of the state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.decide import decide
from paceline.cluster.policy.decisions import Members, Regroup, Restart, Stop
from paceline.cluster.policy.members import regroup
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import RankState
from paceline.parallelism.plan import state_shards
from paceline.training.schema.parallelism import REPLICAS, Parallelism
from tests.cluster.policy.test_decide import NOW, crashed, rank, report
from tests.cluster.policy.test_decide_close_up import broken, gang, killed, saving

FSDP = Parallelism(strategy="fsdp")
PAIRS = Parallelism(strategy="fsdp", shard=2)  # ranks 0 and 1 are a replica, 2 and 3 another
TWO_COPIES = Parallelism(strategy="fsdp", replicate=2)


def after(plan: Parallelism, size: int, dead: set[int], *, least: int = 1, spares: int = 0, target: int | None = None) -> Members | None:
    ranks = [killed(number) if number in dead else rank(number) for number in range(size)]
    parked = [rank(size + number, RankState.PARKED) for number in range(spares)]
    return regroup(gang(*ranks, least=least, plan=plan, target=target), [each for each in ranks if not each.failed], parked)


@pytest.mark.parametrize(
    ("plan", "size", "dead", "known", "expected"),
    [
        (REPLICAS, 3, {1}, {}, ((0, 2), (), (), True)),
        (REPLICAS, 3, {0}, {"spares": 2}, ((1, 2), (3,), (), True)),
        (FSDP, 3, {1}, {}, ((0, 2), (), (), False)),
        (FSDP, 3, {1}, {"spares": 1}, ((0, 2), (3,), (), False)),
        (FSDP, 3, {1}, {"least": 3}, None),
        (FSDP, 3, set(), {"least": 3}, ((0, 1, 2), (), (), True)),  # a connection broke
        (PAIRS, 4, {1}, {}, ((2, 3), (), (0,), True)),
        (PAIRS, 4, {2}, {}, ((0, 1), (), (3,), True)),
        (PAIRS, 4, {0, 3}, {}, ((2, 1), (), (), True)),  # of two groups a whole one is left
        (PAIRS, 4, {1, 3}, {}, ((0, 2), (), (), False)),  # nobody else had that part
        (PAIRS, 4, {3}, {"spares": 1}, ((0, 1, 2), (4,), (), True)),
        (PAIRS, 6, {1}, {"target": 4}, ((2, 3, 4, 5), (), (0,), True)),
        (PAIRS, 4, {1, 2, 3}, {}, None),
        (TWO_COPIES, 4, {1}, {"least": 2}, ((2, 3), (), (0,), False)),  # cut otherwise: parts of four are not parts of two
    ],
)
def test_the_next_members(plan: Parallelism, size: int, dead: set[int], known: dict[str, Any], expected: Any) -> None:
    found = after(plan, size, dead, **known)
    assert (found and (found.survivors, found.joining, found.parking, found.whole)) == expected


@given(st.sampled_from([REPLICAS, FSDP, PAIRS, TWO_COPIES]), st.integers(1, 4), st.data())
def test_the_survivors_fit_the_plan_and_have_the_state_that_is_left(plan: Parallelism, pairs: int, data: st.DataObject) -> None:
    size = 2 * pairs
    dead = data.draw(st.sets(st.integers(0, size - 1), max_size=size - 1))
    spares, least = data.draw(st.integers(0, 3)), data.draw(st.integers(1, size))
    found = after(plan, size, dead, spares=spares, least=least)
    alive = set(range(size)) - dead
    possible = [ranks for ranks in range(least, min(size, len(alive) + spares) + 1) if plan.misfit(ranks) is None]
    assert (found is None) == (not possible)
    if found is None:
        return
    world = len(found.survivors) + len(found.joining)
    assert world == max(possible)
    assert set(found.survivors) | set(found.parking) == alive
    assert not set(found.survivors) & set(found.parking)
    held = state_shards(plan.degrees(size))
    assert found.whole == (set(state_shards(plan.degrees(world))) <= {held[rank] for rank in alive})


def sharded(*ranks: RankView, least: int = 1, plan: Parallelism = FSDP, **known: Any) -> JobView:
    return gang(*ranks, least=least, plan=plan, **known)


def test_falling_back_in_place_is_one_of_the_restarts() -> None:
    decision = decide(sharded(rank(0), killed(1), broken(2)), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.members.survivors, decision.members.whole, decision.counts_as_restart) == ((0, 2), False, True)
    assert decision.why.endswith("go back to the newest checkpoint as generation 2: 1 of at most 3 restarts")
    exhausted = decide(sharded(rank(0), killed(1), broken(2), restarts=3), NOW)
    assert isinstance(exhausted, Stop)


def test_closing_up_is_none() -> None:
    decision = decide(sharded(rank(0), rank(1), rank(2), killed(3), plan=PAIRS, restarts=3), NOW)
    assert isinstance(decision, Regroup)
    members = decision.members
    assert (members.survivors, members.parking, members.whole, decision.counts_as_restart) == ((0, 1), (2,), True, False)


@pytest.mark.parametrize(
    ("view", "replaced"),
    [
        (sharded(rank(0), killed(1), least=2), (1,)),
        (sharded(rank(0), killed(1), killed(2), rank(3), least=4), (1, 2)),
        (sharded(rank(0), killed(1), killed(2), least=2), (1, 2)),  # as it must wait anyway
        (sharded(rank(0), killed(1), least=2, plan=REPLICAS), ()),  # replicas restart
        (sharded(rank(0), killed(1, reachable=False), least=2), ()),  # nobody there would start it
        (sharded(rank(0), killed(1, leaving=True), least=2), ()),
        (sharded(rank(0), rank(1, RankState.LOST), least=2), ()),
    ],
)
def test_too_few_survivors_of_a_model_in_parts_wait_for_new_processes_in_the_old_slots(view: JobView, replaced: tuple[int, ...]) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Regroup if replaced else Restart)
    assert not isinstance(decision, Regroup) or decision.members.replaced == replaced
    assert decision.counts_as_restart


def test_what_the_code_did_itself_is_no_ground_to_keep_its_processes() -> None:
    decision = decide(sharded(rank(0), crashed(1, failure=report(1, "exception")), rank(2)), NOW)
    assert isinstance(decision, Restart)
    assert decision.counts_as_restart


def test_a_pause_is_from_the_newest_checkpoint_where_they_would_only_fall_back_to_it() -> None:
    decision = decide(saving(rank(0), killed(1), rank(2), plan=FSDP), NOW)
    assert isinstance(decision, Stop)
