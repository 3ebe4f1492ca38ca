"""How many agents a machine gets: from its GPUs, and from what was typed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from paceline.cli.commands.stack import up
from paceline.cli.errors import UsageProblem
from paceline.cli.local import local_agents as module
from paceline.cli.local.local_agents import LocalAgents, UsableCards, shape, usable_cards
from paceline.monitoring.samples import Gpu
from paceline.monitoring.torch_build import TorchBuild
from tests.cli.conftest import ROOT, TIMEOUT_S
from tests.nvml import FakeMachine

CARDS = tuple(Gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA Test", memory_bytes=1) for index in range(8))
COUNT = "from paceline.cli.local.local_agents import local_agents; print(local_agents(None, None, None))"


@pytest.mark.parametrize(
    ("agents", "slots", "cards", "wanted"),
    [
        (None, None, 0, LocalAgents(2, 1)),
        (None, 3, 0, LocalAgents(2, 3)),
        (4, None, 0, LocalAgents(4, 1)),
        (None, None, 1, LocalAgents(1, None)),
        (None, None, 8, LocalAgents(1, None)),
        (None, 2, 8, LocalAgents(1, 2)),
        (2, None, 8, LocalAgents(2, 4)),
        (4, None, 8, LocalAgents(4, 2)),
        (2, 1, 8, LocalAgents(2, 1)),
    ],
)
def test_one_agent_where_there_are_gpus_unless_they_are_shared_out(
    agents: int | None, slots: int | None, cards: int, wanted: LocalAgents
) -> None:
    assert shape(agents, slots, CARDS[:cards]) == wanted


@pytest.mark.parametrize(
    ("agents", "cards", "slots", "left"),
    [(3, 4, 1, "1 of 4 GPUs is offered by no agent"), (3, 8, 2, "2 of 8 GPUs are offered by no agent")],
)
def test_cards_that_cannot_be_shared_out_evenly_are_told(agents: int, cards: int, slots: int, left: str) -> None:
    """One GPU of four lay idle without a word."""
    shared = shape(agents, None, CARDS[:cards], ("note: another",))
    assert shared == LocalAgents(agents, slots, ("note: another", f"note: {left}: 3 agents get {slots} each; one agent offers them all"))
    assert shape(agents, slots, CARDS[:cards]).notes == ()  # it was asked for


@pytest.mark.parametrize("cards", [0, 1, 8])
def test_the_first_hour_starts_two_agents_on_any_machine(cards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line was refused where there is one GPU, and the way out of the refusal gave one slot, where the page goes on with two."""
    monkeypatch.setattr(module, "_cards_here", lambda: (CARDS[:cards], None))
    (line,) = re.findall(r"^    paceline up (.*)$", (ROOT / "docs" / "first_hour.md").read_text(), re.MULTILINE)
    application = typer.Typer()
    application.command()(up)
    typed = typer.main.get_command(application).make_context("up", shlex.split(line)).params
    assert module.local_agents(typed["agents"], typed["slots_per_agent"], typed["gpus"]) == LocalAgents(2, 1)


@pytest.mark.parametrize(
    ("agents", "slots", "asked"),
    [
        (2, None, "2 agents would offer 2 GPUs"),
        (1, 2, "1 agent with 2 slots each would offer 2 GPUs"),
        (2, 1, "2 agents with 1 slot each would offer 2 GPUs"),
    ],
)
def test_more_than_there_are_is_refused(agents: int, slots: int | None, asked: str) -> None:
    with pytest.raises(UsageProblem, match=f"{asked}, and there is 1: GPU 0") as refused:
        shape(agents, slots, CARDS[:1])
    assert "--gpus none" in str(refused.value.hint)


def test_a_wrong_choice_is_a_usage_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageProblem, match="a card is offered whole"):
        usable_cards("0.5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "gpu0")
    with pytest.raises(UsageProblem, match="CUDA_VISIBLE_DEVICES=gpu0: 'gpu0' names no card"):
        usable_cards(None)


def test_cards_that_cannot_be_read_are_told_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(module, "find_torch", lambda: TorchBuild("2.13.0+cu130", "13.0"))
    monkeypatch.setattr(module, "_cards_here", lambda: (CARDS[:3], "GPU 3 cannot be read (GPU is lost)"))
    note = "note: GPU 3 cannot be read (GPU is lost): offered by no slot, look at nvidia-smi"
    assert usable_cards(None) == UsableCards(CARDS[:3], note)
    monkeypatch.setattr(module, "_cards_here", lambda: ((), "NVML: GPU 0 cannot be read (GPU is lost)"))
    assert usable_cards(None) == UsableCards((), "note: NVML: GPU 0 cannot be read (GPU is lost); agents here offer CPU slots")
    with pytest.raises(UsageProblem, match=r"there is no GPU 0, .*; NVML: GPU 0 cannot be read \(GPU is lost\)"):
        usable_cards("0")


@pytest.mark.parametrize(("cuda_torch", "agents"), [(True, "agents=1, slots_per_agent=None"), (False, "agents=2, slots_per_agent=1")])
def test_cards_that_torch_cannot_use_are_told_and_not_counted(tmp_path: Path, cuda_torch: bool, agents: str) -> None:
    machine = FakeMachine(tmp_path, cards=2, cuda_torch=cuda_torch)
    done = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=ROOT, env=os.environ | machine.environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert agents in done.stdout, done.stderr
    assert ("is a build without CUDA, beside GPU 0 and GPU 1" in done.stdout) is not cuda_torch
