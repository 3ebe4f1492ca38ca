"""The written interpretation: what to take, what was found, and what the measurements cannot say. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.cluster.experiments.analysis.fits import POOR
from paceline.cluster.experiments.analysis.predictions import CostModelFindings
from paceline.cluster.experiments.analysis.scaling import ScalingSeries
from paceline.cluster.experiments.analysis.statistics import median
from paceline.cluster.experiments.analysis.words import between, listed, number, percent
from paceline.cluster.experiments.findings import Configuration, Convergence, Estimate, Fit, Prediction, Sentence
from paceline.monitoring.words import plural

#: Series, and configurations with another loss, that are told one by one.
MOST_TOLD = 4
#: Shares of a step that are worth a word.
MUCH = 0.1
MORE_THAN_IDEAL = 1.05
#: A loss that is further from that of one process is told.
OTHER_LOSS = 0.01
#: Median error of a cost model from which on its predictions are not told in sentences.
MOST_ERROR = 0.25
#: The predicted numbers of ranks that are told.
TOLD_RANKS = (64, 1024)


def told_series(series: Sequence[ScalingSeries]) -> list[ScalingSeries]:
    """Return the series that sentences are about: of each strategy the one that gets through the most samples per second."""
    fastest: dict[str, ScalingSeries] = {}
    for each in series:
        if each.strategy not in fastest or _speed(each) > _speed(fastest[each.strategy]):
            fastest[each.strategy] = each
    return list(fastest.values())[:MOST_TOLD]


def _speed(series: ScalingSeries) -> float:
    speeds = series.members[-1].figures["samples_per_second"]
    return median(speeds) if speeds else 0.0


def scaling_sentences(series: Sequence[ScalingSeries], configurations: Sequence[Configuration]) -> list[Sentence]:
    """Write how fast the most ranks of each series are beside one process, and what keeps them from being faster."""
    largest = [configurations[each.members[-1].index] for each in series]
    told = [(each, each.speedup, each.efficiency) for each in largest if each.world_size > 1]
    return [
        Sentence(kind="finding", text=_scaling(each, speedup, efficiency), configurations=[each.index])
        for each, speedup, efficiency in told
        if speedup is not None and efficiency is not None
    ]


def _scaling(configuration: Configuration, speedup: Estimate, efficiency: Estimate) -> str:
    slower = ", slower than one process" if speedup.value < 1 and (speedup.high is None or speedup.high < 1) else ""
    shares = (("exposed communication", configuration.exposed_communication), ("the pipeline's bubble", configuration.bubble))
    ideal = "; more than ideal, so look at the single process first" if efficiency.value > MORE_THAN_IDEAL else ""
    lost = [f"{percent(share.value)} of a step is {name}" for name, share in shares if share is not None and share.value > MUCH]
    return (
        f"{configuration.label}: {number(speedup.value)} times the speed of one process{slower}, an efficiency of "
        f"{percent(efficiency.value)}{between(efficiency, percent)}{ideal}{'; ' + listed(lost) if lost else ''}."
    )


def fit_sentences(series: Sequence[ScalingSeries], fits: Sequence[Fit], refused: Sequence[str]) -> list[Sentence]:
    """Write the laws that describe these series as findings; those that do not, and those that were not fitted, as doubts."""
    names = {name for each in series for name in (each.label, each.strategy)}
    told = [each for each in fits if each.series in names]
    return [
        *(Sentence(kind="finding", text=each.text) for each in told if each.worst_residual <= POOR),
        *(Sentence(kind="doubt", text=each.text) for each in told if each.worst_residual > POOR),
        *(Sentence(kind="doubt", text=text) for text in refused),
    ]


def convergence_sentences(found: Sequence[Convergence]) -> list[Sentence]:
    """Write whether losses at equal samples are those of one process, and which ones are not."""
    if not found:
        return []
    same, near = sum(each.same for each in found), sum(_distance(each) <= OTHER_LOSS for each in found)
    close = f", within {percent(OTHER_LOSS)} in {near}" if near > same else ""
    summary = (
        f"At equal samples the loss is that of one process but for rounding in {same} of {plural(len(found), 'configuration')}{close}."
    )
    other = sorted((each for each in found if _distance(each) > OTHER_LOSS), key=lambda each: (-_distance(each), each.configuration))
    return [
        Sentence(kind="finding", text=summary, configurations=[each.configuration for each in found]),
        *(Sentence(kind="finding", text=each.text, configurations=[each.configuration]) for each in other[:MOST_TOLD]),
    ]


def _distance(found: Convergence) -> float:
    """The difference of two losses, relative to the larger one."""
    largest = max(abs(found.loss), abs(found.reference_loss))
    return abs(found.loss - found.reference_loss) / largest if largest else 0.0


def cost_sentences(found: CostModelFindings, series: Sequence[ScalingSeries], configurations: Sequence[Configuration]) -> list[Sentence]:
    """Write how far the cost model is from what was measured, and what it predicts of these series, with what that assumes."""
    if not found.checks:
        return []
    error, worst = median([abs(each.error) for each in found.checks]), max(found.checks, key=lambda each: abs(each.error))
    text = (
        f"The cost model, fitted to these {plural(len(found.checks), 'configuration')}, misses their steps by {percent(error)} in the median and "
        f"{percent(abs(worst.error))} at worst ({configurations[worst.configuration].label})"
    )
    trusted = error <= MOST_ERROR
    judged = f"{text}." if trusted else f"{text}: what it predicts of more ranks is not to be relied on."
    predicted = [(each, told) for each in series if (told := _told(found.predictions, each.members[-1].index))]
    return [
        Sentence(kind="finding" if trusted else "doubt", text=judged, configurations=[worst.configuration]),
        *(_prediction(each.label, told) for each, told in predicted if trusted),
        *(_assumption(told[-1]) for _, told in predicted[:1] if trusted),
    ]


def _told(predictions: Sequence[Prediction], configuration: int) -> list[Prediction]:
    """The predictions from a configuration that a sentence tells: on TOLD_RANKS, else on the most ranks that there are."""
    known = [each for each in predictions if each.configuration == configuration]
    return [each for each in known if each.ranks in TOLD_RANKS] or known[-1:]


def _prediction(label: str, told: Sequence[Prediction]) -> Sentence:
    ranks = listed([f"{percent(each.efficiency)} on {each.ranks:,} ranks" for each in told])
    return Sentence(
        kind="finding", text=f"Predicted, not measured: {label} with an efficiency of {ranks}.", configurations=[told[0].configuration]
    )


def _assumption(prediction: Prediction) -> Sentence:
    text = f"Predictions hold as far as their assumptions do; those on {prediction.ranks:,} ranks: {prediction.assumptions.rstrip('.')}."
    return Sentence(kind="doubt", text=text, configurations=[prediction.configuration])
