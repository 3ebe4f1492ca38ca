from __future__ import annotations

import pytest

from cluster.agent.curves.names import Names
from cluster.agent.curves.owners import writer_of


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("loss", "loss"),
        ("train/loss", "loss"),
        ("Loss/train", "loss"),
        ("train_loss_step", "loss"),
        ("lr-AdamW", "learning_rate"),
        ("lr-AdamW/pg1", "learning_rate"),
        ("lr-AdamW/pg2", "lr-AdamW/pg2"),
        ("train/grad_norm", "gradient_norm"),
        ("val_loss", "eval_loss"),
        ("train/train_loss", "train/train_loss"),
        ("samples", "own/samples"),
        (" a\nb ", "a b"),
        ("x" * 201, None),
        ("", None),
    ],
)
def test_a_tag_has_our_name_where_it_means_the_same(tag: str, name: str | None) -> None:
    assert Names().name(tag) == name


def test_the_second_tag_that_means_the_same_keeps_its_own_name() -> None:
    names = Names()
    assert [names.name(tag) for tag in ("lr-Adam", "lr-SGD", "lr-Adam")] == ["learning_rate", "lr-SGD", "learning_rate"]


def test_a_file_name_tells_its_writer() -> None:
    ours = writer_of("events.out.tfevents.1795479225.my.host.22203.1", "my.host")
    assert ours is not None
    assert (ours.time, ours.pid, ours.number, ours.here) == (1795479225.0, 22203, 1, True)
    assert (suffixed := writer_of("events.out.tfevents.1795479225.host.7.0.v2", "host")) is not None
    assert suffixed.pid == 7
    assert (tensorboardx := writer_of("events.out.tfevents.1795479225.host", "host")) is not None
    assert (tensorboardx.pid, tensorboardx.here) == (None, True)
    assert (other := writer_of("events.out.tfevents.1795479225.host2.7.0", "host")) is not None
    assert not other.here
    assert writer_of("events.out.tfevents.x", "host") is None
