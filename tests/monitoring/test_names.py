from __future__ import annotations

import pytest
from transformers.integrations.integration_utils import rewrite_logs

from paceline.monitoring.names import Names, transformers_tag


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
        ("samples_per_second", "samples_per_second"),
        ("Throughput/samples_per_sec", "samples_per_second"),
        ("train/samples_per_sec", "samples_per_second"),  # Lightning's ThroughputMonitor, over all ranks
        ("train/device/samples_per_sec", "train/device/samples_per_sec"),
        ("train_samples_per_second", "samples_per_second"),  # transformers
        ("train/train_tokens_per_second", "tokens_per_second"),
        ("eval/samples_per_second", "eval/samples_per_second"),
        ("tokens/s", "tokens_per_second"),
        ("tok/sec", "tokens_per_second"),
        ("train/tok_per_sec", "tokens_per_second"),
        ("tps", "tps"),
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


def test_transformers_tags_are_those_of_its_event_files() -> None:
    names = ("loss", "eval_loss", "test_loss", "train_runtime", "learning_rate", "evaluated")
    rewritten = rewrite_logs(dict.fromkeys(names, 1.0))
    assert [transformers_tag(name) for name in names] == list(rewritten)
