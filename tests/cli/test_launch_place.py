"""Where `paceline run` may run: never on another machine's behalf, and never on GPUs that are not the user's."""

from __future__ import annotations

import pytest

from paceline.cli.api_types import Node, SlotUse
from paceline.cli.errors import UnreachableError, UsageProblem
from paceline.cli.launch_place import coordinator_answers, require_free_choice_of_gpus
from paceline.cli.output import Format
from paceline.cli.session import Session
from paceline.cli.settings import ClientSettings, Setting
from tests.cli.fake_coordinator import Answer, FakeCoordinator

NOBODY = "http://127.0.0.1:9"


def session(url: str, source: str, key: str | None = "pk") -> Session:
    return Session(ClientSettings(Setting(url, source), Setting(key, source)), Format.TABLE)


def test_a_coordinator_that_answers_is_used(coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/auth/me", Answer(200, {}))
    assert coordinator_answers(session(coordinator.url, "project file x"))


@pytest.mark.parametrize(("source", "key"), [("default", None), ("default", "pk"), ("project file x", "pk"), ("user file x", "pk")])
def test_a_stack_of_this_machine_that_is_down_is_done_without(source: str, key: str | None) -> None:
    assert not coordinator_answers(session(NOBODY, source, key))


@pytest.mark.parametrize(
    ("url", "source"), [(NOBODY, "flag"), (NOBODY, "environment PACELINE_SERVER"), ("http://no-such-host.invalid", "user file x")]
)
def test_one_that_was_named_or_is_another_machine_s_has_to_answer(url: str, source: str) -> None:
    with pytest.raises(UnreachableError) as refused:
        coordinator_answers(session(url, source))
    assert "paceline run --private" in str(refused.value.hint)


def node(device: str) -> Node:
    return Node(id="n", name="n", state="ready", device=device, slots=[SlotUse(index=0), SlotUse(index=1)], address="")


@pytest.mark.parametrize("variables", [{}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "0,1,2"}])
def test_the_first_gpus_are_used_where_they_are_the_user_s(variables: dict[str, str]) -> None:
    require_free_choice_of_gpus(node("cuda"), 2, variables)


@pytest.mark.parametrize("visible", ["", "2,3", "1,0", "0", "GPU-8932f937"])
def test_other_gpus_than_the_visible_ones_are_never_taken(visible: str) -> None:
    with pytest.raises(UsageProblem, match=f"CUDA_VISIBLE_DEVICES={visible}"):
        require_free_choice_of_gpus(node("cuda"), 2, {"CUDA_VISIBLE_DEVICES": visible})
    require_free_choice_of_gpus(node("cpu"), 2, {"CUDA_VISIBLE_DEVICES": visible})
