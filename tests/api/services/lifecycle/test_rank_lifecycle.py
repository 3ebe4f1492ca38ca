"""Every state of a rank against every other one, and who writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from paceline.api.services.lifecycle import rank_lifecycle
from paceline.cluster.states import IllegalTransitionError, RankState
from paceline.db.models.jobs import RankRow
from tests import factories

ROOT = Path(__file__).parents[4]
LATER = factories.START + timedelta(seconds=1)
STATES = [
    RankState.ASSIGNED,
    RankState.STARTING,
    RankState.PARKED,
    RankState.RUNNING,
    RankState.STOPPING,
    RankState.EXITED,
    RankState.LOST,
    RankState.MOVED,
]
#: Row: the state a rank is in. Column: the state it is to be in. `+` may be reported by an agent, `d` only decided by the coordinator, `=` says
#: again what is known, `.` is none.
TABLE = """
    = + + + + + d d
    . = + + + + d d
    . . = + + + d d
    . . . = + + d d
    . . . . = + d d
    . . . . . = . .
    . . . . . + = .
    . . . . . . . =
"""
WAYS = [
    (old, new, sign)
    for old, line in zip(STATES, TABLE.split("\n")[1:-1], strict=True)
    for new, sign in zip(STATES, line.split(), strict=True)
]


def rank(state: RankState, *, parked: bool = False) -> RankRow:
    return RankRow(rank=0, state=state, parked=parked, updated_at=factories.START)


def test_the_table_is_about_all_states() -> None:
    assert list(RankState) == STATES
    assert len(WAYS) == len(STATES) ** 2


@pytest.mark.parametrize(("old", "new", "sign"), WAYS)
def test_a_rank_moves_along_the_table_only(old: RankState, new: RankState, sign: str) -> None:
    row = rank(old)
    if sign == ".":
        with pytest.raises(IllegalTransitionError, match=rf"RankState {old} -> {new} is not allowed; from {old}: "):
            rank_lifecycle.move(row, new, LATER)
        assert (row.state, row.updated_at) == (old, factories.START)
    else:
        rank_lifecycle.move(row, new, LATER)
        assert (row.state, row.updated_at) == (new, LATER)


@pytest.mark.parametrize(("old", "new", "sign"), WAYS)
def test_a_report_brings_a_rank_on_or_is_too_late(old: RankState, new: RankState, sign: str) -> None:
    assert rank_lifecycle.is_advance(rank(old), new) is (sign == "+")


@pytest.mark.parametrize("state", STATES)
def test_a_rank_arrives_in_the_next_generation_unless_it_stays_parked(state: RankState) -> None:
    assert rank_lifecycle.first_state(rank(state, parked=True), parked=True) is state
    assert rank_lifecycle.first_state(rank(state, parked=True), parked=False) is RankState.ASSIGNED
    assert rank_lifecycle.first_state(rank(state), parked=True) is RankState.ASSIGNED


def test_nothing_else_writes_the_state_of_a_row() -> None:
    """Rows of ranks and experiments are locked; those of jobs, nodes and checkpoints are written by `compare_and_set`, which assigns no attribute."""
    writers = {path.relative_to(ROOT).as_posix() for room in ("api", "db") for path in (ROOT / room).rglob("*.py") if _assigns_state(path)}
    assert writers == {f"api/services/lifecycle/{noun}_lifecycle.py" for noun in ("delivery", "experiment", "rank")}


def _assigns_state(path: Path) -> bool:
    return any(target.attr == "state" for target in _attributes_assigned(ast.parse(path.read_text())))


def _attributes_assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def test_no_statement_updates_rows_of_ranks() -> None:
    """A bulk update would pass the table by. One place has to: in a database that was put back every rank is taken for ended, whatever it was."""
    modules = [path for room in ("api", "db") for path in (ROOT / room).rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in modules if "update(RankRow)" in path.read_text()] == ["db/fencing.py"]
