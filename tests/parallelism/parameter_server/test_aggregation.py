"""Servers add what workers push in the fixed tree: one result for any number of workers. No torch."""

from __future__ import annotations

import operator

from hypothesis import given
from hypothesis import strategies as some

from paceline.parallelism.parameter_server.aggregation import add_up, rounds, subtrees
from paceline.parallelism.plan import Coordinates, MicroBatchAssignment, assign_remaining, assign_to_workers, with_servers
from paceline.parallelism.tree import TreeNode, TreeSum, tree_sum


def pushed(assignment: MicroBatchAssignment, losses: list[float]) -> list[tuple[int, int, float]]:
    """(rank, round, value) of every worker's pushes, found as a worker finds them: leaf by leaf."""
    found = []
    for rank, share in enumerate(assignment.shares):
        tree = TreeSum(assignment.micro_batches, operator.add)
        for leaf in share:
            tree.put(TreeNode(0, leaf), losses[leaf])
        found += [(rank, number, value) for number, (_, value) in enumerate(tree.from_left_to_right)] if share else []
    return found


@given(some.lists(some.floats(-1e6, 1e6), min_size=1, max_size=24), some.integers(1, 3), some.data())
def test_any_world_and_any_order_of_arrival_gives_the_bits_of_one_process(losses: list[float], servers: int, data: some.DataObject) -> None:
    workers = data.draw(some.integers(1, len(losses)))
    assignment = Coordinates(with_servers(servers + workers, servers)).assignment(len(losses))
    pushes = pushed(assignment, losses)
    assert rounds(assignment) == {rank: sum(each[0] == rank for each in pushes) for rank in range(servers, servers + workers)}
    alone = tree_sum(losses, operator.add)
    assert add_up(assignment, data.draw(some.permutations(pushes)), operator.add).hex() == alone.hex()


@given(some.lists(some.floats(-1e6, 1e6), min_size=4, max_size=20), some.data())
def test_so_do_survivors_that_keep_what_they_have_computed(losses: list[float], data: some.DataObject) -> None:
    total = len(losses)
    kept = [
        data.draw(some.sets(some.integers(0, total // 2 - 1), max_size=3)),
        data.draw(some.sets(some.integers(total // 2, total - 1), max_size=3)),
    ]
    assignment = assign_to_workers(assign_remaining(total, kept), 1, 0)
    assert assignment.shares[0] == ()
    assert add_up(assignment, pushed(assignment, losses), operator.add).hex() == tree_sum(losses, operator.add).hex()


def test_servers_push_nothing() -> None:
    assignment = Coordinates(with_servers(5, 2)).assignment(8)
    assert list(subtrees(assignment)) == [2, 3, 4]
