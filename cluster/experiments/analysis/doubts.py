"""What an experiment's measurements cannot say, in sentences. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.convergence import first_and_last_loss, first_bad_step
from paceline.cluster.experiments.analysis.figures import is_measured
from paceline.cluster.experiments.analysis.statistics import ALPHA, coverage, enough_repeats
from paceline.cluster.experiments.analysis.words import listed, number, percent
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Outlier, Sentence
from paceline.monitoring.words import plural

#: Repeats of a configuration that differ by more were disturbed.
DISTURBED = 1.25
#: The least share of the time from its start to its end for which a trial holds slots, unless it was paused.
HELD = 0.8
#: The part at the end of a trial in which its ranks are gone already, and its slots are given to the next.
HANDOVER = 0.05
#: How many outliers, failed trials and trials with a lost loss are told; more are counted.
MOST_TOLD = 4


def doubts(
    trials: Sequence[TrialFacts], configurations: Sequence[RepeatedTrials], references: Sequence[int], outlying: Sequence[Outlier]
) -> list[Sentence]:
    """Return the doubts, those first that weigh most. `references`: indices of the configurations that have a single process to compare with."""
    measured = [each for each in configurations if each.measured]
    found = [
        *_endings(trials),
        *_without_figures(trials),
        *_refusals(configurations),
        *_losses(trials),
        *_divergence(measured),
        *_derived(measured),
        *_repeats(measured),
        *_disturbance(measured),
        *_overlap([trial for each in measured for trial in each.measured]),
        *_machines(measured),
        *_references(measured, references),
        *_outliers(outlying),
    ]
    return [Sentence(kind="doubt", text=text, configurations=indices) for text, indices in found]


def _endings(trials: Sequence[TrialFacts]) -> list[tuple[str, list[int]]]:
    failed = Counter(_cause(trial) for trial in trials if trial.state == "failed")
    cancelled = sum(trial.state == "cancelled" for trial in trials)
    pruned = sum(trial.state == "pruned" for trial in trials)
    left = sum(trial.state in ("waiting", "running", "paused") for trial in trials)
    causes = listed([f"{count} {cause}" if len(failed) > 1 else cause for cause, count in failed.most_common()])
    told = [
        (f"{_of(failed.total(), trials)} failed: {causes}.", failed.total()),
        (f"{_of(cancelled, trials)} {'was' if cancelled == 1 else 'were'} cancelled.", cancelled),
        (
            f"{_of(pruned, trials)} {'was' if pruned == 1 else 'were'} stopped early: what more steps would have brought is not known.",
            pruned,
        ),
        (f"{_of(left, trials)} {'has' if left == 1 else 'have'} not ended: this is of what there is so far.", left),
    ]
    return [(text, []) for text, count in told if count]


def _cause(trial: TrialFacts) -> str:
    return trial.end_reason.value.replace("_", " ") if trial.end_reason is not None else "for an unknown reason"


def _of(count: int, trials: Sequence[TrialFacts]) -> str:
    return f"{count} of {plural(len(trials), 'trial')}"


def _without_figures(trials: Sequence[TrialFacts]) -> list[tuple[str, list[int]]]:
    """Trials that completed and of which nothing is known any more, so that others may seem better than they are."""
    lacking = [trial for trial in trials if trial.state == "completed" and trial.step_seconds is None and trial.metric is None]
    if not lacking:
        return []
    subject = f"{_of(len(lacking), trials)} completed and {'has' if len(lacking) == 1 else 'have'} no figures"
    return [
        (f"{subject}: their data were deleted, or too few steps were reported. Posted again, an experiment does not run them anew.", [])
    ]


def _refusals(configurations: Sequence[RepeatedTrials]) -> list[tuple[str, list[int]]]:
    refused = [each for each in configurations if each.refusal is not None]
    if not refused:
        return []
    subject = f"{plural(len(refused), 'configuration')} {'was' if len(refused) == 1 else 'were'} refused by the planner and not run"
    reasons = [*dict.fromkeys(str(each.refusal) for each in refused)][:MOST_TOLD]
    of_reason = [(reason.rstrip("."), [each.label for each in refused if each.refusal == reason]) for reason in reasons]
    told = "; ".join(f"{listed(labels, MOST_TOLD)}: {reason}" for reason, labels in of_reason)
    return [(f"{subject}: {told}.", [each.index for each in refused])]


def _losses(trials: Sequence[TrialFacts]) -> list[tuple[str, list[int]]]:
    bad = [(trial, step) for trial in trials if (step := first_bad_step(trial)) is not None]
    return (
        [(f"The loss of {listed([f'trial {trial.index} from step {step} on' for trial, step in bad], MOST_TOLD)} is not finite.", [])]
        if bad
        else []
    )


def _divergence(measured: Sequence[RepeatedTrials]) -> list[tuple[str, list[int]]]:
    """Configurations whose loss ended above where it began, in a trial: nothing is to be learned from the best value on the way."""
    risen = [(each, rise) for each in measured if (rise := _rise([*map(first_and_last_loss, each.measured)])) is not None]
    told = [f"{each.label} (from {number(first)} to {number(last)})" for each, (first, last) in risen]
    return [(f"The loss ended above where it began: {listed(told, MOST_TOLD)}.", [each.index for each, _ in risen])] if risen else []


def _rise(pairs: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    """The first pair of a first and a higher last loss."""
    return next((pair for pair in pairs if pair is not None and pair[1] > pair[0]), None)


def _repeats(measured: Sequence[RepeatedTrials]) -> list[tuple[str, list[int]]]:
    """How far the intervals can be trusted, by the configuration with the fewest repeats."""
    if not measured:
        return []
    fewest = min(len(each.measured) for each in measured)
    if fewest == 1:
        single = [each.index for each in measured if len(each.measured) == 1]
        subject = "Each configuration" if len(single) == len(measured) else plural(len(single), "configuration")
        return [(f"{subject} ran once only: how much of its figures is chance is not known.", single)]
    if coverage(fewest) >= 1 - ALPHA:
        return []
    text = f"Intervals of {fewest} repeats are no wider than these, and have the true median in them in {percent(coverage(fewest))} of cases only"
    enough = enough_repeats(len(measured) - 1)
    more = f"; with {enough} or more repeats {'the best one' if len(measured) > 2 else 'one'} can be shown to differ from {_others(len(measured) - 1)}"
    more = more if fewest < enough else ""
    return [(f"{text}{more}.", [])]


def _others(count: int) -> str:
    return "the other" if count == 1 else f"the {count} others"


def _disturbance(measured: Sequence[RepeatedTrials]) -> list[tuple[str, list[int]]]:
    spans = [(values[-1] / values[0], each) for each in measured if (values := each.figures["step_seconds"]) and values[0] > 0]
    wide = [(span, each) for span, each in spans if span > DISTURBED]
    if not wide:
        return []
    span, worst = max(wide, key=lambda each: (each[0], -each[1].index))
    text = (
        f"Repeats of the same configuration differ by up to {number(span)} times in the time of a step ({worst.label}): something else used the "
        f"machines meanwhile, and small differences cannot be seen through it."
    )
    return [(text, [each.index for _, each in wide])]


def _overlap(trials: Sequence[TrialFacts]) -> list[tuple[str, list[int]]]:
    """Trials that ran side by side may have slowed each other. Of one that was paused in between it is not known when it ran. One that
    started while another was ending has taken over its slots: its first moment does not count."""
    spans = [
        (trial.started_at, trial.ended_at - HANDOVER * (trial.ended_at - trial.started_at))
        for trial in trials
        if trial.started_at is not None and trial.ended_at is not None and not _has_paused(trial, trial.ended_at - trial.started_at)
    ]
    changes = sorted([(end, -1) for _, end in spans] + [(start, 1) for start, _ in spans])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    if most < 2:
        return []
    return [(f"Up to {most} trials ran side by side and may have slowed each other; at_once: 1 keeps them apart.", [])]


def _has_paused(trial: TrialFacts, seconds: float) -> bool:
    """Whether a trial held its slots for clearly less than the `seconds` from its start to its end."""
    return trial.slot_hours is not None and trial.slot_hours * 3600 / trial.world_size < HELD * seconds


def _derived(measured: Sequence[RepeatedTrials]) -> list[tuple[str, list[int]]]:
    """Values that no configuration gives and in which they differ nevertheless: a comparison of strategies compares these as well."""
    found = []
    for path in sorted({path for each in measured for path in each.measured[0].derived}):
        groups: dict[str, list[RepeatedTrials]] = {}
        for each in measured:
            if path in each.measured[0].derived:
                groups.setdefault(json.dumps(each.measured[0].derived[path]), []).append(each)
        if len(groups) > 1:
            told = listed([f"{value} in {listed([each.label for each in members])}" for value, members in groups.items()])
            indices = sorted(each.index for members in groups.values() for each in members)
            found.append(
                (f"{path} is not given and was derived as {told}: they are compared in this, too; give it to have it equal.", indices)
            )
    return found


def _machines(measured: Sequence[RepeatedTrials]) -> list[tuple[str, list[int]]]:
    several = [each for each in measured if each.world_size > 1]
    if not several:
        return []
    found = []
    if all(trial.machines == 1 for each in several for trial in each.measured):
        found.append(("All ranks of a trial shared one machine: this says nothing about a network between machines.", list[int]()))
    largest = max(each.world_size for each in several)
    if largest == 2:
        found.append(("No trial had more than two ranks: how more of them scale is not measured.", []))
    return found


def _references(measured: Sequence[RepeatedTrials], references: Sequence[int]) -> list[tuple[str, list[int]]]:
    missing = [each.index for each in measured if each.world_size > 1 and each.index not in references]
    if not missing:
        return []
    subject = (
        "No configuration"
        if len(missing) == sum(each.world_size > 1 for each in measured)
        else f"Not every configuration ({len(missing)} without)"
    )
    return [(f"{subject} has a single process to compare with, and so no efficiency; `baseline: true` adds them.", missing)]


def _outliers(found: Sequence[Outlier]) -> list[tuple[str, list[int]]]:
    told = [(each.text, list[int]()) for each in found[:MOST_TOLD]]
    return [*told, *([(f"{len(found) - MOST_TOLD} further outlying figures are in the table.", [])] if len(found) > MOST_TOLD else [])]


def nothing_measured(trials: Sequence[TrialFacts]) -> list[Sentence]:
    """Return the sentence of an analysis without any figures; none where a trial was measured."""
    if any(is_measured(trial) for trial in trials):
        return []
    return [Sentence(kind="doubt", text="Nothing is measured yet, so there is nothing to recommend.")]
