"""Experiments on a terminal: their trials, configurations and findings as tables and sentences. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.cli.api_types import (
    Analysis,
    Configuration,
    Estimate,
    Experiment,
    ExperimentPlan,
    ExperimentSummary,
    PlannedConfiguration,
    Trial,
    TrialCounts,
)
from paceline.cli.render import formats
from paceline.cli.render.output import fields, table
from paceline.monitoring.words import plural

#: The states of trials but `completed`, which is told with the total: first those that have ended.
OTHER_STATES = ("failed", "refused", "cancelled", "pruned", "running", "paused", "waiting")
ENDED_STATES = frozenset({"completed", "failed", "cancelled", "pruned", "refused"})
#: Sentences of an interpretation in the order in which they are read.
KINDS = ("recommendation", "finding", "doubt")


def counts_text(counts: TrialCounts) -> str:
    """Return a sentence as "12 of 16 completed, 1 failed, 3 pruned"."""
    others = [f"{getattr(counts, state)} {state}" for state in OTHER_STATES if getattr(counts, state)]
    return ", ".join([f"{counts.completed} of {counts.total} completed", *others])


def values_text(values: Any) -> str:
    """Return varied values by the last word of their paths, as "strategy=fsdp, world_size=2"; the whole path where two would look alike. What a
    configuration has no choice of, such as the stages of a single process, is left out."""
    values = {path: value for path, value in values.items() if value is not None}
    last = [path.rpartition(".")[2] for path in values]
    return ", ".join(
        f"{path if last.count(word) > 1 else word}={_value(value)}" for word, (path, value) in zip(last, values.items(), strict=True)
    )


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def details(experiment: Experiment, page: str = "") -> str:
    """Return the head of an experiment's page. `page`: its address in the dashboard."""
    pairs = [
        ("experiment", experiment.id),
        ("name", experiment.name),
        ("project", experiment.project),
        ("state", experiment.state),
        ("trials", counts_text(experiment.trials) if experiment.trials else formats.UNKNOWN),
        ("varied", ", ".join(experiment.axes)),
        ("left", "" if experiment.seconds_left is None else formats.duration(experiment.seconds_left)),
        ("slot-hours", formats.significant(experiment.slot_hours)),
        ("best", _best(experiment)),
        ("waits for", experiment.waits_for.text if experiment.waits_for else ""),
        ("page", page),
    ]
    return fields([(name, text) for name, text in pairs if text])


def _best(experiment: Experiment | ExperimentSummary) -> str:
    if experiment.best_trial is None or experiment.best_metric is None:
        return ""
    return f"trial {experiment.best_trial}: {formats.significant(experiment.best_metric)}"


def list_table(experiments: Sequence[ExperimentSummary], empty: str) -> str:
    headers = ["NAME", "STATE", "TRIALS", "LEFT", "BEST", "AGE", "ID"]
    rows = [
        [
            each.name,
            each.state,
            counts_text(each.trials) if each.trials else formats.UNKNOWN,
            formats.duration(each.seconds_left),
            _best(each) or formats.UNKNOWN,
            formats.age(each.created_at),
            each.id,
        ]
        for each in experiments
    ]
    return table(headers, rows, empty)


def trials_table(trials: Sequence[Trial]) -> str:
    """Return a row for each trial: its values, how it stands, and its job or why there is none."""
    headers = ["TRIAL", "VALUES", "REPEAT", "STATE", "STEP", "SAMPLES/S", "METRIC", "JOB"]
    rows = [
        [
            str(each.index),
            values_text(each.values) + (" (baseline)" if each.baseline else ""),
            str(each.repeat + 1),
            _state(each),
            formats.steps(each.job.step, each.job.total_steps) if each.job else formats.UNKNOWN,
            formats.quantity(each.job.samples_per_second if each.job else None),
            formats.significant(each.metric),
            each.refusal or (each.job.name if each.job else formats.UNKNOWN),
        ]
        for each in trials
    ]
    return table(headers, rows, empty="no trials")


def _state(trial: Trial) -> str:
    """Return the state of a trial; of one whose job waits for slots, that it does."""
    if trial.state in ("running", "waiting") and trial.job is not None and trial.job.state == "queued":
        return "queued"
    reason = trial.job.end_reason if trial.job else None
    return f"{trial.state} ({reason})" if trial.state == "failed" and reason else trial.state


BY_EARLIER = ", by earlier jobs of the same model and data"


def plan_report(plan: ExperimentPlan, spec: Mapping[str, Any]) -> str:
    """Return what would run of the experiment `spec`, and what would not and why."""
    running, most = plan.trials - plan.refused, _most_trials(spec)
    pairs = [
        ("trials", f"{running} to run" + (f", {plan.refused} refused" if plan.refused else "")),
        (
            "planned",
            f"the first {len(plan.configurations) - plan.not_planned} of {plural(len(plan.configurations), 'configuration')}; others may be refused yet"
            if plan.not_planned
            else "",
        ),
        ("budget", f"no more than {plural(most, 'trial')} of them run" if most is not None and most < running else ""),
        ("varied", ", ".join(plan.axes)),
        (
            "time",
            "unknown: no time of a step is known here"
            if plan.seconds is None
            else f"about {formats.duration(plan.seconds)} with the slots of today{BY_EARLIER if plan.by_earlier_jobs else ''}",
        ),
        ("slot-hours", formats.significant(plan.slot_hours)),
        *(("error", f"{each['pointer']}: {each['message']}") for each in plan.errors),
    ]
    headers = ["CONFIGURATION", "RANKS", "REPEATS", "MEMORY", "REFUSED BECAUSE"]
    rows = [_planned_row(each) for each in plan.configurations]
    empty = "no configurations before the errors are mended" if plan.errors else "configurations are drawn as the experiment runs"
    return f"{fields([(name, text) for name, text in pairs if text])}\n\n{table(headers, rows, empty=empty)}"


def _most_trials(spec: Mapping[str, Any]) -> int | None:
    """Return the number of trials in an experiment's budget, if it has one."""
    budget = spec.get("budget")
    most = budget.get("trials") if isinstance(budget, Mapping) else None
    return most if isinstance(most, int) else None


def _planned_row(each: PlannedConfiguration) -> list[str]:
    memory = formats.quantity(each.memory_bytes, "B") if each.memory_bytes is not None else formats.UNKNOWN
    name = (values_text(each.values) or "as given") + (" (baseline)" if each.baseline else "")
    return [name, str(each.world_size), str(each.repeats), memory, each.refusal or ""]


def report(analysis: Analysis, metric: str) -> str:
    """Return the interpretation's sentences and a table of the configurations. `metric`: what the experiment calls best."""
    sentences = [
        f"{'' if kind == 'finding' else kind + ': '}{each.text}" for kind in KINDS for each in analysis.sentences if each.kind == kind
    ]
    return "\n\n".join(part for part in ("\n".join(sentences), configurations_table(analysis, metric)) if part)


Column = tuple[str, Callable[[Configuration], str]]


def configurations_table(analysis: Analysis, metric: str) -> str:
    """Return a row for each configuration; columns of which nothing is known are left out. `*` marks the recommended one."""
    columns: list[Column] = [
        ("CONFIGURATION", lambda each: f"{'* ' if each.index == analysis.best else '  '}{each.label}"),
        ("TRIALS", lambda each: f"{each.completed}/{len(each.trials)}"),
        ("SAMPLES/S", lambda each: interval(each.samples_per_second, formats.quantity)),
        ("TOKENS/S", lambda each: interval(each.tokens_per_second, formats.quantity)),
        ("STEP", lambda each: interval(each.step_seconds, _seconds)),
        ("SPEEDUP", lambda each: interval(each.speedup, lambda value: f"{value:.2f}")),
        ("EFFICIENCY", lambda each: interval(each.efficiency, lambda value: f"{value:.0%}")),
        ("PEAK MEMORY", lambda each: interval(each.peak_memory_bytes, lambda value: formats.quantity(value, "B"))),
        ("EXPOSED", lambda each: interval(each.exposed_communication, lambda value: f"{value:.1%}")),
        (metric.upper(), _metric_or_pruned),
        ("REFUSED BECAUSE", lambda each: each.refusal or ""),
    ]
    cells = [(name, [cell(each) for each in analysis.configurations]) for name, cell in columns]
    known = [(name, column) for name, column in cells if any(text not in ("", formats.UNKNOWN) for text in column)]
    rows = [list(row) for row in zip(*(column for _, column in known), strict=True)]
    return table([name for name, _ in known], rows, empty="nothing is measured yet")


def _metric_or_pruned(each: Configuration) -> str:
    """The metric of a configuration; of one whose trials were pruned, what they had reached until then."""
    if each.metric is not None or each.pruned is None:
        return interval(each.metric, formats.significant)
    reached = "not finite" if each.pruned.metric is None else interval(each.pruned.metric, formats.significant)
    return f"{reached} at step {each.pruned.step}, pruned"


def interval(estimate: Estimate | None, spell: Callable[[float], str]) -> str:
    """Return a median with its interval, as "152 [148, 156]"; the value alone where there is no interval."""
    if estimate is None:
        return formats.UNKNOWN
    if estimate.low is None or estimate.high is None:
        return spell(estimate.value)
    return f"{spell(estimate.value)} [{spell(estimate.low)}, {spell(estimate.high)}]"


def _seconds(value: float | None) -> str:
    """A step's time: 1.234 s, 12.3 ms."""
    if value is None:
        return formats.UNKNOWN
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
