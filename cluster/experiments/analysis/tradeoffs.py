"""Strategies weighed against each other in sentences: speed against memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials, canonical, section
from paceline.cluster.experiments.analysis.labels import WORLD_SIZE, words_of
from paceline.cluster.experiments.analysis.statistics import median
from paceline.cluster.experiments.analysis.words import percent, size
from paceline.cluster.experiments.findings import Effect, Sentence

SPEED, MEMORY = "samples_per_second", "peak_memory_bytes"
MOST_SENTENCES = 8
#: A change of speed or memory that is worth a word.
WORTH_A_WORD = 0.05


def sentences(effects: Sequence[Effect], configurations: Sequence[RepeatedTrials]) -> list[Sentence]:
    """Write what each plan costs and saves beside another one, then the effects of other values that are shown, but of ranks, whose scaling is told apart."""
    of_plans = [each for each in effects if all(section(path) == "parallelism" for path in each.path.split(", "))]
    weighed = [found for pair in _by_values(of_plans) if (found := _weigh(pair, configurations)) is not None]
    others = [each for each in effects if each not in of_plans and each.path != WORLD_SIZE and _is_worth_a_word(each)]
    shown = [Sentence(kind="finding", text=each.text, configurations=_indices(each)) for each in others]
    return [*weighed, *shown][:MOST_SENTENCES]


def _is_worth_a_word(effect: Effect) -> bool:
    return effect.is_difference and abs(effect.ratio - 1) >= WORTH_A_WORD


def _by_values(effects: Sequence[Effect]) -> list[dict[str, Effect]]:
    """The effects of the same two values, by figure."""
    found: dict[str, dict[str, Effect]] = {}
    for each in effects:
        found.setdefault(canonical({"path": each.path, "first": each.first, "second": each.second}), {})[each.figure] = each
    return list(found.values())


def _weigh(by_figure: Mapping[str, Effect], configurations: Sequence[RepeatedTrials]) -> Sentence | None:
    """Write what the value that costs speed saves in memory; the slower one is the subject."""
    speed, memory = by_figure.get(SPEED), by_figure.get(MEMORY)
    if speed is None:
        return None
    slower_first = speed.ratio > 1
    subject, other = (_words(speed, each) for each in ((speed.first, speed.second) if slower_first else (speed.second, speed.first)))
    cost = 1 - (1 / speed.ratio if slower_first else speed.ratio)
    text = f"{subject} {_costs(cost, speed)}"
    if memory is None:
        return Sentence(kind="finding", text=f"{text} against {other}.", configurations=_indices(speed))
    ratio = 1 / memory.ratio if slower_first else memory.ratio
    text = f"{text} and {_saves(ratio, memory)} against {other}{_pairs(speed)}"
    advice = _advice(subject, other, ratio, by_figure, configurations, other_first=not slower_first)
    return Sentence(kind="finding", text=f"{text}{advice}.", configurations=_indices(speed))


def _costs(share: float, effect: Effect) -> str:
    if effect.p_value is not None and not effect.is_difference:
        return f"is not shown to cost speed here ({percent(share)} in the medians)"
    return f"costs {percent(share)} of speed here{_untested(effect)}"


def _saves(ratio: float, effect: Effect) -> str:
    if ratio == 1:
        return "takes the same memory"
    change = f"saves {percent(1 - ratio)}" if ratio < 1 else f"takes {percent(ratio - 1)} more"
    if effect.p_value is not None and not effect.is_difference:
        return f"is not shown to change the peak of memory ({change} in the medians)"
    return f"{change} of memory{_untested(effect)}" if ratio < 1 else f"{change} memory{_untested(effect)}"


def _untested(effect: Effect) -> str:
    return "" if effect.is_difference else " in the medians, too few repeats to show it,"


def _pairs(effect: Effect) -> str:
    return f", over {len(effect.pairs)} pairs that are otherwise equal" if len(effect.pairs) > 1 else ""


def _advice(
    subject: str, other: str, ratio: float, by_figure: Mapping[str, Effect], configurations: Sequence[RepeatedTrials], *, other_first: bool
) -> str:
    """When to take the slower one: where the memory of the other one does not suffice, or always if it costs nothing."""
    speed, memory = by_figure[SPEED], by_figure[MEMORY]
    if memory.p_value is not None and not memory.is_difference:
        return ""
    if ratio < 1 and speed.p_value is not None and not speed.is_difference:
        return f"; nothing measured here speaks for {other}"
    if ratio > 1 - WORTH_A_WORD:
        return f"; nothing measured here speaks for {subject}"
    by_index = {each.index: each for each in configurations}
    peaks = [by_index[pair[0 if other_first else 1]].figures[MEMORY] for pair in memory.pairs]
    return f"; take it where the {size(max(median(each) for each in peaks))} a rank of {other} do not fit"


def _words(effect: Effect, value: object) -> str:
    paths = effect.path.split(", ")
    return words_of(paths, value if isinstance(value, list) and len(paths) > 1 else [value])


def _indices(effect: Effect) -> list[int]:
    return sorted({index for pair in effect.pairs for index in pair})
