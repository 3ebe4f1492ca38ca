"""The agents of a local stack: one where there are GPUs, which offers all of them, else two with a CPU slot each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from paceline.cli.errors import UsageProblem
from paceline.cli.render.formats import count
from paceline.cli.settings import shell_variables
from paceline.monitoring.cards import VARIABLE, CardChoiceError, choose, left_out, listed, read_option, read_variable
from paceline.monitoring.samples import NO_GPU, Gpu
from paceline.monitoring.torch_build import TorchBuild, find_torch

CPU_AGENTS, CPU_SLOTS = 2, 1


@dataclass(frozen=True)
class UsableCards:
    cards: tuple[Gpu, ...]
    note: str | None = None  # why a user may miss some


@dataclass(frozen=True)
class LocalAgents:
    agents: int
    slots_per_agent: int | None  # None: as many as there are GPUs
    notes: tuple[str, ...] = ()


def local_agents(agents: int | None, slots: int | None, gpus: str | None) -> LocalAgents:
    """Decide how many agents this machine gets, and the slots of each, from what was typed; None: nothing was. Raises UsageProblem."""
    if agents == 0:
        return LocalAgents(0, slots)
    usable = usable_cards(gpus)
    return shape(agents, slots, usable.cards, (usable.note,) if usable.note else ())


def shape(agents: int | None, slots: int | None, cards: Sequence[Gpu], notes: tuple[str, ...] = ()) -> LocalAgents:
    """Share `cards` out. Raises UsageProblem where there are fewer than the agents would offer."""
    if not cards:
        return LocalAgents(CPU_AGENTS if agents is None else agents, slots or CPU_SLOTS, notes)
    wanted = agents or 1
    if wanted * (slots or 1) > len(cards):
        each = f" with {count(slots, 'slot')} each" if slots else ""
        raise UsageProblem(
            f"{count(wanted, 'agent')}{each} would offer {wanted * (slots or 1)} GPUs, and there {_are(cards)}",
            "one agent offers them all: leave out --agents and --slots-per-agent; for CPU slots: --gpus none",
        )
    if wanted == 1 or slots:
        return LocalAgents(wanted, slots, notes)
    share, left = divmod(len(cards), wanted)
    if left:
        told = f"{left} of {len(cards)} GPUs {'is' if left == 1 else 'are'} offered by no agent"
        notes += (f"note: {told}: {wanted} agents get {share} each; one agent offers them all",)
    return LocalAgents(wanted, share, notes)


def usable_cards(gpus: str | None) -> UsableCards:
    """The cards that agents here would offer if they were told `gpus`, as `paceline worker --gpus` takes it. Raises UsageProblem."""
    here, unread = _cards_here()
    try:
        option, visible = None if gpus is None else read_option(gpus), read_variable(shell_variables().get(VARIABLE))
        if not here and (option is None or not option.names):
            return UsableCards((), None if unread is None else f"note: {unread}; agents here offer CPU slots")
        cards, left = choose(here, option, visible, unread), left_out(here, option, visible, unread)
    except CardChoiceError as error:
        raise UsageProblem(str(error)) from None
    torch = find_torch()
    without_cuda = torch is not None and torch.cuda is None
    return (
        UsableCards((), _note(torch, cards)) if cards and torch and without_cuda else UsableCards(cards, f"note: {left}" if left else None)
    )


def _cards_here() -> tuple[tuple[Gpu, ...], str | None]:
    """The cards of this machine; why NVML does not tell of all, where it should."""
    if find_spec("pynvml") is None:  # installed without [worker]: starting an agent here fails for want of torch, and says so
        return (), None
    from paceline.monitoring.gpu import NoGpuError, open_gpus

    try:
        sampler = open_gpus()
    except NoGpuError as error:
        return (), None if str(error) == NO_GPU else str(error)
    sampler.close()
    return sampler.gpus, sampler.unread


def _note(torch: TorchBuild, cards: Sequence[Gpu]) -> str:
    way_out = f"install a build that has it to train there ({torch.reinstall})"
    return f"note: {torch.description}, beside {listed(cards)}: agents here offer CPU slots; {way_out}"


def _are(cards: Sequence[Gpu]) -> str:
    return f"{'is' if len(cards) == 1 else 'are'} {len(cards)}: {listed(cards)}"
