"""The only writer of rank states: each change goes along `RANK_TRANSITIONS`."""

from __future__ import annotations

from datetime import datetime

from paceline.cluster.states import RANK_TRANSITIONS, REPORTED_RANK_STATES, RankState, check_transition
from paceline.db.models.jobs import RankRow


def move(rank: RankRow, to: RankState, now: datetime) -> None:
    """Bring a rank into a state, or say again that it is in it; its row is locked by this transaction.

    Raises IllegalTransitionError where the table has no such way. What an agent reports may be late: ask `is_advance` first.
    """
    if to is not rank.state:
        check_transition(RANK_TRANSITIONS, rank.state, to)
    rank.state, rank.updated_at = to, now


def is_advance(rank: RankRow, reported: RankState) -> bool:
    """Whether an agent's report brings a rank further. A report that does not is normal, and ignored: it may have been overtaken by a
    decision, come twice, or be that of a restarted agent that knows less than the row does."""
    return reported in RANK_TRANSITIONS[rank.state] & REPORTED_RANK_STATES


def first_state(process: RankRow, *, parked: bool) -> RankState:
    """The state in which a rank's process begins the next generation: a parked rank that stays parked is what it was, any other has yet to
    arrive there."""
    return process.state if parked and process.parked else RankState.ASSIGNED
