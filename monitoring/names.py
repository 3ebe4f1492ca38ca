"""The names that Paceline has for metrics of other libraries, in their event files and in what they log. Pure."""

from __future__ import annotations

import re

from paceline.monitoring.points import MAX_NAME_CHARACTERS, RESERVED_NAMES

_LOSS = "loss train/loss train_loss train_loss_step training_loss training/loss loss/train loss/train_step"
_RATE = "learning_rate lr train/learning_rate train/lr train_lr"
_NORM = "gradient_norm grad_norm train/grad_norm train/gradient_norm train_grad_norm"
_SAMPLES = "samples_per_second samples_per_sec samples/s samples/sec"
_TOKENS = (
    "tokens_per_second tokens_per_sec tokens/s tokens/sec tok_per_sec tok/s tok/sec"  # not tps, which torchtitan counts for each device
)
_EVERYWHERE = ("", "train/", "throughput/", "train_", "train/train_")  # `train_` is transformers', whose event files have `train/train_`
_EVAL_LOSS = (
    "eval_loss eval/loss val_loss val/loss valid_loss valid/loss validation_loss validation/loss loss/val loss/eval loss/validation"
)


def _throughput(aliases: str) -> str:
    return " ".join(f"{part}{alias}" for part in _EVERYWHERE for alias in aliases.split())


_OURS = {
    alias: ours
    for ours, aliases in {
        "loss": _LOSS,
        "learning_rate": _RATE,
        "gradient_norm": _NORM,
        "samples_per_second": _throughput(_SAMPLES),
        "tokens_per_second": _throughput(_TOKENS),
        "eval_loss": _EVAL_LOSS,
    }.items()
    for alias in aliases.split()
}
#: Lightning's LearningRateMonitor: `lr-AdamW`, and `lr-AdamW/pg1` of several groups.
_LIGHTNING_RATE = re.compile(r"lr-[^/]+(/pg1)?\Z")


def our_name(tag: str) -> str:
    """The name of ours that means the same; `tag` where there is none."""
    lower = tag.lower()
    if _LIGHTNING_RATE.match(lower):
        return "learning_rate"
    return _OURS.get(lower, tag)


def clean(tag: str) -> str | None:
    """`tag` as a metric may be called; None: it is too long, or nothing is left of it."""
    name = "".join(each if each.isprintable() else " " for each in tag).strip()
    if name in RESERVED_NAMES:
        name = f"own/{name}"
    return name if 0 < len(name) <= MAX_NAME_CHARACTERS else None


def transformers_tag(name: str) -> str:
    """The tag that transformers gives `name` in event files (`rewrite_logs` in `transformers/integrations/integration_utils.py`)."""
    for part in ("eval", "test"):
        if name.startswith(f"{part}_"):
            return f"{part}/{name.removeprefix(f'{part}_')}"
    return f"train/{name}"


class Names:
    """Gives the tags of one rank their names: the first tag that means one of Paceline's own names gets it, and any other keeps its own."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # by our name, the tag that has it
        self._known: dict[str, str | None] = {}

    def name(self, tag: str) -> str | None:
        """Return the metric's name that stands for another library's `tag`; None if no valid name can be made of it."""
        if tag not in self._known:
            ours = our_name(tag)
            mine = self._owners.setdefault(ours, tag) == tag
            self._known[tag] = clean(ours if mine else tag)
        return self._known[tag]
