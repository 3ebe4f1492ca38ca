"""Recording of numbers: as curves of the job, or printed where there is no job."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from paceline.distributed.env import position
from paceline.logged_media import KeptMedia, media_in
from paceline.monitoring.checks import checked_step, checked_value, checked_values
from paceline.monitoring.names import Names, our_name
from paceline.training.own_loop.recorders import emit, job_recorder

_NO_NUMBER = "only single numbers make curves, beside paceline.Image, Histogram and Table; texts and lists of numbers do not"
_kept = KeptMedia()


def record(step: Any, values: Mapping[str, Any]) -> None:
    """Record `values` at `step`: numbers, images, histograms and tables; print them outside a job.

    Raises TypeError or ValueError for anything else; nothing of the call is recorded then.
    """
    media = media_in(values)
    numbers = {name: value for name, value in values.items() if name not in media} if media else values
    recorder = job_recorder()
    if recorder is None:
        words = [f"{name} {value:.6g}" for name, value in checked_values(numbers, set()).items()]
        words += [f"{name} {each.words()}" for name, each in media.items()]
        print(f"step {checked_step(step)}", *words, flush=True)
        return
    if numbers or not media:
        recorder.record_own(step, numbers)
    if media:
        _kept.record(checked_step(step), media)


class ForeignMetrics:
    """Records metrics logged for another library: nested, under that library's names, and not only numbers."""

    def __init__(self) -> None:
        self._names = Names()
        self._reported: set[str] = set()
        self._counted = False

    def record(self, step: Any, values: Mapping[Any, Any]) -> dict[str, float]:
        """Record the numbers among `values` at `step`, under Paceline's names where these mean the same.

        Returns the numbers under their own names, nested ones joined by a slash. Other values are left out, with one warning.
        """
        numbers: dict[str, float] = {}
        named: dict[str, Any] = {}
        for tag, value in sorted(flat(values), key=_ours_first):
            if media := self._media(tag, value):
                named |= media
                continue
            number = self._number(tag, value)
            if number is None:
                continue
            numbers[tag] = number
            name = self._names.name(tag)
            if name is None:
                self._leave_out("metrics", "their names are empty or too long: use shorter ones", tag[:100])
            else:
                named[name] = number
        if named:
            record(step, named)
        return numbers

    def note_counted(self) -> None:
        """Tell in the job's history, once, that the steps of its curves are counted calls.

        These begin with 0 whatever step a restarted script goes on from, so that nothing follows from them about its lost steps.
        """
        if not self._counted and position().rank == 0:
            self._counted = True
            emit("curves_found", {"path": "calls without a step", "how": "they are counted from 0 at each start", "late": True})

    def _media(self, tag: str, value: Any) -> dict[str, Any]:
        """Return an image, a histogram or a table by its key; nothing for other values, and for a name that cannot be a key."""
        try:
            return {tag: value} if media_in({tag: value}) else {}
        except (TypeError, ValueError) as error:
            self._leave_out("images, histograms or tables", str(error), tag[:100])
            return {}

    def _number(self, tag: str, value: Any) -> float | None:
        try:
            return checked_value(tag, value)
        except (TypeError, ValueError):
            self._leave_out("logged values", _NO_NUMBER, f"{tag[:100]} ({type(value).__name__})")
            return None

    def _leave_out(self, what: str, reason: str, example: str) -> None:
        """Tell in the job's history and in the output, once for each `what`, that `example` is not recorded."""
        recorder = job_recorder()
        if recorder is not None:
            recorder.drop(what, 1, reason, example)
        elif what not in self._reported:
            self._reported.add(what)
            print(f"WARNING {what} are dropped: {reason} (for example {example})", file=sys.stderr, flush=True)


def flat(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, under their names joined by slashes."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def _ours_first(item: tuple[str, Any]) -> bool:
    """Where `loss` and `train/loss` are logged together, `loss` is the loss."""
    return our_name(item[0]) != item[0]
