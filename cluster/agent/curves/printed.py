"""Numbers in the lines that a script prints: `step 120 loss 2.31`. Pure.

A line counts only where all of it is understood: a step or an epoch, then names with numbers, a loss among them. Anything else in it, even
one word, makes it a line like any other: a curve that is missing is better than one that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from paceline.monitoring.names import our_name
from paceline.monitoring.points import MAX_STEP

LONGEST_LINE = 500  # characters
MOST_VALUES = 20  # of one line
_NUMBER = r"[-+]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,3})?|[-+]?(?:nan|inf)(?![a-z])"
_PART = r"train|training|val|valid|validation|eval|evaluation|test"
#: What colours a text on a terminal.
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_TIME = rf"(?:(?:[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|[0-9]{{2}}/[0-9]{{2}}/[0-9]{{4}})[ T])?{_CLOCK}"
_LEVEL = r"(?:INFO|DEBUG)"
#: A logger, module, function or file. One of an evaluation prints the loss of that.
_PLACE = r"(?!(?i:[\w.<>]{0,80}(?:eval|valid|test)))[\w.<>]{1,80}"
#: One that is no word of the message, such as `Resumed: step 20 loss 0.5`.
_LOGGER = rf"(?:root|main|__main__|train|trainer|(?=\w+\.\w){_PLACE})"
#: What loggers put before a message: a rank, a time, a logger's name and a level.
_PREFIX = re.compile(
    r"\s*(?:\[(?i:rank|gpu) ?0\]:?\s*)?(?:\[titan\] )?"
    rf"(?:\[{_TIME}\]\[{_PLACE}\]\[{_LEVEL}\] - "  # hydra
    rf"|{_TIME} \| {_LEVEL} *\| {_PLACE}:{_PLACE}:[0-9]{{1,6}} - "  # loguru
    rf"|I(?:[0-9]{{4}})?[0-9]{{4}} {_CLOCK} +[0-9]{{1,16}} {_PLACE}:[0-9]{{1,6}}\] "  # glog, absl
    rf"|(?:{_TIME} )?{_LEVEL} +{_LOGGER}: "
    rf"|(?:\[?{_TIME}\]?[ ]?)?(?:- )?(?:(?!{_LEVEL} ){_PLACE} - )?(?:\[?{_LEVEL}\]?(?::{_PLACE}:| - {_PLACE} - |[ ]?[-:|] ?| ))?(?:- )?)"
)
_BETWEEN = re.compile(r"[\s,;|\[\]()-]*")
_STEP = re.compile(
    r"(?:(?:global|train|training)[ _])?(?:step|iter|iteration|batch)(?:e?s)?\b[\s:=#]*\[?([0-9]{1,16})(?:/([0-9]{1,16}))?(?![\w.%/])\]?(?:\s*:)?",
    re.I,
)
_GOES_ON = re.compile(r"[\w.%]")
_EPOCH = re.compile(rf"epoch\b[\s:=#]*\[?({_NUMBER})(?:/[0-9]{{1,16}})?(?![\w%/])\]?(?:\s*:)?", re.I)
#: A comma and three digits may be decimals: the value of a loss is not read so.
_THOUSANDS = r"[1-9][0-9]{0,2}(?:,[0-9]{3}){1,6}(?:\.[0-9]{1,20})?(?![,\w])"
_VALUE = re.compile(
    rf"((?:(?:{_PART}) )?[a-z][\w./]{{0,80}})(\s*[:=]\s*|\s+)([0-9]{{1,6}}(?::[0-9]{{2}}){{1,2}}|{_THOUSANDS}|{_NUMBER})", re.I
)
#: Names that need neither ':' nor '=' before their number: `step 5 loss 2.0 lr 1e-4`.
_WELL_KNOWN = re.compile(
    rf"(?:(?:{_PART})[ _/])?(?:loss|acc|accuracy|(?:grad_?|gradient_)?norm|lr|learning_rate|ppl|perplexity|mfu|time|dt|eta)", re.I
)
#: Words that a number may follow without being named by them: `loss 2.31 after 12`.
_NO_NAMES = frozenset(
    [
        "of",
        "in",
        "at",
        "to",
        "from",
        "on",
        "after",
        "before",
        "with",
        "for",
        "is",
        "was",
        "over",
        "under",
        "than",
        "and",
        "by",
        "per",
        "best",
        "step",
        "steps",
        "iter",
        "iteration",
        "epoch",
        "batch",
    ]
)
_UNIT = re.compile(
    r"\s?(?:%|(?:ms|us|s|sec|secs|seconds|min|mins|h|[kmg]i?b|it/s|s/it|tok/s|tokens/s|tok/sec|tokens/sec|samples/s)\b)", re.I
)
_MEASURE = re.compile(rf"(?:{_NUMBER}){_UNIT.pattern}", re.I)
_ENTRY = re.compile(
    rf"""\s*(?:'([^'"\\]{{1,80}})'|"([^'"\\]{{1,80}})")\s*:\s*(?:({_NUMBER})|'({_NUMBER})'|"({_NUMBER})")\s*(?:,|$)""", re.I
)
_STEP_KEYS = frozenset({"step", "global_step", "iteration", "iter"})
#: They are of a clock, not of a step.
_CLOCKS = frozenset({"time", "dt", "eta", "elapsed", "duration", "timestamp", "step_time", "iter_time"})


@dataclass(frozen=True)
class PrintedStep:
    """The numbers of one step that a line prints.

    `step` is None where the line names an epoch alone, `epoch` where it names none, `of` where it does not say of how many steps this is one:
    100/600.
    """

    step: int | None
    epoch: float | None
    values: tuple[tuple[str, float], ...]
    of: int | None = None


def read_line(line: str) -> PrintedStep | None:
    """The numbers of one step in a printed line; None where the line does not give them for certain."""
    text = _COLOUR.sub("", line).strip()
    if not text or len(text) > LONGEST_LINE or "loss" not in text.lower():
        return None
    message = text[_prefix(text) :]
    found = _of_mapping(message) if message.startswith("{") else _of_words(message)
    return found if found is not None and _is_certain(found) else None


def _prefix(text: str) -> int:
    found = _PREFIX.match(text)
    return found.end() if found else 0


def _is_certain(found: PrintedStep) -> bool:
    names = [name for name, _ in found.values]
    has_loss = any("loss" in name.lower() for name in names)
    return has_loss and len(set(names)) == len(names) <= MOST_VALUES and (found.step or 0) <= MAX_STEP


def _of_mapping(message: str) -> PrintedStep | None:
    """Read a line that is a flat dictionary, as Python or JSON writes it."""
    if not message.endswith("}"):
        return None
    inside, place = message[1:-1], 0
    entries: dict[str, float] = {}
    while place < len(inside):
        entry = _ENTRY.match(inside, place)
        if entry is None:
            return None
        name = entry[1] or entry[2]
        if name in entries:
            return None
        entries[name], place = float(entry[3] or entry[4] or entry[5]), entry.end()
    steps = [entries.pop(name) for name in _STEP_KEYS & entries.keys()]
    if len(steps) != 1 or not steps[0].is_integer() or steps[0] < 0:
        return None
    return PrintedStep(int(steps[0]), entries.pop("epoch", None), _without_clocks(entries.items()))


def _of_words(message: str) -> PrintedStep | None:
    """Read a line of names and numbers, `step 120 | loss 2.31, lr 1e-4`: the step or the epoch first."""
    line = _Line()
    place = _skip(message, 0)
    while place < len(message):
        end = line.take(message, place)
        if end is None or _GOES_ON.match(message, end):  # it is more than a number
            return None
        place = _skip(message, end)
    return line.found()


@dataclass
class _Line:
    """As much of a line as was read so far."""

    step: int | None = None
    of: int | None = None
    epoch: float | None = None
    values: list[tuple[str, float]] = field(default_factory=list)

    def take(self, message: str, place: int) -> int | None:
        """Read what begins at `place`. Returns where it ends; None where it is not understood."""
        if self.step is None and (found := _STEP.match(message, place)):
            self.step, self.of = int(found[1]), int(found[2]) if found[2] else None
        elif self.step is None and self.epoch is None:
            if (found := _EPOCH.match(message, place)) is None:
                return None
            self.epoch = float(found[1])
        elif (found := _VALUE.match(message, place)) and self._is_named(found[1], found[2]):
            if "," in found[3] and "loss" in found[1].lower():
                return None
            unit = _UNIT.match(message, found.end())
            if unit is None and ":" not in found[3]:
                self.values.append((found[1], float(found[3].replace(",", ""))))
            found = unit or found
        elif not (found := _MEASURE.match(message, place)):
            return None
        return found.end()

    def _is_named(self, name: str, sign: str) -> bool:
        """Whether `name` is that of the number behind it: by ':' or '=', because it is well known, or because a loss stands before it, so that the
        line is a list of numbers."""
        if sign.strip() or _WELL_KNOWN.fullmatch(name):
            return True
        return name.lower() not in _NO_NAMES and any("loss" in known.lower() for known, _ in self.values)

    def found(self) -> PrintedStep | None:
        if self.step is None and (self.epoch is None or not self.epoch.is_integer() or self.epoch < 0):
            return None
        return PrintedStep(self.step, self.epoch, _without_clocks(_tagged(self.values)), self.of)


def _skip(message: str, place: int) -> int:
    found = _BETWEEN.match(message, place)
    return found.end() if found else place


def _tagged(values: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The values with names for curves. A training loss beside an evaluation loss was measured with it, and is not the loss of the
    step's batch."""
    tags = [(name.replace(" ", "_"), value) for name, value in values]
    is_evaluation = any(our_name(tag) == "eval_loss" for tag, _ in tags)
    return [(f"eval/{tag}" if is_evaluation and our_name(tag) == "loss" else tag, value) for tag, value in tags]


def _without_clocks(values: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple((name, value) for name, value in values if name.lower() not in _CLOCKS)
