"""Tell how gradients are summed from now on, and why: an event, and a line of the log."""

from __future__ import annotations

from dataclasses import asdict

from paceline.parallelism.communication import words
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.sum_cost import MeasuredLink
from paceline.parallelism.communication.trial import Verdict
from paceline.training.reporting.telemetry import Telemetry


def report_communication(telemetry: Telemetry, step: int, verdict: Verdict) -> None:
    """Report a verdict after `step`, from the rank that reports for the job."""
    if not telemetry.leads:
        return
    text = words.why(verdict)
    measured_links = words.links(verdict.links)
    telemetry.log(f"gradients are summed {text}; {measured_links}")
    telemetry.event(
        "communication_chosen",
        step=step,
        text=text,
        links=measured_links,
        why=verdict.why,
        name=verdict.taken.name,
        waited_seconds=verdict.waited,
        options=[_option(verdict, each) for each in verdict.options],
        within=_link(verdict.links.within),
        between=_link(verdict.links.between),
    )


def _option(verdict: Verdict, choice: ReductionChoice) -> dict[str, object]:
    return {
        "name": choice.name,
        "predicted_seconds": verdict.predicted.get(choice),
        "measured_seconds": verdict.measured.get(choice),
        "taken": choice == verdict.taken,
    }


def _link(link: MeasuredLink | None) -> dict[str, float] | None:
    return None if link is None else asdict(link)
