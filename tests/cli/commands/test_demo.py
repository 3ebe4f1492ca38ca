"""The gang of the demo: whatever is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.api_types import Node, SlotUse
from paceline.cli.commands.demo import everything, spec_of
from tests.cli.conftest import Paceline


def test_the_spec_of_the_demo_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked for in the folder of the command, where only a checkout has it."""
    monkeypatch.chdir(tmp_path)
    assert spec_of(None)["name"] == "gpt-stdlib"


def test_a_spec_that_cannot_be_read_is_told_before_a_stack_starts(stranger: Paceline) -> None:
    done = stranger("demo", "nowhere.yaml")
    assert done.returncode == 2
    assert "nowhere.yaml cannot be read" in done.stderr
    assert not (stranger.folder / ".paceline").exists()


def node(slots: int, device: str = "cuda", state: str = "ready") -> Node:
    return Node(id="N", name="n", state=state, device=device, slots=[SlotUse(index=index) for index in range(slots)], address="")


@pytest.mark.parametrize(
    ("nodes", "gang"),
    [
        ([node(1)], (1, 1)),
        ([node(8)], (1, 8)),
        ([node(1, "cpu"), node(1, "cpu")], (2, 1)),
        ([node(2), node(16, "cpu")], (1, 2)),  # GPUs where there are any
        ([node(8), node(4)], (2, 4)),
        ([node(8), node(4, state="cordoned")], (1, 8)),
        ([node(8)] * 100, (4, 8)),  # a rank has a sample at least
        ([node(64, "cpu")], (1, 32)),
        ([], (1, 1)),
    ],
)
def test_the_demo_trains_on_what_there_is(nodes: list[Node], gang: tuple[int, int]) -> None:
    assert everything(nodes) == {"nodes": gang[0], "slots_per_node": gang[1]}
