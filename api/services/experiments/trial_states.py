"""The state of a trial, from its row and its job: nothing else stores it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from paceline.cluster.experiments.facts import Rung, TrialState
from paceline.cluster.experiments.merging import FormerTrial
from paceline.cluster.experiments.policy import KnownTrial
from paceline.cluster.policy.requirements import TOOLS
from paceline.cluster.states import TERMINAL_JOB_STATES, Intent, JobState
from paceline.db.repositories.experiments import TrialColumns, TrialJobColumns, TrialTally, TrialWithJob
from paceline.training.spec.changes import field_at

_AS_JOB: Mapping[JobState, TrialState] = {
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.PAUSED: "paused",
}
#: Why a job waits that the nodes that are here would not hold if they were empty.
NEVER_FITS = frozenset({"cluster_too_small", "no_matching_node", *(tool.code for tool in TOOLS)})


def _state(*, refused: bool, pruned: bool, cancelled: bool, job: JobState | None) -> TrialState:
    if refused:
        return "refused"
    if pruned:
        return "pruned"
    if job is None:
        return "cancelled" if cancelled else "waiting"
    return _AS_JOB.get(job, "running")


def state_of(known: TrialWithJob) -> TrialState:
    trial, job = known
    refused = trial.refusal is not None
    return _state(refused=refused, pruned=trial.pruned, cancelled=trial.cancelled, job=job.state if job else None)


def shown_state(known: TrialWithJob) -> TrialState:
    """The state as clients see it: a trial whose job is queued waits for slots as one without a job does. For the schedule it is on its way."""
    state, job = state_of(known), known.job
    return "waiting" if state == "running" and job is not None and job.state is JobState.QUEUED else state


def shown_state_of_tally(tally: TrialTally) -> TrialState:
    state = _state(refused=tally.is_refused, pruned=tally.is_pruned, cancelled=tally.is_cancelled, job=tally.job_state)
    return "waiting" if state == "running" and tally.job_state is JobState.QUEUED else state


def former_trial(known: TrialWithJob) -> FormerTrial:
    """A trial as it is found by an experiment that is posted again: one whose job has been asked to cancel, and has not ended yet, is cancelled."""
    state, job = state_of(known), known.job
    is_cancelling = job is not None and job.desired is Intent.CANCEL and state in ("running", "paused")
    return FormerTrial(known.trial.index, known.trial.key, "cancelled" if is_cancelling else state)


def known_trial(known: TrialWithJob, base: Mapping[str, Any], coming: Collection[str] = (), *, has_nodes: bool = True) -> KnownTrial:
    """A trial as its experiment's schedule sees it. `base`: the job that all trials begin with. `coming`: jobs that a pool would hold once it has
    grown: they wait for it as any other job does. `has_nodes`: there are nodes that a plan can be chosen for."""
    trial, job = known
    rests = job is not None and job.resting_step is not None
    is_told = job is not None and trial.metric_is_final and trial.metric_step == job.resting_step
    return KnownTrial(
        index=trial.index,
        configuration=trial.configuration,
        repeat=trial.repeat,
        values=trial.values,
        world_size=trial.world_size,
        state=state_of(known),
        is_active=job is not None and _is_active(job),
        is_queued=job is not None and _is_queued(job),
        never_fits=None if job is not None and job.id in coming else _why_it_never_fits(job),
        lacks_nodes=not has_nodes and _strategy(base, trial.values) == "auto",
        can_pause=_can_pause(base, trial.values),
        paused_for=trial.paused_for,
        is_pausing=job is not None and job.desired is Intent.PAUSE,
        is_cancelling=job is not None and job.desired is Intent.CANCEL,
        step=job.step if job else 0,
        has_final_metric=rests and is_told,
        is_awaited=rests and not is_told,
        rungs=rungs_of(trial),
        metric=trial.metric,
    )


def rungs_of(trial: TrialColumns) -> list[Rung]:
    """The rungs of a halving that a trial has reached."""
    return [Rung(**rung) for rung in trial.rungs]


def _is_active(job: TrialJobColumns) -> bool:
    return job.state not in TERMINAL_JOB_STATES and (job.state is not JobState.PAUSED or job.desired is not Intent.PAUSE)


def _is_queued(job: TrialJobColumns) -> bool:
    """Whether the job waits for slots; one that is asked to leave its pause will, a moment later."""
    return job.state is JobState.QUEUED or (job.state is JobState.PAUSED and job.desired is Intent.RUN)


def too_large_jobs(trials: Iterable[TrialWithJob]) -> list[str]:
    """The jobs of trials that the nodes that are here would not hold."""
    return [known.job.id for known in trials if known.job is not None and _why_it_never_fits(known.job) is not None]


def _why_it_never_fits(job: TrialJobColumns | None) -> str | None:
    if job is None or job.state is not JobState.QUEUED or not job.pending or job.pending.get("code") not in NEVER_FITS:
        return None
    return str(job.pending["text"])


def _strategy(base: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    return values.get("parallelism.strategy", field_at(base, ("parallelism", "strategy")))


def _can_pause(base: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    if field_at(base, ("script",)) is None:
        return True
    return values.get("script.saves_on_sigterm", field_at(base, ("script", "saves_on_sigterm"))) is True
