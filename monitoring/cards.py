"""Which of a machine's NVIDIA GPUs are meant: choices as they are typed, and the cards that they name. Pure.

A card is named by its index, as nvidia-smi lists it, or by its UUID, which may be shortened as CUDA allows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.monitoring.samples import Gpu

OPTION, VARIABLE = "--gpus", "CUDA_VISIBLE_DEVICES"
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/_-]+")
_FRACTION = re.compile(r"[0-9]*\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+ *%")
_RANGE = re.compile(r"([0-9]{1,3})(?:-|:|\.\.)([0-9]{1,3})")
_MOST_WRITTEN_OUT = 16
#: The ends of CUDA's list: what comes behind is not visible. Slurm writes NoDevFiles for a task without GPUs.
_ENDS = ("", "NoDevFiles")
_WHY_WHOLE = "ranks on parts of one card cannot train together, as NCCL takes one rank a card"
_FORMS = "use indices or UUIDs (--gpus 0,2), --gpus all or --gpus none"


class CardChoiceError(Exception):
    """A choice that cannot be kept. The message names the value, the cards that are there, and the way out."""


@dataclass(frozen=True)
class CardChoice:
    """Cards by their names, in the order in which they were typed. `names` is None for all cards, whatever they are."""

    source: str  # OPTION or VARIABLE
    text: str
    names: tuple[str, ...] | None

    def __str__(self) -> str:
        return f"{self.source}={self.text}" if self.source == VARIABLE else f"{self.source} {self.text}"


def read_option(text: str) -> CardChoice:
    """Read the value of --gpus: `all`, `none`, or indices and UUIDs with commas between them. Raises CardChoiceError."""
    match text.strip():
        case "all":
            return CardChoice(OPTION, text, None)
        case "none":
            return CardChoice(OPTION, text, ())
        case "":
            raise CardChoiceError(f"--gpus is empty; {_FORMS}")
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if _FRACTION.fullmatch(name):
            raise CardChoiceError(
                f"--gpus {text}: a card is offered whole, since nothing would keep ranks that share one from each other's memory and time; "
                "name whole cards, as --gpus 0,2"
            )
        if (span := _RANGE.fullmatch(name)) is not None:
            raise CardChoiceError(f"--gpus {text}: {_written_out(span, '--gpus ')}")
        if not name.isdecimal() and not _UUID.fullmatch(name):
            raise CardChoiceError(f"--gpus {text}: {name!r} names no card; {_FORMS}")
    return CardChoice(OPTION, text, names)


def read_variable(text: str | None) -> CardChoice:
    """Read CUDA_VISIBLE_DEVICES as CUDA does: None (not set) means all cards, and a negative number ends the list. Raises CardChoiceError
    for what CUDA would pass over in silence."""
    if text is None:
        return CardChoice(VARIABLE, "", None)
    names: list[str] = []
    for name in (word.strip() for word in text.split(",")):
        if name in _ENDS or re.fullmatch(r"-[0-9]+", name):
            break
        if (span := _RANGE.fullmatch(name)) is not None:
            raise CardChoiceError(f"CUDA_VISIBLE_DEVICES={text}: {_written_out(span, 'CUDA_VISIBLE_DEVICES=')}")
        if not name.isdecimal() and not _UUID.fullmatch(name):
            raise CardChoiceError(f"CUDA_VISIBLE_DEVICES={text}: {name!r} names no card; use indices or UUIDs (0,2), or unset it")
        names.append(name)
    return CardChoice(VARIABLE, text, tuple(names))


def choose(cards: Sequence[Gpu], option: CardChoice | None, visible: CardChoice, unread: str | None = None) -> tuple[Gpu, ...]:
    """Return the cards that are meant, in the order of slots: those of `option` (None: all), of which `visible` must not hide any.
    Cards in MIG mode are left out where no card is named (see `left_out`), and refused where they are named. `unread`: why the driver does not
    describe other cards, if there are such. Raises CardChoiceError."""
    seen = _named(visible, cards, unread)
    if option is None or option.names is None:
        return _whole(visible, seen, cards)
    meant = _whole(option, _named(option, cards, unread), cards)
    hidden = [card for card in meant if card not in seen]
    if hidden:
        raise CardChoiceError(
            f"{option}: {visible} hides {listed(hidden)}; unset it, or choose among "
            f"{', '.join(str(card.index) for card in seen) or 'none: --gpus none offers CPU slots'}"
        )
    return meant


def left_out(cards: Sequence[Gpu], option: CardChoice | None, visible: CardChoice, unread: str | None = None) -> str | None:
    """Return why `choose` leaves cards out that the machine has, and the way out; for cards that were hidden, where none is left. `unread`: as in
    `choose`. None: it leaves out none, or some as it was told."""
    split = [card for card in cards if card.mig]
    if cards and visible.names == () and (option is None or option.names is None):
        return (
            f"{visible} hides {listed(cards)}: no GPU is offered; unset it and start the agent again, or say --gpus none if that is meant"
        )
    if visible.names is not None or (option is not None and option.names is not None):
        return None
    reasons = [f"{unread}: offered by no slot, look at nvidia-smi"] if unread is not None else []
    if split:
        reasons.append(f"{_is_split(split)}, and offered by no slot: {_WHY_WHOLE}; {_unsplit(split)} and start the agent again")
    return "; ".join(reasons) or None


def limited(cards: Sequence[Gpu], slots: int | None) -> int:
    """Return how many of these cards `--slots` asks for; None: all. Raises CardChoiceError where it asks for more than there are."""
    if slots is None or slots <= len(cards):
        return slots or len(cards)
    raise CardChoiceError(
        f"--slots {slots}: a slot is a whole card, and there {_are(len(cards))} ({listed(cards)}); say --slots {len(cards)} or fewer, or "
        f"--gpus none --slots {slots} for CPU slots"
    )


def listed(cards: Sequence[Gpu]) -> str:
    """Name cards for a sentence: `GPU 0 and GPU 2 (NVIDIA H100 PCIe)`."""
    indices = [f"GPU {card.index}" for card in cards]
    words = " and ".join([", ".join(indices[:-1]), indices[-1]] if len(indices) > 1 else indices)
    return f"{words} ({', '.join(dict.fromkeys(card.name for card in cards))})"


def _whole(choice: CardChoice, chosen: Sequence[Gpu], cards: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The chosen cards without those in MIG mode. Raises CardChoiceError where one of these was named."""
    split = [card for card in chosen if card.mig]
    if split and choice.names is not None:
        others = [str(card.index) for card in cards if not card.mig]
        instead = f"name other cards ({choice.source}{'=' if choice.source == VARIABLE else ' '}{','.join(others)})" if others else None
        ways = [_unsplit(split), *([instead] if instead else []), "offer CPU slots with --gpus none"]
        raise CardChoiceError(f"{choice}: {_is_split(split)}: {_WHY_WHOLE}; {', '.join(ways[:-1])}, or {ways[-1]}")
    return tuple(card for card in chosen if not card.mig)


def _is_split(cards: Sequence[Gpu]) -> str:
    return f"{listed(cards)} {'is' if len(cards) == 1 else 'are'} in MIG mode"


def _unsplit(cards: Sequence[Gpu]) -> str:
    return f"turn it off (sudo nvidia-smi -i {','.join(str(card.index) for card in cards)} -mig 0)"


def _named(choice: CardChoice, cards: Sequence[Gpu], unread: str | None) -> tuple[Gpu, ...]:
    if choice.names is None:
        return tuple(cards)
    found = [_one(name, choice, cards, unread) for name in choice.names]
    if len(set(found)) < len(found):
        twice = next(card for card in found if found.count(card) > 1)
        raise CardChoiceError(f"{choice}: {listed([twice])} is named twice; name each card once")
    return tuple(found)


def _one(name: str, choice: CardChoice, cards: Sequence[Gpu], unread: str | None) -> Gpu:
    matching = [card for card in cards if (card.index == int(name) if name.isdecimal() else card.uuid.startswith(name))]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise CardChoiceError(f"{choice}: {name} is the beginning of {len(matching)} UUIDs ({listed(matching)}); write more of it")
    if name.startswith("MIG-"):
        raise CardChoiceError(
            f"{choice}: {name} is a part of a card, and cards are offered whole: {_WHY_WHOLE}; turn MIG off (sudo nvidia-smi -mig 0) and name the "
            "card, or say --gpus none for CPU slots"
        )
    what = f"GPU {name}" if name.isdecimal() else name
    why = f"; {unread}" if unread is not None else ""
    if not cards:
        raise CardChoiceError(f"{choice}: there is no {what}, nor any other NVIDIA GPU here{why}; {_without(choice)}")
    count = "; for a number of cards: --slots (of 'paceline up': --slots-per-agent)" if choice.source == OPTION and name.isdecimal() else ""
    raise CardChoiceError(f"{choice}: there is no {what}; there {_are(len(cards))}: {listed(cards)}{why}{count}")


def _without(choice: CardChoice) -> str:
    return "unset it" if choice.source == VARIABLE else "leave it out for CPU slots, or look at nvidia-smi"


def _written_out(span: re.Match[str], before: str) -> str:
    """What to write in place of a range such as 0-2, which CUDA would pass over in silence."""
    indices = range(int(span[1]), int(span[2]) + 1)
    example = ",".join(map(str, indices)) if 0 < len(indices) <= _MOST_WRITTEN_OUT else "0,1,2"
    return f"{span[0]!r} is a range, and none is read; write each card: {before}{example}"


def _are(count: int) -> str:
    return "is 1 GPU" if count == 1 else f"are {count} GPUs"
