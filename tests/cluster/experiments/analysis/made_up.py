"""Trials with known answers, and the recorded ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials, group
from paceline.cluster.experiments.facts import StepSeries, TrialFacts
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.cluster.states import EndReason, JobState

STRATEGY, BATCH, RATE = "parallelism.strategy", "training.global_batch_size", "optimizer.lr"
#: Eighteen jobs of `paceline submit` on one machine that much else ran on: a GPT of two layers for 60 steps; one process, two replicas and two
#: shards, batches of 16 and of 32, three repeats each. Figures are medians of steps 11 to 60.
RECORDED = Path(__file__).parent / "recorded" / "tiny_gpt.json"
SEVEN = (1.0, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995)


def spec(**changes: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate({"name": "made-up", "job": {}, "vary_seed": True, **changes})


def repeats(first: int, values: Mapping[str, Any], seconds: Sequence[float], **figures: Any) -> list[TrialFacts]:
    """One configuration: a trial for each time of a step; a figure is a number, or a list with one for each repeat."""
    ranks = int(values.get("world_size", 1))
    known = {"strategy": values.get(STRATEGY, "single"), "world_size": ranks, "baseline": False, "state": "completed", **figures}
    batch = values.get(BATCH, 32)
    return [
        TrialFacts(
            index=first + repeat,
            values=values,
            repeat=repeat,
            step_seconds=step,
            samples_per_second=batch / step,
            **{name: value[repeat] if isinstance(value, list) else value for name, value in known.items()},
        )
        for repeat, step in enumerate(seconds)
    ]


def scaled(base: float, noise: Sequence[float] = SEVEN) -> list[float]:
    return [base * each for each in noise]


def groups(trials: Sequence[TrialFacts], **changes: Any) -> list[RepeatedTrials]:
    return group(spec(**changes), trials)


def losses(values: Sequence[float], batch: int = 10, seconds: float = 1.0) -> StepSeries:
    count = range(1, len(values) + 1)
    return StepSeries(
        steps=[*count],
        seconds=[seconds for _ in count],
        losses=[*values],
        samples=[batch * step for step in count],
        times=[seconds * step for step in count],
    )


def recorded() -> tuple[ExperimentSpec, list[TrialFacts]]:
    document = json.loads(RECORDED.read_text())
    return ExperimentSpec.model_validate(document["spec"]), [_trial(each) for each in document["trials"]]


def _trial(document: dict[str, Any]) -> TrialFacts:
    states = {"end_reason": EndReason(document["end_reason"]), "job_state": JobState(document["job_state"])}
    return TrialFacts(**{**document, **states, "series": StepSeries(**document["series"])})
