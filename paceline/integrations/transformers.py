"""A callback for the Trainer of transformers: `Trainer(..., callbacks=[PacelineCallback()])`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from paceline.configuration import record_config
from paceline.monitoring.names import transformers_tag
from paceline.recording import ForeignMetrics


class PacelineCallback(TrainerCallback):
    """Records what the Trainer logs on world rank 0 as curves of the job, at the optimizer's global step.

    The names are those that the Trainer's event files and `trainer_state.json` get: `loss`, `learning_rate`, `gradient_norm`, `eval_loss`, and
    `train/epoch` and the like for what Paceline has no name of its own for.
    """

    def __init__(self) -> None:
        self._metrics = ForeignMetrics()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Record the arguments that differ from their defaults in the job's history."""
        if state.is_world_process_zero:
            record_config(_given(args), name=args.run_name or "")

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """Record the Trainer's logs at its global step."""
        if state.is_world_process_zero and logs:
            self._metrics.record(state.global_step, {transformers_tag(name): value for name, value in logs.items()})


def _given(args: TrainingArguments) -> dict[str, Any]:
    """Return the arguments that differ from their defaults, except lists and other objects."""
    values = {field.name: (getattr(args, field.name), _default(field)) for field in fields(args)}
    return {name: value for name, (value, default) in values.items() if value != default and isinstance(value, str | int | float)}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
