"""Whatever cannot be undone is asked about at a terminal, and done at once with --yes."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import FakeCoordinator
from tests.cli.schema_answers import ID, TextEverywhere

#: Commands, the end of the question, and the request that does it.
ASKS = [
    (("keys", "revoke", "gpt"), "Revoke? [y/N]", "DELETE"),
    (("sessions", "end", ID), "Sign out? [y/N]", "DELETE"),
    (("nodes", "remove", "gpt"), "Remove? [y/N]", "DELETE"),
    (("nodes", "drain", "gpt"), "Remove? [y/N]", "DELETE"),
    (("checkpoints", "delete", ID), "Delete? [y/N]", "DELETE"),
    (("restore", ID, "--in-place"), "Set back? [y/N]", "POST"),
    (("cancel", ID), "Cancel? [y/N]", "DELETE"),
    (("delete", ID), "Delete? [y/N]", "DELETE"),
    (("experiment", "cancel", ID), "Cancel? [y/N]", "DELETE"),
]


@pytest.mark.parametrize(("words", "question", "method"), ASKS, ids=[" ".join(words[:2]) for words, *_ in ASKS])
def test_it_is_asked_first_and_nothing_is_done_without_a_yes(
    paceline: Paceline, coordinator: FakeCoordinator, words: tuple[str, ...], question: str, method: str
) -> None:
    TextEverywhere("some text").install(coordinator)
    code, shown = paceline.at_terminal(*words, typed="n\n", until=question)
    assert (code, "Aborted" in shown) == (1, True)
    assert [each for each in coordinator.requests if each.method != "GET"] == []
    assert paceline.at_terminal(*words, "--yes")[0] == 0
    assert [each.method for each in coordinator.requests if each.method != "GET"] == [method]


def test_a_context_is_forgotten_after_a_question(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    TextEverywhere("some text").install(coordinator)
    assert paceline("login", "--store-as", "prod").returncode == 0
    code, shown = paceline.at_terminal("context", "remove", "prod", typed="n\n", until="Forget? [y/N]")
    assert (code, "A key is shown once" in shown) == (1, True)
    assert "prod" in paceline("context", "list").stdout
    assert paceline.at_terminal("context", "remove", "prod", typed="y\n", until="Forget? [y/N]")[0] == 0
    assert "prod" not in paceline("context", "list").stdout
