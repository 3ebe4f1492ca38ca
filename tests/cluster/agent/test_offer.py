"""What an agent offers: decided in `choose`, and lived through with agents on a machine whose GPUs are made up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.offer import Offered, choose, gone_cards
from paceline.cluster.states import RankState
from paceline.monitoring.cards import CardChoiceError, read_option, read_variable
from paceline.monitoring.samples import NO_GPU, Gpu
from paceline.monitoring.torch_build import TorchBuild
from tests.cluster.agent.conftest import EXIT_TIMEOUT_SECONDS, AgentProcess, assignment, drained, running, script_job, training_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.nvml import FakeMachine
from tests.processes import kill_all

CARDS = tuple(Gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA Test", memory_bytes=1) for index in range(3))
CUDA, CPU = TorchBuild("2.13.0+cu130", "13.0"), TorchBuild("2.13.0+cpu", None)
UNSET = read_variable(None)
SHOW = "import os; print('sees', os.environ.get('CUDA_VISIBLE_DEVICES'), 'as', os.environ['LOCAL_RANK'], flush=True)"


def test_all_cards_are_offered_unless_something_else_is_said() -> None:
    choice = choose(CARDS, NO_GPU, None, UNSET, None, CUDA)
    assert (choice.cards, choice.count, choice.notice) == (CARDS, 3, None)
    assert choose(CARDS, NO_GPU, None, UNSET, 2, CUDA).count == 2
    assert choose(CARDS, NO_GPU, read_option("none"), UNSET, 5, CUDA).count == 0


def test_a_machine_without_cards_offers_cpu_slots_and_says_nothing() -> None:
    assert choose((), NO_GPU, None, read_variable("0,1"), 4, CPU) == choose((), NO_GPU, None, UNSET, None, CUDA)
    assert choose((), NO_GPU, None, UNSET, None, CUDA).notice is None


def test_a_driver_in_trouble_is_told() -> None:
    notice = choose((), "NVML: Driver/library version mismatch", None, UNSET, None, CUDA).notice
    assert notice == "NVML: Driver/library version mismatch; this node offers CPU slots: look at nvidia-smi"


def test_a_card_that_cannot_be_read_is_told_beside_the_others() -> None:
    lost = "GPU 2 cannot be read (GPU is lost)"
    choice = choose(CARDS[:2], lost, None, UNSET, None, CUDA)
    assert (choice.cards, choice.notice) == (CARDS[:2], f"{lost}: offered by no slot, look at nvidia-smi")
    assert choose(CARDS[:2], lost, read_option("0,1"), UNSET, None, CUDA).notice is None  # it was left out by name
    assert choose(CARDS[:2], lost, read_option("none"), UNSET, None, CUDA).notice is None
    with pytest.raises(CardChoiceError, match=r"there is no GPU 2; there are 2 GPUs: .*; GPU 2 cannot be read \(GPU is lost\)"):
        choose(CARDS[:2], lost, read_option("0,2"), UNSET, None, CUDA)


def test_cards_that_are_named_where_none_can_be_read_are_refused_with_the_reason() -> None:
    with pytest.raises(CardChoiceError, match="there is no GPU 0, nor any other NVIDIA GPU here; NVML: GPU is lost; leave it out"):
        choose((), "NVML: GPU is lost", read_option("0"), UNSET, None, CUDA)


def test_a_torch_without_cuda_offers_no_card_and_says_so() -> None:
    choice = choose(CARDS[:1], NO_GPU, None, UNSET, None, CPU)
    assert (choice.cards, choice.count) == ((), 0)
    assert choice.notice == (
        "torch 2.13.0+cpu is a build without CUDA, beside GPU 0 (NVIDIA Test): this node offers CPU slots only; install a build that has it to train "
        "there (pip install --force-reinstall torch==2.13.0)"
    )
    with pytest.raises(
        CardChoiceError,
        match=r"--gpus 0: torch 2.13.0\+cpu is a build without CUDA, so no rank could use GPU 0 .*--force-reinstall torch==2.13.0\)",
    ):
        choose(CARDS, NO_GPU, read_option("0"), UNSET, None, CPU)
    assert choose(CARDS, NO_GPU, read_option("none"), UNSET, None, CPU).notice is None  # it was asked for


def test_cards_that_ranks_may_still_use_come_first() -> None:
    assert [card.index for card in choose(CARDS, NO_GPU, None, UNSET, 2, CUDA, ("GPU-2", "GPU-0")).cards] == [2, 0, 1]
    assert choose(CARDS, NO_GPU, read_option("0,1"), UNSET, 2, CUDA, ("GPU-2", "GPU-0")).cards == CARDS[:2]


# -- agents


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    folder = tmp_path / "machine"
    folder.mkdir()
    return FakeMachine(folder, cards=3)


@pytest.fixture
def gpu_agent(agent: AgentProcess, machine: FakeMachine) -> AgentProcess:
    agent.environment, agent.slots = machine.environment, None
    return agent


@pytest.fixture
def neighbour(gpu_agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> Iterator[AgentProcess]:
    """Another agent on the same machine."""
    (tmp_path / "next").mkdir()
    other = AgentProcess(tmp_path / "next" / "agent", coordinator.url)
    other.environment, other.slots = gpu_agent.environment, None
    yield other
    kill_all(other.processes())
    if other.process is not None:
        other.process.wait(EXIT_TIMEOUT_SECONDS)


async def test_the_cards_that_were_named_are_the_slots_in_that_order(
    gpu_agent: AgentProcess, coordinator: Coordinator, machine: FakeMachine
) -> None:
    gpu_agent.start("--gpus", "2,0")
    await coordinator.until(lambda c: c.hellos and c.heartbeats and c.heartbeats[-1].gpus)
    inventory = coordinator.hellos[0].inventory
    assert (inventory.device, inventory.slots) == ("cuda", 2)
    assert [card.uuid for card in inventory.gpus] == [machine.uuids[2], machine.uuids[0]]
    assert [sample.utilization_percent for sample in coordinator.heartbeats[-1].gpus] == [30, 10]
    assert "offering GPU 2 and GPU 0 (NVIDIA Test 80GB)" in gpu_agent.log
    await gpu_agent.end()


async def test_ranks_see_their_own_card_and_those_of_scripts_the_cards_of_their_gang(
    gpu_agent: AgentProcess, coordinator: Coordinator, machine: FakeMachine, tmp_path: Path
) -> None:
    gpu_agent.environment |= {"CUDA_VISIBLE_DEVICES": "2,1,0"}
    gpu_agent.start("--slots", "3")
    await coordinator.until(lambda c: c.hellos)
    port = coordinator.hellos[0].store_port
    places = [world("job", rank, 2, slot=rank + 1, device="cuda") for rank in range(2)]
    gang = [world("script", rank, 2, slot=rank + 1, device="cuda", store_port=port) for rank in range(2)]
    spec = training_job(steps=1, tell="CUDA_VISIBLE_DEVICES")
    script = script_job(tmp_path / "show.py", SHOW, slots=2)
    alone = [msgspec.structs.replace(each, job_id="virtual") for each in gang]
    virtual = script | {"script": script["script"] | {"virtual_local_rank": True}}
    jobs = (assignment("job", *places, spec=spec), assignment("script", *gang, spec=script), assignment("virtual", *alone, spec=virtual))
    await coordinator.desire(*jobs)
    for rank in range(2):
        await coordinator.until(drained("job", rank))
        await coordinator.until(drained("script", rank))
        await coordinator.until(drained("virtual", rank))
    own = [machine.uuids[1], machine.uuids[0]]
    assert [coordinator.of("job", rank).text[0] for rank in range(2)] == [f"CUDA_VISIBLE_DEVICES={uuid}" for uuid in own]
    assert [coordinator.of("script", rank).text for rank in range(2)] == [[f"sees {','.join(own)} as {rank}"] for rank in range(2)]
    assert [coordinator.of("virtual", rank).text for rank in range(2)] == [[f"sees {uuid} as 0"] for uuid in own]
    await gpu_agent.end()


@pytest.mark.parametrize("none", [["--gpus", "none"], []])
async def test_cpu_slots_beside_cards_see_none_of_them(
    gpu_agent: AgentProcess, coordinator: Coordinator, tmp_path: Path, none: list[str]
) -> None:
    gpu_agent.environment |= {} if none else {"CUDA_VISIBLE_DEVICES": ""}
    gpu_agent.start("--slots", "2", *none)
    await coordinator.until(lambda c: c.hellos and c.heartbeats)
    inventory = coordinator.hellos[0].inventory
    assert (inventory.device, inventory.slots, inventory.gpus) == ("cpu", 2, ())
    told = coordinator.heartbeats[0].gpu_error or ""
    if none:
        assert told == "no GPU is offered: --gpus none"
    else:
        assert told.startswith("CUDA_VISIBLE_DEVICES= hides GPU 0, GPU 1 and GPU 2 (NVIDIA Test 80GB): no GPU is offered; unset it")
        assert told in gpu_agent.log
    place = world("script", store_port=coordinator.hellos[0].store_port)
    await coordinator.desire(assignment("script", place, spec=script_job(tmp_path / "show.py", SHOW)))
    await coordinator.until(drained("script"))
    assert coordinator.of("script").text == ["sees  as 0"]
    await gpu_agent.end()


async def test_a_torch_without_cuda_beside_a_driver_is_said_where_it_joins(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    agent.environment = FakeMachine(folder, cards=1, cuda_torch=False).environment
    agent.start()
    await coordinator.until(lambda c: c.hellos and c.heartbeats)
    assert (coordinator.hellos[0].inventory.device, coordinator.hellos[0].inventory.slots) == ("cpu", 2)
    for told in (agent.log, coordinator.heartbeats[0].gpu_error or ""):
        assert "is a build without CUDA, beside GPU 0 (NVIDIA Test 80GB): this node offers CPU slots only" in told
    await agent.end()


async def test_a_card_in_mig_mode_is_no_slot_and_that_is_said_where_it_joins(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    agent.environment, agent.slots = FakeMachine(folder, cards=2, split=(0,)).environment, None
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    assert [card.index for card in coordinator.hellos[0].inventory.gpus] == [1]
    assert "GPU 0 (NVIDIA Test 80GB) is in MIG mode, and offered by no slot" in agent.log
    await agent.end()
    agent.start("--gpus", "0")
    assert await agent.exited() == 1
    assert "turn it off (sudo nvidia-smi -i 0 -mig 0), name other cards (--gpus 1), or offer CPU slots with --gpus none" in agent.log


async def test_without_torch_it_does_not_join(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    agent.environment = {"PYTHONPATH": str(tmp_path / "hiding")}
    agent.start()
    assert await agent.exited() == 1
    assert "an agent needs torch, and" in agent.log
    assert coordinator.hellos == []


async def test_a_card_is_offered_by_one_agent_of_a_machine(
    gpu_agent: AgentProcess, neighbour: AgentProcess, coordinator: Coordinator
) -> None:
    gpu_agent.start("--gpus", "0,1")
    await coordinator.until(lambda c: c.hellos)
    neighbour.start()
    assert await neighbour.exited() == 1
    assert gpu_agent.process is not None
    holder = f"the agent node (process {gpu_agent.process.pid}, data folder {gpu_agent.data})"
    assert f"GPU 0 and GPU 1 (NVIDIA Test 80GB) are offered by {holder} already" in neighbour.log
    assert "offer the others with --gpus 2, or stop that agent" in neighbour.log
    coordinator.tokens.add("another")
    neighbour.start("--slots", "1", token="another")  # one that is free
    await coordinator.until(lambda c: len(c.hellos) == 2)
    assert [card.index for card in coordinator.hellos[1].inventory.gpus] == [2]
    await neighbour.end()
    await gpu_agent.end()
    neighbour.start("--gpus", "0,1,2")
    await coordinator.until(lambda c: len(c.hellos) == 3)
    await neighbour.end()


async def test_ranks_of_a_dead_agent_keep_its_cards_for_the_next_one_of_its_folder(
    gpu_agent: AgentProcess, neighbour: AgentProcess, coordinator: Coordinator
) -> None:
    gpu_agent.start("--gpus", "1,0")
    await coordinator.desire(assignment("job", world("job", slot=1, device="cuda")))
    await coordinator.until(running("job"))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    await gpu_agent.end(signal.SIGKILL)
    neighbour.start("--gpus", "0")
    assert await neighbour.exited() == 1
    assert f"data folder {gpu_agent.data}) already" in neighbour.log
    gpu_agent.start("--gpus", "0,2")
    assert await gpu_agent.exited() == 1
    assert "1 rank of the agent before still runs" in gpu_agent.log
    assert "which offered GPU 1 and GPU 0 (NVIDIA Test 80GB): start it with --gpus 1,0 until they have ended" in gpu_agent.log
    gpu_agent.start("--gpus", "1,0")
    await coordinator.until(lambda c: len(c.hellos) == 2 and (rank := c.rank("job")) and rank.pid == pid)
    spawner = gpu_agent.spawner()
    spawner.kill()
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.state == RankState.EXITED)
    await coordinator.desire(assignment("job", world("job", generation=2, slot=1, device="cuda")))
    await coordinator.until(running("job", generation=2))
    neighbour.start("--gpus", "0")  # the next spawner holds them too
    assert await neighbour.exited() == 1
    await gpu_agent.end()


async def test_ranks_on_good_cards_survive_a_restart_of_their_agent_after_another_card_was_lost(
    gpu_agent: AgentProcess, coordinator: Coordinator, machine: FakeMachine
) -> None:
    """The next agent refused to start, with an advice that was refused again, and the node was given up."""
    gpu_agent.start("--gpus", "2,1,0")
    job = assignment("job", world("job", slot=2, device="cuda"))
    await coordinator.desire(job)
    await coordinator.until(running("job"))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    await gpu_agent.end(signal.SIGKILL)
    machine.lose(1)
    gpu_agent.start("--gpus", "2,1,0")
    await coordinator.until(lambda c: len(c.hellos) == 2 and (rank := c.rank("job")) and rank.pid == pid)
    assert [card.uuid for card in coordinator.hellos[1].inventory.gpus] == [machine.uuids[2], machine.uuids[1], machine.uuids[0]]
    await coordinator.until(lambda c: c.heartbeats and [sample.error for sample in c.heartbeats[-1].gpus] == [None, "GPU is gone", None])
    assert "GPU 1 (NVIDIA Test 80GB) cannot be read; the slots stay as they are for ranks of the agent before" in gpu_agent.log
    await coordinator.desire(job, assignment("next", world("next", slot=1, device="cuda")))
    await coordinator.until(drained("next"))
    failure = coordinator.rank("next").failure  # type: ignore[union-attr]
    assert failure is not None
    assert failure.message == "cannot start: GPU 1 (NVIDIA Test 80GB) cannot be read any more: look at nvidia-smi"
    await gpu_agent.end()


def test_a_card_that_is_gone_keeps_its_index_unless_another_has_it_now() -> None:
    before = Offered(tuple(card.uuid for card in CARDS), CARDS)
    assert gone_cards(before, CARDS) == ()
    assert gone_cards(before, (CARDS[0], CARDS[2])) == (CARDS[1],)
    moved_up = (CARDS[0], msgspec.structs.replace(CARDS[2], index=1))
    assert gone_cards(before, moved_up) == (msgspec.structs.replace(CARDS[1], index=2),)
    assert gone_cards(before, ()) == CARDS
    assert gone_cards(Offered(("GPU-0",)), ()) == ()  # of an agent that did not describe its cards


async def test_another_choice_without_ranks_is_taken(gpu_agent: AgentProcess, coordinator: Coordinator) -> None:
    gpu_agent.start("--gpus", "0")
    await coordinator.until(lambda c: c.hellos)
    spawner = gpu_agent.spawner().pid
    await gpu_agent.end(signal.SIGHUP)
    gpu_agent.start("--gpus", "1,2")
    await coordinator.until(lambda c: len(c.hellos) == 2)
    assert [card.index for card in coordinator.hellos[1].inventory.gpus] == [1, 2]
    assert gpu_agent.spawner().pid != spawner
    await gpu_agent.end()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--gpus", "5"], 1, "--gpus 5: there is no GPU 5; there are 3 GPUs"),
        (["--gpus", "0.5"], 2, "--gpus 0.5: a card is offered whole"),
        (["--slots", "4"], 1, "--slots 4: a slot is a whole card, and there are 3 GPUs"),
    ],
)
async def test_wrong_choices_end_it_before_it_joins(
    gpu_agent: AgentProcess, coordinator: Coordinator, arguments: list[str], code: int, message: str
) -> None:
    gpu_agent.start(*arguments)
    assert await gpu_agent.exited() == code
    assert message in gpu_agent.log
    assert (gpu_agent.data / "credential.json").exists() is False
