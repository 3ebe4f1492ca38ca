from __future__ import annotations

import pytest

from paceline.monitoring.cards import CardChoiceError, choose, left_out, limited, listed, read_option, read_variable
from paceline.monitoring.samples import Gpu

CARDS = tuple(Gpu(index=index, uuid=f"GPU-{letter}1{letter}2", name="NVIDIA Test", memory_bytes=1) for index, letter in enumerate("abcd"))
UNSET = read_variable(None)


def chosen(option: str | None, variable: str | None = None) -> list[int]:
    return [card.index for card in choose(CARDS, None if option is None else read_option(option), read_variable(variable))]


@pytest.mark.parametrize(
    ("option", "variable", "indices"),
    [
        (None, None, [0, 1, 2, 3]),
        ("all", None, [0, 1, 2, 3]),
        ("none", None, []),
        ("2,0", None, [2, 0]),  # in the order of slots
        (" 1 , GPU-d", None, [1, 3]),  # a UUID may be shortened as CUDA allows
        (None, "3,1", [3, 1]),
        (None, "GPU-b1b2", [1]),
        (None, "", []),
        (None, "-1", []),
        (None, "NoDevFiles", []),
        (None, "2,-1,0", [2]),  # as CUDA reads it: what is behind a wrong entry is not visible
        ("all", "1", [1]),
        ("3", "1,3", [3]),
        ("none", "1,3", []),
    ],
)
def test_cards_that_are_meant(option: str | None, variable: str | None, indices: list[int]) -> None:
    assert chosen(option, variable) == indices


@pytest.mark.parametrize(
    ("option", "variable", "message"),
    [
        ("7", None, "--gpus 7: there is no GPU 7; there are 4 GPUs: GPU 0, GPU 1, GPU 2 and GPU 3 .*; for a number of cards: --slots"),
        ("GPU-x", None, "--gpus GPU-x: there is no GPU-x; there are 4 GPUs"),
        ("MIG-a1", None, "--gpus MIG-a1: MIG-a1 is a part of a card, and cards are offered whole"),
        (None, "MIG-a1", "CUDA_VISIBLE_DEVICES=MIG-a1: MIG-a1 is a part of a card"),
        ("GPU-", None, "--gpus GPU-: 'GPU-' names no card"),
        ("0,GPU-a", None, r"GPU 0 \(NVIDIA Test\) is named twice"),
        ("0.5", None, "a card is offered whole, .* name whole cards"),
        ("0,.5", None, "a card is offered whole"),
        ("50%", None, "a card is offered whole"),
        ("two", None, "'two' names no card; use indices or UUIDs"),
        ("-1", None, "'-1' names no card"),
        ("0-2", None, "--gpus 0-2: '0-2' is a range, and none is read; write each card: --gpus 0,1,2$"),
        ("3:1", None, "'3:1' is a range, .* --gpus 0,1,2$"),
        (None, "0-1", "CUDA_VISIBLE_DEVICES=0-1: '0-1' is a range, .* write each card: CUDA_VISIBLE_DEVICES=0,1$"),
        ("0,,1", None, "'' names no card"),
        ("", None, "--gpus is empty"),
        ("0", "1,3", "--gpus 0: CUDA_VISIBLE_DEVICES=1,3 hides GPU 0 .*; unset it, or choose among 1, 3"),
        ("0", "", "CUDA_VISIBLE_DEVICES= hides GPU 0 .* none: --gpus none offers CPU slots"),
        (None, "cuda:0", "CUDA_VISIBLE_DEVICES=cuda:0: 'cuda:0' names no card"),
        (None, "4", "CUDA_VISIBLE_DEVICES=4: there is no GPU 4; there are 4 GPUs"),
    ],
)
def test_choices_that_cannot_be_kept_say_what_is_there(option: str | None, variable: str | None, message: str) -> None:
    with pytest.raises(CardChoiceError, match=message):
        chosen(option, variable)


def test_a_shortened_uuid_has_to_be_that_of_one_card() -> None:
    twins = (CARDS[0], Gpu(index=1, uuid="GPU-a1b", name="NVIDIA Other", memory_bytes=1))
    with pytest.raises(CardChoiceError, match=r"GPU-a1 is the beginning of 2 UUIDs .*; write more of it"):
        choose(twins, read_option("GPU-a1"), UNSET)


def test_a_card_of_a_machine_without_any_is_refused() -> None:
    with pytest.raises(CardChoiceError, match="--gpus 0: there is no GPU 0, nor any other NVIDIA GPU here; leave it out"):
        choose((), read_option("0"), UNSET)


def test_slots_are_a_limit_and_no_more_than_there_are_cards() -> None:
    assert (limited(CARDS, None), limited(CARDS, 2), limited(CARDS, 4)) == (4, 2, 4)
    with pytest.raises(
        CardChoiceError,
        match=r"--slots 5: a slot is a whole card, and there are 4 GPUs .*; say --slots 4 or fewer, or --gpus none --slots 5",
    ):
        limited(CARDS, 5)


def test_cards_are_named_for_people() -> None:
    other = Gpu(index=9, uuid="GPU-9", name="NVIDIA Other", memory_bytes=1)
    assert listed(CARDS[:1]) == "GPU 0 (NVIDIA Test)"
    assert listed([*CARDS[:2], other]) == "GPU 0, GPU 1 and GPU 9 (NVIDIA Test, NVIDIA Other)"


SPLIT = (CARDS[0], *(Gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA Test", memory_bytes=1, mig=True) for index in (1, 2)))


def test_cards_in_mig_mode_are_left_out_and_it_is_said_why() -> None:
    assert choose(SPLIT, None, UNSET) == choose(SPLIT, read_option("all"), UNSET) == CARDS[:1]
    assert left_out(SPLIT, None, UNSET) == (
        "GPU 1 and GPU 2 (NVIDIA Test) are in MIG mode, and offered by no slot: ranks on parts of one card cannot train together, as NCCL takes "
        "one rank a card; turn it off (sudo nvidia-smi -i 1,2 -mig 0) and start the agent again"
    )
    assert left_out(CARDS, None, UNSET) is None
    assert (
        left_out(SPLIT, read_option("0"), UNSET)
        is left_out(SPLIT, read_option("none"), UNSET)
        is left_out(SPLIT, None, read_variable("0"))
        is None
    )


@pytest.mark.parametrize("variable", ["", "-1", "NoDevFiles"])
def test_a_variable_that_hides_all_cards_is_told_with_the_way_out(variable: str) -> None:
    """A machine with four cards offered CPU slots, also with --gpus all, and said no more than the name of the variable."""
    visible = read_variable(variable)
    said = (
        f"CUDA_VISIBLE_DEVICES={variable} hides GPU 0, GPU 1, GPU 2 and GPU 3 (NVIDIA Test): no GPU is offered; unset it and start the agent again, "
        "or say --gpus none if that is meant"
    )
    assert left_out(CARDS, None, visible) == left_out(CARDS, read_option("all"), visible) == said
    assert left_out(CARDS, read_option("none"), visible) is left_out((), None, visible) is left_out(CARDS, None, read_variable("0")) is None


def test_a_card_in_mig_mode_that_was_named_is_refused() -> None:
    with pytest.raises(
        CardChoiceError, match=r"--gpus 0,1: GPU 1 .* is in MIG mode: .* -i 1 -mig 0\), name other cards \(--gpus 0\), or offer"
    ):
        choose(SPLIT, read_option("0,1"), UNSET)
    with pytest.raises(
        CardChoiceError, match=r"CUDA_VISIBLE_DEVICES=2: GPU 2 .* is in MIG mode: .* other cards \(CUDA_VISIBLE_DEVICES=0\)"
    ):
        choose(SPLIT, None, read_variable("2"))
    with pytest.raises(CardChoiceError, match=r"--gpus 1: .* -mig 0\), or offer CPU slots with --gpus none"):
        choose(SPLIT[1:], read_option("1"), UNSET)
