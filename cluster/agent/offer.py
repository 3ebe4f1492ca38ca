"""What this node offers: GPUs, one a slot, or CPU slots; decided before it joins, and told in words where it is not what a user may expect.

The slots of a data folder keep their meaning while ranks live: an agent that takes over ranks of the one before offers the same cards.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from paceline.cluster.agent import living_spawners
from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.errors import OfferError, TorchMissingError
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.living_spawners import LivingSpawner
from paceline.cluster.agent.settings import AgentSettings
from paceline.monitoring import cards
from paceline.monitoring.cards import CardChoice, CardChoiceError
from paceline.monitoring.files import write_durably
from paceline.monitoring.gpu import GpuSampler, NoGpuError, open_gpus
from paceline.monitoring.samples import NO_GPU, Gpu
from paceline.monitoring.torch_build import TorchBuild, find_torch
from paceline.monitoring.words import plural

log = logging.getLogger(__name__)


class Offered(msgspec.Struct, frozen=True):
    """The content of `AgentFolder.offered`: the card behind each slot, by UUID; CPU slots have none."""

    cards: tuple[str, ...]


@dataclass(frozen=True)
class CardsToOffer:
    """The cards that may be offered, and how many of them."""

    cards: tuple[Gpu, ...]
    count: int
    notice: str | None = None  # why they are not what a user may expect


@dataclass(frozen=True)
class NodeOffer:
    cards: tuple[Gpu, ...]  # by slot; none: the slots are CPU slots
    slots: int
    locks: CardLocks
    sampler: GpuSampler | None  # of the offered cards
    gpu_error: str | None  # why there are no readings of GPUs
    hides_cards: bool  # there are cards here that ranks on CPU slots must not see

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if self.cards else "cpu"


def settle_offer(settings: AgentSettings, folder: AgentFolder) -> NodeOffer:
    """Decide what to offer, and lock the cards. For the agent that holds the folder's lock. Raises OfferError and TorchMissingError."""
    torch = find_torch()
    if torch is None:
        raise TorchMissingError(
            f"an agent needs torch, and {sys.executable} has none, so no rank could run here; pip install 'paceline[worker]', then start it again"
        )
    sampler, error = _open_gpus()
    here = sampler.gpus if sampler else ()
    spawners = living_spawners.find_spawners(folder)
    kept = _kept(folder) if spawners else None
    try:
        choice = choose(here, error or NO_GPU, settings.gpus, settings.visible, settings.slots, torch, kept)
    except CardChoiceError as refused:
        raise OfferError(str(refused)) from None
    locks = CardLocks(folder.path)
    for spawner in spawners:
        locks.take_over(spawner.locks)
    held = locks.hold(choice.cards, choice.count)
    try:
        _require_same_slots(folder, spawners, kept, held, here)
    finally:
        living_spawners.close(spawners)
    locks.renew()
    write_durably(folder.offered, msgspec.json.encode(Offered(tuple(card.uuid for card in held))))
    if sampler is not None:
        sampler.restrict(held)
    if choice.notice is not None:
        log.warning("%s", choice.notice)
    slots = len(held) or settings.slots or len(os.sched_getaffinity(0))
    log.info("offering %s", cards.listed(held) if held else f"{slots} CPU slots")
    gpu_error = None if held else choice.notice or error or f"no GPU is offered: {_why_none(settings)}"
    return NodeOffer(held, slots, locks, sampler if held else None, gpu_error, hides_cards=bool(here))


def choose(
    here: Sequence[Gpu],
    without: str,
    option: CardChoice | None,
    visible: CardChoice,
    slots: int | None,
    torch: TorchBuild,
    kept: Sequence[str] | None = None,
) -> CardsToOffer:
    """Choose what to offer. `here`: the cards of this machine; `without`: why there are none, if there are none. `kept`: UUIDs of the
    cards that ranks of the agent before may use. Raises CardChoiceError."""
    broken = None if here or without == NO_GPU else f"{without}; this node offers CPU slots: look at nvidia-smi"
    if not here and (option is None or option.names is None):
        return CardsToOffer((), 0, broken)  # CUDA_VISIBLE_DEVICES may come with a login that is the same on all machines
    found = cards.choose(here, option, visible)
    split = cards.left_out(here, option, visible)
    if found and torch.cuda is None:
        if option is not None and option.names:
            raise CardChoiceError(
                f"{option}: {torch.description}, so no rank could use {cards.listed(found)}; install one that has it (pip install torch), or "
                "offer CPU slots with --gpus none"
            )
        notice = f"{torch.description}, beside {cards.listed(found)}: this node offers CPU slots only; install a build that has it to train there"
        return CardsToOffer((), 0, notice)
    if not found:
        return CardsToOffer((), 0, broken or split)
    if kept and option is None and {card.uuid for card in found} >= set(kept):
        found = tuple(sorted(found, key=lambda card: kept.index(card.uuid) if card.uuid in kept else len(kept)))
    return CardsToOffer(found, cards.limited(found, slots), split)


def _why_none(settings: AgentSettings) -> CardChoice:
    return settings.gpus if settings.gpus is not None and settings.gpus.names == () else settings.visible


def _open_gpus() -> tuple[GpuSampler | None, str | None]:
    try:
        return open_gpus(), None
    except NoGpuError as error:
        return None, str(error)


# -- the agent before


def _kept(folder: AgentFolder) -> tuple[str, ...] | None:
    """The cards behind the slots of the agent before; None: it was of a version that did not write them down."""
    try:
        return msgspec.json.decode(folder.offered.read_bytes(), type=Offered).cards
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OfferError(f"{folder.offered} is damaged ({error}): remove it once no ranks run here") from error


def _require_same_slots(
    folder: AgentFolder, spawners: Sequence[LivingSpawner], kept: Sequence[str] | None, held: Sequence[Gpu], here: Sequence[Gpu]
) -> None:
    """Where ranks of the agent before live, their slots must still be the same cards. Spawners without any rank are ended: they have the code of the
    version before, and the locks of cards that may be offered no more. Raises OfferError."""
    same = kept is not None and tuple(card.uuid for card in held) == tuple(kept)
    parents = [spawner for spawner in spawners if spawner.process_list.ranks]
    if parents and kept is not None and not same:
        raise OfferError(_way_out(folder, parents, kept, here))
    for spawner in spawners:
        if not spawner.process_list.ranks and not (same and spawner.process_list.stores):  # ranks elsewhere may still meet in a store
            spawner.end()


def _way_out(folder: AgentFolder, parents: Sequence[LivingSpawner], kept: Sequence[str], here: Sequence[Gpu]) -> str:
    """What to do where ranks of the agent before live on cards that are not to be offered."""
    before = [card for uuid in kept for card in here if card.uuid == uuid]
    option = f"--gpus {','.join(str(card.index) for card in before)}" if kept else "--gpus none"
    gone = "" if len(before) == len(kept) else f" ({len(kept) - len(before)} of its cards are gone)"
    count = sum(len(spawner.process_list.ranks) for spawner in parents)
    pids = " ".join(str(spawner.process_list.spawner_pid) for spawner in parents)
    return (
        f"{plural(count, 'rank')} of the agent before still {'runs' if count == 1 else 'run'} in {folder.path}, which offered "
        f"{cards.listed(before) if before else 'CPU slots'}{gone}: start it with {option} until they have ended, or end them first "
        f"(kill {pids})"
    )
