"""What this node offers: GPUs, one a slot, or CPU slots; decided before it joins, and told in words where it is not what a user may expect.

The slots of a data folder keep their meaning while ranks live: an agent that takes over ranks of the one before offers the same cards.
"""

from __future__ import annotations

import itertools
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
from paceline.extras import pip_install
from paceline.monitoring import cards
from paceline.monitoring.cards import CardChoice, CardChoiceError
from paceline.monitoring.files import write_durably
from paceline.monitoring.gpu import GpuSampler, NoGpuError, open_gpus
from paceline.monitoring.samples import NO_GPU, Gpu
from paceline.monitoring.torch_build import TorchBuild, find_torch
from paceline.monitoring.words import plural

_GONE = (
    "the slots stay as they are for ranks of the agent before, and no rank is started there: start this agent again once they have ended"
)

log = logging.getLogger(__name__)


class Offered(msgspec.Struct, frozen=True):
    """The content of `AgentFolder.offered`: the card behind each slot, by UUID and described; CPU slots have none."""

    cards: tuple[str, ...]
    described: tuple[Gpu, ...] = ()  # none of an agent of before 28 November 2026


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
    gone: tuple[Gpu, ...] = ()  # of `cards`, those that cannot be read: their slots stay for ranks of the agent before, and start no rank

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if self.cards else "cpu"


def decide_offer(settings: AgentSettings, folder: AgentFolder) -> NodeOffer:
    """Decide what to offer, and lock the cards. For the agent that holds the folder's lock. Raises OfferError and TorchMissingError."""
    torch = find_torch()
    if torch is None:
        raise TorchMissingError(
            f"an agent needs torch, and {sys.executable} has none, so no rank could run here; {pip_install('worker')}, then start it again"
        )
    sampler, error = _open_gpus()
    here, without = (sampler.gpus, sampler.unread) if sampler else ((), error)
    spawners = living_spawners.find_spawners(folder)
    before = _offered_before(folder) if spawners else None
    kept = None if before is None else before.cards
    gone = gone_cards(before, here) if before and any(spawner.process_list.ranks for spawner in spawners) else ()
    machine = (*here, *gone)
    try:
        choice = choose(machine, NO_GPU if gone else without or NO_GPU, settings.gpus, settings.visible, settings.slots, torch, kept)
    except CardChoiceError as refused:
        raise OfferError(str(refused)) from None
    locks = CardLocks(folder.path)
    for spawner in spawners:
        locks.take_over(spawner.locks)
    held = locks.hold(choice.cards, choice.count)
    try:
        _require_same_slots(folder, spawners, kept, held, machine)
    finally:
        living_spawners.close(spawners)
    locks.renew()
    write_durably(folder.offered, msgspec.json.encode(Offered(tuple(card.uuid for card in held), held)))
    if sampler is not None:
        sampler.restrict(held)
    if gone:
        log.warning("%s cannot be read; %s", cards.listed(gone), _GONE)
    if choice.notice is not None:
        log.warning("%s", choice.notice)
    slots = len(held) or settings.slots or len(os.sched_getaffinity(0))
    log.info("offering %s", cards.listed(held) if held else f"{slots} CPU slots")
    gpu_error = None if held and sampler else choice.notice or error or f"no GPU is offered: {_why_none(settings)}"
    return NodeOffer(held, slots, locks, sampler if held else None, gpu_error, hides_cards=bool(machine), gone=gone)


def choose(
    here: Sequence[Gpu],
    without: str,
    option: CardChoice | None,
    visible: CardChoice,
    slots: int | None,
    torch: TorchBuild,
    kept: Sequence[str] | None = None,
) -> CardsToOffer:
    """Choose what to offer. `here`: the cards of this machine; `without`: why some or all are missing among them, or NO_GPU. `kept`: UUIDs of the
    cards that ranks of the agent before may use. Raises CardChoiceError."""
    unread = None if without == NO_GPU else without
    broken = None if here or unread is None else f"{unread}; this node offers CPU slots: look at nvidia-smi"
    if not here and (option is None or option.names is None):
        return CardsToOffer((), 0, broken)  # CUDA_VISIBLE_DEVICES may come with a login that is the same on all machines
    found = cards.choose(here, option, visible, unread)
    left_out = cards.left_out(here, option, visible, unread)
    if found and torch.cuda is None:
        if option is not None and option.names:
            raise CardChoiceError(
                f"{option}: {torch.description}, so no rank could use {cards.listed(found)}; install one that has it "
                f"({torch.reinstall}), or offer CPU slots with --gpus none"
            )
        offered = f"{torch.description}, beside {cards.listed(found)}: this node offers CPU slots only"
        notice = f"{offered}; install a build that has it to train there ({torch.reinstall})"
        return CardsToOffer((), 0, notice)
    if not found:
        return CardsToOffer((), 0, broken or left_out)
    if kept and option is None and {card.uuid for card in found} >= set(kept):
        found = tuple(sorted(found, key=lambda card: kept.index(card.uuid) if card.uuid in kept else len(kept)))
    return CardsToOffer(found, cards.limited(found, slots), left_out)


def _why_none(settings: AgentSettings) -> CardChoice:
    return settings.gpus if settings.gpus is not None and settings.gpus.names == () else settings.visible


def _open_gpus() -> tuple[GpuSampler | None, str | None]:
    try:
        return open_gpus(), None
    except NoGpuError as error:
        return None, str(error)


# -- the agent before


def _offered_before(folder: AgentFolder) -> Offered | None:
    """What the agent before offered; None: it was of a version that did not write it down."""
    try:
        return msgspec.json.decode(folder.offered.read_bytes(), type=Offered)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OfferError(f"{folder.offered} is damaged ({error}): remove it once no ranks run here") from error


def gone_cards(before: Offered, here: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The cards of the agent before that are not here any more. Where the others have moved up, each gets an index that is free."""
    gone: list[Gpu] = []
    for card in before.described:
        if all(card.uuid != other.uuid for other in here):
            taken = {other.index for other in (*here, *gone)}
            index = next(index for index in itertools.count(card.index) if index not in taken)
            gone.append(msgspec.structs.replace(card, index=index))
    return tuple(gone)


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
    count = sum(len(spawner.process_list.ranks) for spawner in parents)
    still = f"{plural(count, 'rank')} of the agent before still {'runs' if count == 1 else 'run'} in {folder.path}"
    end = f"end them first (kill {' '.join(str(spawner.process_list.spawner_pid) for spawner in parents)})"
    missing = len(kept) - len(before)
    if missing:  # of an agent that did not describe them
        return f"{still}, and {missing} of the {len(kept)} cards that it offered {'is' if missing == 1 else 'are'} gone, which changes its slots: {end}"
    return (
        f"{still}, which offered {cards.listed(before) if before else 'CPU slots'}: start it with {option} until they have ended, or {end}"
    )
