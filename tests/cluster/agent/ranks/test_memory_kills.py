"""A kill of the kernel's counts for the ranks that die with it, and not for those that die days later."""

from __future__ import annotations

from paceline.cluster.agent.ranks.memory_kills import LOOK_SECONDS, MemoryKills


class Machine:
    """A count of kills, and a clock."""

    def __init__(self) -> None:
        self.kills, self.now = 7, 1_000.0
        self.seen = MemoryKills(lambda: self.kills, lambda: self.now)

    def pass_by(self, seconds: float) -> None:
        """Let time pass, as the spawner of living ranks does."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.seen.next_look, end)
            self.seen.look()


def test_a_kill_counts_for_a_rank_that_ends_at_once_or_slowly() -> None:
    machine = Machine()
    machine.pass_by(10 * LOOK_SECONDS)
    machine.kills += 1
    assert machine.seen.has_struck()
    machine.pass_by(LOOK_SECONDS)
    assert machine.seen.has_struck()


def test_every_rank_that_the_kernel_has_killed_at_once_is_told_so() -> None:
    machine = Machine()
    machine.kills += 2
    assert [machine.seen.has_struck() for _ in range(2)] == [True, True]


def test_a_kill_of_long_ago_is_no_reason_for_the_end_of_a_rank() -> None:
    machine = Machine()
    machine.kills += 1
    machine.pass_by(2 * LOOK_SECONDS)
    assert not machine.seen.has_struck()


def test_a_kill_while_there_were_no_ranks_is_no_reason_for_the_end_of_the_next_one() -> None:
    machine = Machine()
    machine.kills += 1
    machine.now += 3 * 24 * 3600.0
    machine.seen.look()  # as the rank starts
    assert not machine.seen.has_struck()
